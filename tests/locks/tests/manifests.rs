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
    for folder in ["", "shared", "tests"] {
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

/// Each crate of the product may use those before it. A device is told what to do, and knows no cluster, no evidence and no
/// cache: `pod-safety-devices` comes before `pod-safety-shared`.
const LAYERS: [(&str, &str); 10] = [
    ("pod-safety-model", "shared/model"),
    ("pod-safety-wire", "shared/wire"),
    ("pod-safety-transport", "shared/transport"),
    ("pod-safety-clock", "shared/clock"),
    ("pod-safety-crds", "shared/crds"),
    ("pod-safety-screen", "shared/screen"),
    ("pod-safety-devices", "devices"),
    ("pod-safety-shared", "shared"),
    ("pod-safety-simulator", "tests/simulator"),
    ("pod-safety", "controllers"),
];

#[test]
fn crates_use_only_those_below_them() -> Result<()> {
    let place = |name: &str| LAYERS.iter().position(|(layer, _)| *layer == name);
    for (at, (name, folder)) in LAYERS.iter().enumerate() {
        let manifest = manifest(format!("{folder}/Cargo.toml"))?;
        assert_eq!(manifest["package"]["name"].as_str(), Some(*name), "{folder}");
        let uses = manifest.get("dependencies").and_then(toml::Value::as_table).context("dependencies")?;
        for used in uses.keys().filter(|used| used.starts_with("pod-safety")) {
            let below = place(used).is_some_and(|place| place < at);
            ensure!(below, "{name} uses {used}, which is not below it");
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

/// What is shipped in the image has no simulator in it, and nothing that only the demonstration needs.
#[test]
fn without_the_feature_demo_there_is_no_simulator() -> Result<()> {
    let tree = |features: &[&str]| -> Result<String> {
        let mut cargo = std::process::Command::new(env!("CARGO"));
        cargo.args([
            "tree",
            "--offline",
            "--locked",
            "--package=pod-safety",
            "--edges=normal",
            "--prefix=none",
        ]);
        let output = cargo.args(features).current_dir(repository()).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    };
    let names = |tree: &str, name: &str| tree.lines().any(|line| line.split(' ').next() == Some(name));
    let (with, without) = (tree(&[])?, tree(&["--no-default-features"])?);
    for name in ["pod-safety-simulator", "ratatui", "crossterm"] {
        ensure!(
            names(&with, name),
            "{name} is not in the demonstration: this test looks for the wrong thing"
        );
        ensure!(!names(&without, name), "{name} is in the image");
    }
    ensure!(names(&without, "pod-safety-shared"));
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

/// Whoever may move a tag of an action runs code with the rights of our releases.
#[test]
fn every_action_is_pinned_by_its_commit() -> Result<()> {
    let mut pinned = 0;
    for entry in std::fs::read_dir(repository().join(".github/workflows"))? {
        let path = entry?.path();
        for line in std::fs::read_to_string(&path)?.lines() {
            let Some((_, action)) = line.split_once("uses: ").filter(|(_, action)| !action.starts_with("./"))
            else {
                continue;
            };
            let commit = action.split_once('@').map_or("", |(_, commit)| commit);
            let (commit, version) = commit.split_once(" # ").unwrap_or_default();
            let is_commit = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
            ensure!(is_commit && version.starts_with('v'), "{}: {action} is not pinned", path.display());
            pinned += 1;
        }
    }
    ensure!(pinned > 10, "only {pinned} actions were found");
    Ok(())
}
