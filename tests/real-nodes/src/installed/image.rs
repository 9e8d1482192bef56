//! pod-safety's image, from the Dockerfile's stages, as an archive that containerd imports.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::machine;

/// The image name in the specs of pods.
pub(crate) const REPOSITORY: &str = "real-nodes.local/pod-safety";
pub(crate) const TAG: &str = "v1";

/// The folder that is the image's root.
pub(crate) fn root() -> PathBuf {
    folder().join("root")
}

/// The path of the archive, once it was created.
pub(crate) fn archive() -> PathBuf {
    folder().join("archive.tar")
}

fn folder() -> PathBuf {
    machine::scripts().join("../../../target/image")
}

/// Builds the image, which needs the network the first time, and packs it: one layer, and the config of its container.
pub(crate) fn pack() -> Result<()> {
    let image = pod_safety_image::build()?;
    let scratch = folder().join("archive");
    fs::create_dir_all(&scratch)?;
    let layer = scratch.join("layer.tar");
    let (root, whole) = (image.root.to_string_lossy(), scratch.to_string_lossy());
    let plain = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"];
    run("tar", &[&["-C", &root, "-cf", &layer.to_string_lossy()], &plain[..], &["."]].concat())?;
    let sum = run("sha256sum", &[&layer.to_string_lossy()])?;
    let sum = sum.split_whitespace().next().context("no checksum")?;
    let entrypoint: Value = serde_json::from_str(&image.entrypoint)?;
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = json!({
        "architecture": architecture, "os": "linux", "config": { "User": image.user, "Entrypoint": entrypoint },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{sum}")] },
    });
    let manifest =
        json!([{ "Config": "config.json", "RepoTags": [format!("{REPOSITORY}:{TAG}")], "Layers": ["layer.tar"] }]);
    fs::write(scratch.join("config.json"), config.to_string())?;
    fs::write(scratch.join("manifest.json"), manifest.to_string())?;
    run("tar", &["-C", &whole, "-cf", &archive().to_string_lossy(), "."])?;
    Ok(())
}

fn run(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program).args(args).output()?;
    ensure!(output.status.success(), "{program} {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The image's own program as a plugin of kubectl, in a folder for its PATH.
pub(crate) fn plugin(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    Ok(std::os::unix::fs::symlink(fs::canonicalize(root().join("pod-safety"))?, folder.join("kubectl-pod_safety"))?)
}
