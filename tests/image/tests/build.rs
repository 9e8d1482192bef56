//! Builds the image, and runs the binary with only the image's root folder, as the user of the image.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use object::elf::{FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, elf};
use pod_safety_image::{Image, build, repository};

/// During an outage each node to which the leader may move pulls the image.
const MAX_BYTES: u64 = 30 * 1024 * 1024;

/// One test, because each step needs the one before, and the first takes minutes.
#[test]
fn the_dockerfile_builds_an_image_that_runs() -> Result<()> {
    let Image { root, user, .. } = build()?;
    assert_eq!(files_below(&root)?, [root.join("pod-safety"), root.join("pod-safety-agent")], "more than its binaries");
    let binary = fs::read(root.join("pod-safety"))?;
    ensure!((binary.len() as u64) < MAX_BYTES, "{} bytes", binary.len());
    ensure!(is_static(&binary)?, "the binary asks for a dynamic loader, and scratch has none");

    names_its_crates(&binary)?;

    let output = run_in(&root, &user, &["version"])?;
    ensure!(output.status.success(), "pod-safety version: {output:?}");
    for command in ["demo", "simulate"] {
        let output = run_in(&root, &user, &[command, "--help"])?;
        ensure!(output.status.code() == Some(2), "the image has {command}, and so a simulator: {output:?}");
    }
    Ok(())
}

#[test]
fn a_dynamic_binary_is_detected() -> Result<()> {
    ensure!(!is_static(&fs::read(std::env::current_exe()?)?)?, "this test itself is dynamic");
    Ok(())
}

/// Scanners find crates by the data that cargo-auditable embeds in the binary. Without it the SBOM of the image was empty.
fn names_its_crates(binary: &[u8]) -> Result<()> {
    let text = auditable_info::json_from_slice(binary, 8 << 20)?;
    let lock: toml::Table = fs::read_to_string(repository().join("Cargo.lock"))?.parse()?;
    for name in ["rustls", "kube-client", "pod-safety-shared"] {
        let locked = lock["package"].as_array().context("no packages")?.iter();
        let mut versions = locked.filter(|one| one["name"].as_str() == Some(name)).map(|one| &one["version"]);
        let version = versions.next().and_then(toml::Value::as_str).context(name)?;
        let named = format!(r#"{{"name":"{name}","version":"{version}""#);
        ensure!(text.contains(&named), "the binary does not name {name} {version}: {text}");
    }
    Ok(())
}

fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { files.extend(files_below(&path)?) } else { files.push(path) }
    }
    files.sort();
    Ok(files)
}

fn is_static(binary: &[u8]) -> Result<bool> {
    let header = FileHeader64::<Endianness>::parse(binary)?;
    let endian = header.endian()?;
    ensure!(header.e_type(endian) != elf::ET_REL, "not an executable");
    let segments = header.program_headers(endian, binary)?;
    Ok(segments.iter().all(|segment| segment.p_type(endian) != PT_INTERP))
}

/// Runs the image's binary in the image's root folder.
fn run_in(root: &Path, user: &str, arguments: &[&str]) -> Result<Output> {
    // A user without root rights gets a user namespace with its own user ID.
    let is_root = Command::new("id").arg("-u").output()?.stdout == b"0\n";
    let mut command = Command::new(if is_root { "chroot" } else { "unshare" });
    if is_root {
        command.arg(format!("--userspec={user}"));
    } else {
        command.args(["--map-root-user", "chroot"]);
    }
    Ok(command
        .arg(root)
        .arg("/pod-safety")
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .output()?)
}
