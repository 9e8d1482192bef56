//! Rules for the Dockerfile: hadolint checks the general ones, this file those of the project.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use pod_safety_image::{Dockerfile, dockerfile, repository};
use serde_json::Value;

#[test]
fn hadolint_reports_nothing() -> Result<()> {
    let installed = repository().join(".cache/bin/hadolint");
    let output = Command::new(&installed)
        .args(["--no-color", "Dockerfile"])
        .current_dir(repository())
        .output()
        .with_context(|| format!("{} is missing: run tests/install.sh", installed.display()))?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

/// A Debian tag names a release and no image: only the digest identifies the image.
const DEBIAN: &str = "12-slim";

#[test]
fn every_base_is_pinned_by_digest_or_empty() -> Result<()> {
    let file = dockerfile()?;
    let mut earlier: Vec<&str> = Vec::new();
    for stage in &file.stages {
        let name = stage.base.rsplit('/').next().unwrap_or_default();
        let pinned = name.split_once("@sha256:").is_some_and(|(named, digest)| {
            let version = named.split_once(':').is_some_and(|(_, tag)| is_full_version(tag) || tag == DEBIAN);
            version && digest.len() == 64 && digest.chars().all(|digit| digit.is_ascii_hexdigit())
        });
        ensure!(
            stage.base == "scratch" || pinned || earlier.contains(&name),
            "FROM {} moves: name major.minor.patch and a digest",
            stage.base
        );
        ensure!(!stage.base.contains("latest"), "FROM {}", stage.base);
        earlier.extend(stage.name.as_deref());
    }
    Ok(())
}

#[test]
fn the_image_contains_only_the_binary() -> Result<()> {
    let file = dockerfile()?;
    let last = file.last()?;
    assert_eq!(last.base, "scratch");
    let copy = last.only("COPY")?;
    assert_eq!(copy.option("from").collect::<Vec<_>>(), ["build"]);
    assert!(copy.rest.ends_with(" /"), "{}", copy.rest);
    assert_eq!(last.all("RUN").count(), 0, "scratch can run nothing");
    Ok(())
}

#[test]
fn the_image_starts_the_binary_itself_as_an_unprivileged_number() -> Result<()> {
    let file = dockerfile()?;
    let last = file.last()?;
    assert_eq!(last.only("USER")?.rest, "65532:65532");
    // The exec form: the binary is PID 1, so that it receives SIGTERM and can release its lease.
    assert_eq!(last.only("ENTRYPOINT")?.rest, r#"["/pod-safety"]"#);
    assert_eq!(last.only("CMD")?.rest, r#"["run"]"#);
    assert_eq!(last.only("EXPOSE")?.rest, "8080");
    Ok(())
}

/// The sidecar runs the fence agents as another user than the controllers, with the same binary.
#[test]
fn the_image_of_the_sidecar_has_the_binary_and_another_user() -> Result<()> {
    let file = dockerfile()?;
    let agents = file.stages.iter().find(|stage| stage.name.as_deref() == Some("agents"));
    let (agents, last) = (agents.context("no stage agents")?, file.last()?);
    assert_eq!(agents.only("COPY")?.rest, last.only("COPY")?.rest);
    assert_eq!(agents.only("ENTRYPOINT")?.rest, last.only("ENTRYPOINT")?.rest);
    let values: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(repository().join("charts/pod-safety/values.yaml"))?)?;
    let user = &values["controllers"]["fencing"]["agents"]["securityContext"]["runAsUser"];
    assert_eq!(agents.only("USER")?.rest, format!("{user}:{user}"));
    Ok(())
}

/// fence_virsh and all other agents that use ssh failed: "No user exists for uid 65531".
#[test]
fn bug_agents_that_use_ssh_had_a_user_without_a_name() -> Result<()> {
    let file = dockerfile()?;
    let agents = file.stages.iter().find(|stage| stage.name.as_deref() == Some("agents"));
    let agents = agents.context("no stage agents")?;
    let user = agents.only("USER")?.rest.split(':').next().unwrap_or_default().to_owned();
    let adds = format!("useradd --uid {user} --user-group --no-create-home --home-dir /tmp ");
    assert!(agents.only("RUN")?.rest.contains(&adds), "no {adds}");
    Ok(())
}

#[test]
fn no_argument_or_variable_holds_a_secret() -> Result<()> {
    let file = dockerfile()?;
    let lines = file.stages.iter().flat_map(|stage| stage.all("ARG").chain(stage.all("ENV")));
    let names = lines
        .flat_map(|line| line.rest.split_whitespace().map(|word| word.split('=').next().unwrap_or(word)))
        .chain(file.arguments.iter().map(|(name, _)| name.as_str()));
    for name in names.map(str::to_ascii_uppercase) {
        for word in ["SECRET", "TOKEN", "PASSWORD", "PASSWD", "CREDENTIAL", "KEY"] {
            ensure!(!name.contains(word), "{name} would stay in the image's history: use RUN --mount=type=secret");
        }
    }
    Ok(())
}

#[test]
fn add_is_rejected() {
    let refusal = Dockerfile::parse("FROM scratch\nADD https://example.org/a /a\n").err();
    assert!(refusal.is_some_and(|error| error.to_string().contains("ADD")), "ADD can fetch anything");
}

#[test]
fn downloads_and_build_output_are_cached_between_builds() -> Result<()> {
    let file = dockerfile()?;
    let build = file.stages.first().context("no stage")?;
    let mounts: Vec<&str> = build.only("RUN")?.option("mount").collect();
    for target in ["/usr/local/cargo/registry", "/src/target"] {
        let cached = |mount: &&str| mount.starts_with("type=cache,") && mount.contains(&format!("target={target},"));
        ensure!(mounts.iter().any(cached), "no cache mount for {target} among {mounts:?}");
    }
    Ok(())
}

#[test]
fn build_context_has_only_what_cargo_reads() -> Result<()> {
    let text = std::fs::read_to_string(repository().join(".dockerignore"))?;
    let rules: Vec<&str> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert_eq!(rules.first(), Some(&"*"), "first all is left out, then what is needed is let in");
    let let_in: Vec<&str> = rules.iter().filter_map(|rule| rule.strip_prefix('!')).collect();
    assert_eq!(let_in, ["Cargo.toml", "Cargo.lock", "controllers", "devices", "shared", "charts", "tests"]);
    for below in ["**/target", "**/.git", "**/.cache"] {
        let position = rules.iter().position(|rule| *rule == below).with_context(|| format!("{below} is let in"))?;
        ensure!(rules[position..].iter().all(|rule| !rule.starts_with('!')), "a later rule may let {below} in again");
    }
    Ok(())
}

#[test]
fn the_image_is_built_by_the_compiler_that_developers_use() -> Result<()> {
    let toolchain = manifest("rust-toolchain.toml")?;
    let channel = toolchain["toolchain"]["channel"].as_str().context("no channel")?;
    let file = dockerfile()?;
    let base = &file.stages.first().context("no stage")?.base;
    ensure!(base.starts_with(&format!("rust:{channel}-")), "{base} is not Rust {channel}");
    Ok(())
}

/// The SBOM of the image was empty: a scanner finds nothing in a stripped binary. `build` checks the result.
#[test]
fn bug_released_binaries_embed_their_crate_list() -> Result<()> {
    const INSTALL: &str =
        r#"RUSTFLAGS="" cargo install --quiet --locked --version 0.7.7 --root target/tools cargo-auditable"#;
    let run = dockerfile()?.stages.first().context("no stage")?.only("RUN")?.rest.clone();
    let release = std::fs::read_to_string(repository().join(".github/workflows/release.yml"))?;
    for (place, text) in [("Dockerfile", run), ("release.yml", release)] {
        ensure!(text.contains(INSTALL), "{place} does not install cargo-auditable of that version");
        let builds = text.contains("target/tools/bin/cargo-auditable auditable build --package pod-safety ");
        ensure!(builds && !text.contains("cargo build"), "{place} builds without cargo-auditable");
    }
    Ok(())
}

#[test]
fn labels_equal_the_manifest() -> Result<()> {
    let cargo = manifest("Cargo.toml")?;
    let package = &cargo["workspace"]["package"];
    let file = dockerfile()?;
    let last = file.last()?;
    let labels: BTreeMap<_, _> = last.only("LABEL")?.pairs()?.into_iter().collect();
    let label = |name: &str| labels.get(&format!("org.opencontainers.image.{name}")).map(String::as_str);
    assert_eq!(label("title"), Some("pod-safety"));
    assert_eq!(label("source"), package["repository"].as_str());
    assert_eq!(label("licenses"), package["license"].as_str());
    assert_eq!(label("version"), Some("${VERSION}"));
    assert_eq!(label("revision"), Some("${REVISION}"));
    let version = last.all("ARG").find_map(|arg| arg.rest.strip_prefix("VERSION="));
    assert_eq!(version, package["version"].as_str());
    let binary = manifest("controllers/Cargo.toml")?;
    assert_eq!(label("description"), binary["package"]["description"].as_str());
    Ok(())
}

fn manifest(path: impl AsRef<Path>) -> Result<toml::Table> {
    Ok(std::fs::read_to_string(repository().join(path))?.parse()?)
}

/// `1.95.0-bookworm` is one; `1`, `1.95`, `slim` are not.
fn is_full_version(tag: &str) -> bool {
    let version = tag.split('-').next().unwrap_or_default();
    let numbers: Vec<&str> = version.split('.').collect();
    numbers.len() == 3 && numbers.iter().all(|number| number.parse::<u32>().is_ok())
}
