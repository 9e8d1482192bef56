//! refused/lints violates each ban of clippy.toml and each lint of Cargo.toml once, and each must be an error there. Clippy ignores a ban
//! whose path does not exist, so a moved path would disable the ban unnoticed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use pod_safety_locks::refused::refusals;
use pod_safety_locks::{manifest, repository};
use serde_json::Value;

/// A group and not a lint: an error has the name of a member, which is checked separately.
const GROUPS: [&str; 1] = ["rust_2018_idioms"];

#[test]
fn each_ban_and_each_lint_fires() -> Result<()> {
    let findings = findings()?;
    let mut unreported: BTreeSet<String> = BTreeSet::new();

    for (list, path) in bans()? {
        let quoted = format!("`{path}`");
        let lint = format!("clippy::{list}");
        if !findings.iter().any(|(code, message)| *code == lint && message.contains(&quoted)) {
            unreported.insert(format!("{list} {path}"));
        }
    }
    let codes: BTreeSet<&str> = findings.iter().map(|(code, _)| code.as_str()).collect();
    for lint in lints()? {
        if !codes.contains(lint.as_str()) && !GROUPS.contains(&lint.as_str()) {
            unreported.insert(lint);
        }
    }
    ensure!(
        unreported.is_empty(),
        "use each of these in tests/locks/refused/lints (or correct its path): {unreported:#?}"
    );
    ensure!(codes.contains("elided_lifetimes_in_paths"), "rust_2018_idioms are silent");
    Ok(())
}

#[test]
fn each_ban_has_a_reason() -> Result<()> {
    let config = manifest("clippy.toml")?;
    for list in ["disallowed-methods", "disallowed-types", "disallowed-macros"] {
        for ban in config[list].as_array().context(list)? {
            let reason = ban.get("reason").and_then(toml::Value::as_str).unwrap_or_default();
            ensure!(reason.split_whitespace().count() >= 3, "{ban} has no reason");
        }
    }
    Ok(())
}

/// A new version of kube may have new writing methods. Each async method of `Api` and `Client` is either banned or known to read only.
#[test]
fn each_kube_client_entry_point_is_listed() -> Result<()> {
    let read_only = BTreeSet::from([
        "apiserver_version",
        "connect", // websockets: not compiled in, see the test below
        "get",
        "get_approval",
        "get_ephemeral_containers",
        "get_metadata",
        "get_metadata_opt",
        "get_metadata_opt_with",
        "get_metadata_with",
        "get_opt",
        "get_resize",
        "get_scale",
        "get_status",
        "get_subresource",
        "get_with",
        "list",
        "list_api_group_resources",
        "list_api_groups",
        "list_api_groups_aggregated",
        "list_core_api_resources",
        "list_core_api_versions",
        "list_core_api_versions_aggregated",
        "list_metadata",
        "log_stream",
        "logs",
        "try_default",
        "watch",
        "watch_metadata",
        // Behind the features `ws` and `kubelet-debug`, which are disabled.
        "attach",
        "exec",
        "portforward",
    ]);
    let banned: BTreeSet<String> = bans()?.into_iter().map(|(_, path)| path).collect();
    let mut unknown = BTreeSet::new();
    for door in entry_points()? {
        let is_banned = ["Api", "Client"].iter().any(|of| banned.contains(&format!("kube::{of}::{door}")));
        if !is_banned && !read_only.contains(door.as_str()) {
            unknown.insert(door);
        }
    }
    ensure!(unknown.is_empty(), "ban these in clippy.toml, or list them here as reads: {unknown:?}");
    let kube = &manifest("Cargo.toml")?["workspace"]["dependencies"]["kube"];
    for feature in ["ws", "kubelet-debug", "runtime", "unstable-client"] {
        let features = kube["features"].as_array().context("features")?;
        ensure!(!features.contains(&feature.into()), "kube's feature {feature} opens doors that no ban covers");
    }
    Ok(())
}

/// `(disallowed_methods, std::time::Instant::now)`, …
fn bans() -> Result<Vec<(String, String)>> {
    let config = manifest("clippy.toml")?;
    let mut bans = Vec::new();
    for list in ["disallowed-methods", "disallowed-types", "disallowed-macros"] {
        for ban in config[list].as_array().context(list)? {
            let path = ban.get("path").and_then(toml::Value::as_str).context("a ban without a path")?;
            bans.push((list.replace('-', "_"), path.to_owned()));
        }
    }
    ensure!(bans.len() > 20, "{} bans: clippy.toml was not understood", bans.len());
    Ok(bans)
}

/// The lints that the workspace enables, by their names in the compiler.
fn lints() -> Result<Vec<String>> {
    let root = manifest("Cargo.toml")?;
    let lints = &root["workspace"]["lints"];
    let names = |tool: &str| lints[tool].as_table().map(|table| table.keys().cloned().collect::<Vec<_>>());
    let rust = names("rust").context("no lints of rustc")?;
    let clippy = names("clippy").context("no lints of clippy")?;
    Ok(rust.into_iter().chain(clippy.iter().map(|name| format!("clippy::{name}"))).collect())
}

/// The errors of the program that violates them all.
fn findings() -> Result<Vec<(String, String)>> {
    let refusals = refusals(&["lints".to_owned()])?;
    let broken: Vec<_> = refusals.iter().filter(|refusal| refusal.is_of_the_language()).collect();
    ensure!(broken.is_empty(), "refused/lints must compile but for the lints: {broken:?}");
    Ok(refusals.into_iter().filter_map(|refusal| Some((refusal.code?, refusal.message))).collect())
}

/// The names of the public async methods in the sources of kube-client, as the lock file pins it.
fn entry_points() -> Result<BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--format-version=1", "--filter-platform=x86_64-unknown-linux-gnu"])
        .current_dir(repository())
        .output()?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    let kube = packages.iter().find(|package| package["name"] == "kube-client").context("no kube-client")?;
    let source = Path::new(kube["manifest_path"].as_str().context("no path")?).with_file_name("src");
    let mut doors = BTreeSet::new();
    for part in ["api", "api/util", "client"] {
        for entry in fs::read_dir(source.join(part))? {
            let path = entry?.path();
            // The other files in client/ are behind disabled features, or are internals of `Client`.
            let read = part != "client" || path.ends_with("mod.rs");
            if read && path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(path)?;
                doors.extend(text.split("    pub async fn ").skip(1).filter_map(name));
            }
        }
    }
    // Methods of other types in these files: an entry is reached through `Api::entry`, a stream through `exec`.
    for inner in ["commit", "join", "sync"] {
        doors.remove(inner);
    }
    ensure!(doors.len() > 40, "{} doors: kube-client was not understood", doors.len());
    Ok(doors)
}

fn name(text: &str) -> Option<String> {
    text.split(['(', '<']).next().map(str::to_owned)
}
