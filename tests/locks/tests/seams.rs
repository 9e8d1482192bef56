//! An extension touches few files. `seams/` has one of each kind, as a patch with all that the compiler demands.

use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use pod_safety_locks::{Source, repository, texts};

/// The drivers of devices, each with what others ask about it.
const TABLE: &str = "shared/crds/src/driver.rs";
/// Calls the code of each driver.
const REGISTRY: &str = "shared/fence/src/objects.rs";
/// The folders of the drivers.
const DRIVERS: [&str; 2] = ["shared/fence/src/objects/", "devices/src/"];
/// The files that name a driver besides the table: the registry, and its own, of which a machine's driver has two.
const NAMING_MAX: usize = 3;
/// A patch, the folder of what it adds, and how many other files it may change, documents and generated files included. The tables of
/// sizes in docs/proof.md and docs/architecture.md may change too, and are in no patch, which they would outdate each time.
/// After a change that breaks a patch, apply it with `git apply --reject`, mend it, and replace it by the output of `git diff -U2`.
const SEAMS: [(&str, &str, usize); 4] =
    [("controller", "controllers/toy/", 8), ("driver", "", 8 - 2), ("evidence", "", 15), ("write", "", 4)];

fn is_product(source: &&Source) -> bool {
    !["/tests/", "/tests.rs", "/testing/"].iter().any(|part| source.path.contains(part))
}

#[test]
fn a_driver_is_named_by_its_own_files_the_table_and_the_registry_alone() -> Result<()> {
    let table = std::fs::read_to_string(repository().join(TABLE))?;
    let (_, variants) = table.split_once("pub enum DeviceDriver {\n").context("the enum")?;
    let (variants, _) = variants.split_once("\n}").context("its end")?;
    let names = variants.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    let variants: Vec<_> = names.filter_map(|line| line.strip_suffix(',')).collect();
    ensure!(variants.len() > 9, "{variants:?}");
    let sources = texts(&["shared", "controllers", "devices"], &["rs"])?;
    let mut counts = vec![0; variants.len()];
    for Source { path, text } in sources.iter().filter(is_product) {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        ensure!(!code.contains("DeviceDriver::{") && !code.contains("DeviceDriver::*"), "{path} imports drivers");
        for (variant, count) in variants.iter().zip(&mut counts) {
            let is_named = code.contains(&format!("DeviceDriver::{variant}"));
            let may = path == REGISTRY || DRIVERS.iter().any(|folder| path.starts_with(folder));
            ensure!(may || !is_named, "{path} names the driver {variant}: ask for a property, a column of {TABLE}");
            *count += usize::from(is_named);
        }
    }
    ensure!(counts.iter().all(|count| (1..=NAMING_MAX).contains(count)), "{variants:?} in {counts:?} files");
    Ok(())
}

fn apply(patch: &str, how: &str) -> Result<Output> {
    Ok(Command::new("git").args(["apply", how, patch]).current_dir(repository()).output()?)
}

#[test]
fn each_extension_applies_and_changes_few_files() -> Result<()> {
    for (name, own, most) in SEAMS {
        let patch = format!("tests/locks/seams/{name}.patch");
        let checked = apply(&patch, "--check")?;
        ensure!(checked.status.success(), "change {patch}, too: {}", String::from_utf8_lossy(&checked.stderr));
        let counts = String::from_utf8(apply(&patch, "--numstat")?.stdout)?;
        let paths = counts.lines().filter_map(|line| line.rsplit('\t').next());
        let changed: Vec<&str> = paths.filter(|path| own.is_empty() || !path.starts_with(own)).collect();
        ensure!(
            (1..=most).contains(&changed.len()),
            "{patch} changes {} files, at most {most}: {changed:?}",
            changed.len()
        );
    }
    Ok(())
}
