//! Helpers for the tests of this crate: the manifests, sources and pages of the repository.

pub mod documents;
pub mod records;
pub mod refused;
pub mod workflows;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use toml::Table;

/// The root of the repository.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// A TOML file of the repository, by its path from the root.
///
/// # Errors
/// If it cannot be read or is not TOML.
pub fn manifest(path: impl AsRef<Path>) -> Result<Table> {
    let path = repository().join(path);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    text.parse().with_context(|| path.display().to_string())
}

/// The folders of the workspace's members, as the root manifest lists them.
///
/// # Errors
/// If the list holds anything but plain paths.
pub fn members() -> Result<Vec<String>> {
    let root = manifest("Cargo.toml")?;
    let members = root["workspace"]["members"].as_array().context("members")?;
    let paths = members.iter().map(|path| path.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>();
    let paths = paths.context("a member is not a string")?;
    ensure!(paths.iter().all(|path| !path.contains('*')), "list each member by name: {paths:?}");
    Ok(paths)
}

/// A file of the repository: its path from the root, and its text.
#[derive(Clone, Debug)]
pub struct Source {
    /// With `/` between folders.
    pub path: String,
    /// Its full text.
    pub text: String,
}

/// Every Rust source of every member, without build output and without the programs in `refused/`.
///
/// # Errors
/// If a folder or file cannot be read.
pub fn sources() -> Result<Vec<Source>> {
    let sources = texts(&members()?, &["rs"])?;
    ensure!(sources.len() > 10, "{} sources: not the whole tree", sources.len());
    Ok(sources)
}

/// These files, and the files below these folders with one of these endings, sorted by path. Build output and the programs in `refused/`
/// are left out.
///
/// # Errors
/// If a folder or file cannot be read.
pub fn texts<P: AsRef<Path>>(paths: &[P], endings: &[&str]) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for path in paths {
        let path = repository().join(path);
        if path.is_dir() { collect(&path, endings, &mut sources)? } else { add(&path, &mut sources)? }
    }
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    // The member `shared` has members in its own folder.
    sources.dedup_by(|one, other| one.path == other.path);
    Ok(sources)
}

fn collect(folder: &Path, endings: &[&str], sources: &mut Vec<Source>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let ending = path.extension().unwrap_or_default().to_string_lossy();
        if path.is_dir() && !["target", "refused", ".cache"].contains(&name.as_ref()) {
            collect(&path, endings, sources)?;
        } else if endings.contains(&ending.as_ref()) {
            add(&path, sources)?;
        }
    }
    Ok(())
}

fn add(path: &Path, sources: &mut Vec<Source>) -> Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    sources.push(Source { path: path.strip_prefix(repository())?.to_string_lossy().into_owned(), text });
    Ok(())
}

/// The path of a program that tests/install.sh installs into .cache/bin of the repository.
///
/// # Errors
/// If it is not there.
pub fn installed(program: &str) -> Result<PathBuf> {
    let path = repository().join(".cache/bin").join(program);
    ensure!(path.is_file(), "{} is missing: run tests/install.sh", path.display());
    Ok(path)
}
