//! Checks of Cargo.toml files: lints apply only to crates that inherit them.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use pod_safety_locks::{manifest, members, repository};
use serde_json::Value;

#[test]
fn every_member_takes_the_lints_of_the_workspace() -> Result<()> {
    for member in members()? {
        let manifest = manifest(format!("{member}/Cargo.toml"))?;
        let inherits = manifest.get("lints").and_then(|lints| lints.get("workspace")).and_then(toml::Value::as_bool);
        ensure!(inherits == Some(true), "{member}/Cargo.toml needs [lints] workspace = true");
    }
    Ok(())
}

#[test]
fn every_crate_of_the_tree_is_a_member() -> Result<()> {
    let members = members()?;
    for folder in ["", "controllers", "shared", "tests"] {
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

/// Each crate of the product may depend on those before it. A device driver executes orders, and has no access to cluster, evidence and
/// cache: `pod-safety-devices` comes before `pod-safety-shared`.
const LAYERS: [(&str, &str); 17] = [
    ("pod-safety-model", "shared/model"),
    ("pod-safety-wire", "shared/wire"),
    ("pod-safety-proof", "shared/proof"),
    ("pod-safety-transport", "shared/transport"),
    ("pod-safety-clock", "shared/clock"),
    ("pod-safety-crds", "shared/crds"),
    ("pod-safety-screen", "shared/screen"),
    ("pod-safety-http1", "shared/http1"),
    ("pod-safety-otlp", "shared/otlp"),
    ("pod-safety-watchdog", "shared/watchdog"),
    ("pod-safety-client", "shared/client"),
    ("pod-safety-cache", "shared/cache"),
    ("pod-safety-leader", "shared/leader"),
    ("pod-safety-fence", "shared/fence"),
    ("pod-safety-agent", "controllers/agent"),
    ("pod-safety-devices", "devices"),
    ("pod-safety-shared", "shared"),
];

/// The controllers depend on all of these, each a crate in a folder of `controllers`; the crates below depend on the controllers.
const ABOVE: [(&str, &str); 9] = [
    ("pod-safety-explain", "controllers/explain"),
    ("pod-safety-drain", "controllers/drain"),
    ("pod-safety-traces", "controllers/traces"),
    ("pod-safety-process", "controllers/process"),
    ("pod-safety-doctor", "controllers/doctor"),
    ("pod-safety-print", "controllers/print"),
    ("pod-safety-cli", "controllers/cli"),
    ("pod-safety-simulator", "tests/simulator"),
    ("pod-safety", "controllers"),
];

/// Names and folders.
fn controllers() -> Result<Vec<(String, String)>> {
    let mut controllers = Vec::new();
    for folder in members()? {
        let other = LAYERS.iter().chain(&ABOVE).any(|(_, of_another)| *of_another == folder);
        if let Some(name) = folder.strip_prefix("controllers/").filter(|_| !other) {
            controllers.push((format!("pod-safety-{name}"), folder));
        }
    }
    ensure!(controllers.len() >= 6, "{controllers:?}");
    Ok(controllers)
}

/// All crates of the product: names, folders, and the permitted dependencies of each.
fn crates() -> Result<Vec<(String, String, Vec<String>)>> {
    let mut below: Vec<String> = Vec::new();
    let mut crates = Vec::new();
    let own = |(name, folder): (&str, &str)| (name.to_owned(), folder.to_owned());
    for (name, folder) in LAYERS.map(own) {
        crates.push((name.clone(), folder, below.clone()));
        below.push(name);
    }
    // Controllers do not depend on each other.
    let controllers = controllers()?;
    crates.extend(controllers.iter().cloned().map(|(name, folder)| (name, folder, below.clone())));
    below.extend(controllers.into_iter().map(|(name, _)| name));
    for (name, folder) in ABOVE.map(own) {
        crates.push((name.clone(), folder, below.clone()));
        below.push(name);
    }
    Ok(crates)
}

/// The dependencies of a crate, without dev-dependencies.
fn uses(folder: &str) -> Result<Vec<String>> {
    let manifest = manifest(format!("{folder}/Cargo.toml"))?;
    let uses = manifest.get("dependencies").and_then(toml::Value::as_table).context("dependencies")?;
    Ok(uses.keys().cloned().collect())
}

#[test]
fn crates_depend_only_on_lower_layers() -> Result<()> {
    for (name, folder, below) in crates()? {
        let manifest = manifest(format!("{folder}/Cargo.toml"))?;
        assert_eq!(manifest["package"]["name"].as_str(), Some(&*name), "{folder}");
        for used in uses(&folder)?.iter().filter(|used| used.starts_with("pod-safety")) {
            ensure!(below.contains(used), "{name} uses {used}, which is not below it");
        }
    }
    Ok(())
}

/// A crate that depends on the kernel can pass it facts that were not read. One that depends on the client can write, one that depends on
/// the cache can fill it with objects that no API server sent, and one that depends on the fencing steps can switch a machine off. So
/// controllers depend on none of them, and `pod-safety-shared` re-exports what they need.
#[test]
fn only_reading_and_writing_crates_depend_on_kernel_client_and_cache() -> Result<()> {
    const CACHE: &str = "pod-safety-cache";
    const LEADER: &str = "pod-safety-leader";
    const FENCE: &str = "pod-safety-fence";
    const SHARED: &str = "pod-safety-shared";
    for (used, by) in [
        ("pod-safety-proof", &["pod-safety-client", CACHE, LEADER, FENCE, SHARED][..]),
        ("pod-safety-client", &[CACHE, LEADER, FENCE, SHARED]),
        (CACHE, &[LEADER, FENCE, SHARED]),
        (LEADER, &[FENCE, SHARED]),
        (FENCE, &[SHARED]),
    ] {
        for (name, folder) in LAYERS {
            let manifest = manifest(format!("{folder}/Cargo.toml"))?;
            let uses = manifest.get("dependencies").and_then(toml::Value::as_table).context("dependencies")?;
            let names = uses.contains_key(used);
            ensure!(names == by.contains(&name), "{name} depends on {used}: {names}");
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

/// The shipped binary contains no simulator, and nothing that only the demonstration needs.
#[test]
fn without_feature_demo_the_simulator_is_no_dependency() -> Result<()> {
    let tree = |features: &[&str]| -> Result<String> {
        let mut cargo = std::process::Command::new(env!("CARGO"));
        cargo.args(["tree", "--offline", "--locked", "--package=pod-safety", "--edges=normal", "--prefix=none"]);
        let output = cargo.args(features).current_dir(repository()).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    };
    let names = |tree: &str, name: &str| tree.lines().any(|line| line.split(' ').next() == Some(name));
    let (with, without) = (tree(&[])?, tree(&["--no-default-features"])?);
    for name in ["pod-safety-simulator", "ratatui", "crossterm"] {
        ensure!(names(&with, name), "{name} is not in the demonstration: this test looks for the wrong thing");
        ensure!(!names(&without, name), "{name} is in the image");
    }
    ensure!(names(&without, "pod-safety-shared"));
    Ok(())
}

#[test]
fn no_folder_is_named_utils_or_common() -> Result<()> {
    for source in pod_safety_locks::sources()? {
        let bag = source.path.split(['/', '.']).find(|part| ["utils", "util", "common", "helpers"].contains(part));
        ensure!(bag.is_none(), "{}: name it for its one subject", source.path);
    }
    Ok(())
}

/// A person who may move the tag of an action could otherwise run code with the rights of our releases.
#[test]
fn every_action_is_pinned_by_its_commit() -> Result<()> {
    let mut pinned = 0;
    for entry in std::fs::read_dir(repository().join(".github/workflows"))? {
        let path = entry?.path();
        for line in std::fs::read_to_string(&path)?.lines() {
            let Some((_, action)) = line.split_once("uses: ").filter(|(_, action)| !action.starts_with("./")) else {
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

fn release() -> Result<Value> {
    let text = std::fs::read_to_string(repository().join(".github/workflows/release.yml"))?;
    Ok(serde_saphyr::from_str(&text)?)
}

/// Whether a job waits for the approval of a person, directly or through a job that it needs.
fn is_approved(jobs: &Value, job: &str) -> bool {
    let needs = jobs[job]["needs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    jobs[job]["environment"] == "release" || needs.into_iter().any(|needed| is_approved(jobs, needed))
}

/// The image was pushed with the tag that the chart pulls before a person approved the release.
#[test]
fn bug_a_release_pushed_its_image_before_it_was_approved() -> Result<()> {
    let jobs = &release()?["jobs"];
    let mut writing = Vec::new();
    for (name, job) in jobs.as_object().context("no jobs")? {
        let writes = |what: &str| job["permissions"][what] == "write";
        if writes("packages") || writes("contents") {
            ensure!(is_approved(jobs, name), "{name} may publish before a person has approved it");
            writing.push(name.as_str());
        }
    }
    assert_eq!(writing, ["publish"]);
    ensure!(!is_approved(jobs, "test"), "what is approved has been tested before");
    Ok(())
}

/// The archives had provenance; the chart, the krew manifest and the checksums had none.
#[test]
fn bug_part_of_a_release_had_no_provenance() -> Result<()> {
    let mut proved = BTreeSet::new();
    let release = release()?;
    let steps = release["jobs"].as_object().context("no jobs")?.values().flat_map(|job| job["steps"].as_array());
    let mut published = String::new();
    for step in steps.flatten() {
        if step["uses"].as_str().is_some_and(|action| action.starts_with("actions/attest-build-provenance@")) {
            let subject = step["with"]["subject-path"].as_str().or(step["with"]["subject-name"].as_str());
            proved.extend(subject.context("no subject")?.split(", ").map(str::to_owned));
        }
        let line = step["run"].as_str().unwrap_or_default().lines().find(|line| line.contains("gh release create"));
        published.push_str(line.unwrap_or_default());
    }
    for (file, subject) in [
        ("pod-safety-*.tar.gz", "pod-safety-*.tar.gz"),
        ("pod-safety-*.tgz", "pod-safety-*.tgz"),
        ("krew.yaml", "krew.yaml"),
        ("SHA256SUMS", "SHA256SUMS"),
    ] {
        ensure!(published.contains(&format!(" {file} ")), "{file} is not published: {published}");
        ensure!(proved.contains(subject), "{file} has no provenance: {proved:?}");
    }
    ensure!(proved.contains("${{ env.CHARTS }}/pod-safety"), "the chart of the registry: {proved:?}");
    Ok(())
}

/// The forbidden actions of a job that may sign: running third-party code, or running without approval.
fn faults(jobs: &Value, name: &str) -> Vec<String> {
    // These build, or run images that are pinned by tag only.
    const FORBIDDEN: [&str; 8] =
        ["cargo", "rustc", "make ", "docker build ", "docker run", "setup-qemu", "setup-buildx", "build-push"];
    let steps = jobs[name]["steps"].as_array().into_iter().flatten();
    let texts: Vec<&str> = steps.flat_map(|step| [&step["run"], &step["uses"]]).filter_map(Value::as_str).collect();
    let used = FORBIDDEN.into_iter().filter(|word| texts.iter().any(|text| text.contains(word)));
    let unapproved = (!is_approved(jobs, name)).then(|| "no approval".to_owned());
    unapproved.into_iter().chain(used.map(str::to_owned)).collect()
}

/// A build script of one dependency could sign arbitrary artifacts in the name of this repository.
#[test]
fn attack_code_of_a_dependency_signs_no_release() -> Result<()> {
    let release = release()?;
    ensure!(release["permissions"] == serde_json::json!({}), "rights for all jobs");
    let jobs = &release["jobs"];
    let all = jobs.as_object().context("no jobs")?.keys();
    let signers: Vec<&String> = all.filter(|name| jobs[name.as_str()]["permissions"]["id-token"] == "write").collect();
    ensure!(signers == ["publish"], "{signers:?} may sign");
    ensure!(faults(jobs, "publish").is_empty(), "{:?}", faults(jobs, "publish"));
    let bad = serde_json::json!({ "build": { "steps": [{ "run": "cargo build" }] } });
    ensure!(faults(&bad, "build") == ["no approval", "cargo"], "{:?}", faults(&bad, "build"));
    Ok(())
}
