//! Violates each rule of deny.toml in a copy of the workspace; cargo-deny must name the rule.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use pod_safety_locks::{installed, manifest, members, repository};
use tempfile::TempDir;
use toml::{Table, Value};

#[test]
fn the_workspace_passes() -> Result<()> {
    let (passed, report) = check(&copy()?, "bans")?;
    ensure!(passed, "{report}");
    Ok(())
}

#[test]
fn controllers_cannot_depend_on_kube() -> Result<()> {
    let copy = copy()?;
    plant(&copy, "controllers/Cargo.toml", "kube", workspace_version())?;
    let (passed, report) = check(&copy, "bans")?;
    ensure!(!passed, "kube was let in");
    ensure!(banned(&report, "kube"), "kube is not named: {report}");
    Ok(())
}

/// Every banned crate: one of this workspace as it is, another as an empty crate of that name, because the rules match names.
#[test]
fn controllers_cannot_depend_on_any_banned_crate() -> Result<()> {
    let copy = copy()?;
    let names = banned_names()?;
    for name in &names {
        if name.starts_with("pod-safety-") {
            plant(&copy, "controllers/Cargo.toml", name, workspace_version())?;
            continue;
        }
        let path = format!("planted/{name}");
        write_crate(
            &copy.path().join(&path),
            &format!("[package]\nname = \"{name}\"\nversion = \"99.0.0\"\nedition = \"2024\"\n"),
        )?;
        let dependency = Value::Table(Table::from_iter([("path".to_owned(), Value::from(format!("../{path}")))]));
        plant(&copy, "controllers/Cargo.toml", name, dependency)?;
    }
    let (passed, report) = check(&copy, "bans")?;
    ensure!(!passed, "all of them were let in");
    let missed: Vec<_> = names.iter().filter(|name| !banned(&report, name)).collect();
    ensure!(missed.is_empty(), "let in: {missed:?}\n{report}");
    Ok(())
}

/// pod-safety-devices may speak HTTP to devices, but must not be able to reach the cluster.
#[test]
fn devices_cannot_depend_on_a_cluster_client() -> Result<()> {
    for name in ["kube", "k8s-openapi", "tower"] {
        let copy = copy()?;
        plant(&copy, "devices/Cargo.toml", name, workspace_version())?;
        let (passed, report) = check(&copy, "bans")?;
        ensure!(!passed && banned(&report, name), "{name} was let in: {report}");
    }
    Ok(())
}

#[test]
fn each_rule_denies_the_controllers() -> Result<()> {
    for rule in rules()? {
        let wrappers = rule.get("wrappers").and_then(Value::as_array);
        ensure!(!wrappers.is_some_and(|list| list.contains(&"pod-safety".into())), "{rule}");
    }
    Ok(())
}

#[test]
fn a_version_must_be_named() -> Result<()> {
    let copy = copy()?;
    plant(&copy, "controllers/Cargo.toml", "bytes", "*".into())?;
    let (passed, report) = check(&copy, "bans")?;
    ensure!(!passed && report.contains("wildcard"), "a wildcard was let in: {report}");
    Ok(())
}

#[test]
fn an_unknown_licence_is_refused() -> Result<()> {
    let copy = copy()?;
    let manifest =
        "[package]\nname = \"copyleft\"\nversion = \"1.0.0\"\nedition = \"2024\"\nlicense = \"GPL-3.0-only\"\n";
    write_crate(&copy.path().join("planted/copyleft"), manifest)?;
    let dependency = Value::Table(Table::from_iter([("path".to_owned(), Value::from("../planted/copyleft"))]));
    plant(&copy, "controllers/Cargo.toml", "copyleft", dependency)?;
    let (passed, report) = check(&copy, "licenses")?;
    ensure!(!passed && report.contains("GPL-3.0"), "a licence was let in: {report}");
    Ok(())
}

fn rules() -> Result<Vec<Value>> {
    Ok(manifest("deny.toml")?["bans"]["deny"].as_array().context("no rules")?.clone())
}

fn banned_names() -> Result<Vec<String>> {
    rules()?.iter().map(|rule| rule["crate"].as_str().map(str::to_owned).context("a rule without a crate")).collect()
}

fn banned(report: &str, name: &str) -> bool {
    report.contains(&format!("crate '{name} = "))
}

fn workspace_version() -> Value {
    Value::Table(Table::from_iter([("workspace".to_owned(), Value::from(true))]))
}

/// Manifests and empty sources: cargo-deny reads nothing else.
fn copy() -> Result<TempDir> {
    let copy = TempDir::new()?;
    for file in ["Cargo.toml", "Cargo.lock", "deny.toml"] {
        fs::copy(repository().join(file), copy.path().join(file))?;
    }
    for member in members()? {
        let text = fs::read_to_string(repository().join(&member).join("Cargo.toml"))?;
        write_crate(&copy.path().join(&member), &text)?;
        for target in ["src/main.rs", "build.rs"] {
            if repository().join(&member).join(target).exists() {
                fs::write(copy.path().join(&member).join(target), "fn main() {}")?;
            }
        }
        stub_targets(&copy.path().join(&member), &text.parse()?)?;
    }
    Ok(copy)
}

/// Targets that a manifest declares must exist, or cargo cannot read it.
fn stub_targets(folder: &Path, manifest: &Table) -> Result<()> {
    for kind in ["bin", "test", "bench", "example"] {
        let targets = manifest.get(kind).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for path in targets.iter().filter_map(|target| target.get("path")).filter_map(Value::as_str) {
            let file = folder.join(path);
            fs::create_dir_all(file.parent().context("a target without a folder")?)?;
            fs::write(file, "fn main() {}")?;
        }
    }
    Ok(())
}

fn write_crate(folder: &Path, manifest: &str) -> Result<()> {
    fs::create_dir_all(folder.join("src"))?;
    fs::write(folder.join("Cargo.toml"), manifest)?;
    fs::write(folder.join("src/lib.rs"), "")?;
    Ok(())
}

fn plant(copy: &TempDir, manifest: &str, name: &str, dependency: Value) -> Result<()> {
    let path = copy.path().join(manifest);
    let mut table: Table = fs::read_to_string(&path)?.parse()?;
    let dependencies = table["dependencies"].as_table_mut().context("no dependencies")?;
    dependencies.insert(name.to_owned(), dependency);
    fs::write(path, toml::to_string(&table)?)?;
    Ok(())
}

fn check(copy: &TempDir, what: &str) -> Result<(bool, String)> {
    let output = Command::new(installed("cargo-deny")?)
        .args(["--offline", "check", "--hide-inclusion-graph", what])
        .current_dir(copy.path())
        .env("CARGO", env!("CARGO"))
        .output()?;
    Ok((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}
