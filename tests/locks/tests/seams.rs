//! An extension touches few files. `seams/` has one of each kind, as a patch with all that the compiler demands.

use std::process::Command;

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
/// The files that a driver needs, documents and generated files included. The tables of sizes in docs/proof.md and docs/architecture.md
/// may change too, and are not in the patch, which they would outdate each time.
const DRIVER_MAX: usize = 8 - 2;

fn is_product(source: &&Source) -> bool {
    !["/tests/", "/tests.rs", "/testing/"].iter().any(|part| source.path.contains(part))
}

#[test]
fn a_driver_is_named_by_its_own_files_the_table_and_the_registry_alone() -> Result<()> {
    let table = std::fs::read_to_string(repository().join(TABLE))?;
    let (_, variants) = table.split_once("pub enum DeviceDriver {\n").context("the enum")?;
    let (variants, _) = variants.split_once("\n}").context("its end")?;
    let variants: Vec<_> = variants.lines().filter_map(|line| line.trim().strip_suffix(',')).collect();
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

#[test]
fn a_driver_is_added_in_at_most_eight_files() -> Result<()> {
    let patch = repository().join("tests/locks/seams/driver.patch");
    let output = Command::new("git").args(["apply", "--check"]).arg(&patch).current_dir(repository()).output()?;
    ensure!(output.status.success(), "change driver.patch, too: {}", String::from_utf8_lossy(&output.stderr));
    let files = std::fs::read_to_string(&patch)?.lines().filter(|line| line.starts_with("diff --git ")).count();
    ensure!((1..=DRIVER_MAX).contains(&files), "{files} files");
    Ok(())
}
