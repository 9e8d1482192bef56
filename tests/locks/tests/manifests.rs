//! The lints bind only where they are asked for, crate by crate.

use anyhow::{Context, Result, ensure};
use pod_safety_locks::{manifest, members, repository};

#[test]
fn every_member_takes_the_lints_of_the_workspace() -> Result<()> {
    for member in members()? {
        let manifest = manifest(format!("{member}/Cargo.toml"))?;
        let asked =
            manifest.get("lints").and_then(|lints| lints.get("workspace")).and_then(toml::Value::as_bool);
        ensure!(asked == Some(true), "{member}/Cargo.toml needs [lints] workspace = true");
    }
    Ok(())
}

#[test]
fn every_crate_of_the_tree_is_a_member() -> Result<()> {
    let members = members()?;
    for folder in ["", "tests"] {
        for entry in std::fs::read_dir(repository().join(folder))? {
            let entry = entry?;
            let path = entry.path();
            let member = path.strip_prefix(repository())?.to_string_lossy().into_owned();
            if path.join("Cargo.toml").exists() {
                ensure!(members.contains(&member), "{member} is a crate that no lint and no test reaches");
            }
        }
    }
    Ok(())
}

#[test]
fn unsafe_code_cannot_be_allowed_anywhere() -> Result<()> {
    let root = manifest("Cargo.toml")?;
    let level = root["workspace"]["lints"]["rust"]["unsafe_code"].as_str().context("unsafe_code")?;
    assert_eq!(level, "forbid", "deny could be lifted by an attribute");
    Ok(())
}

#[test]
fn every_lint_of_clippy_is_an_error() -> Result<()> {
    let root = manifest("Cargo.toml")?;
    for (lint, level) in root["workspace"]["lints"]["clippy"].as_table().context("no lints of clippy")? {
        ensure!(level.as_str() == Some("deny"), "{lint} is {level}");
    }
    Ok(())
}

#[test]
fn no_folder_is_a_bag_for_everything() -> Result<()> {
    for source in pod_safety_locks::sources()? {
        let bag =
            source.path.split(['/', '.']).find(|part| ["utils", "util", "common", "helpers"].contains(part));
        ensure!(bag.is_none(), "{}: name it for its one subject", source.path);
    }
    Ok(())
}
