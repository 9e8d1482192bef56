//! The hashes of files and folders; that of a file equals `git rev-parse COMMIT:FILE`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::repository;

/// git prints a hash for each file while it still reads file names: this many hashes fit into its pipe.
const AT_ONCE: usize = 500;

/// The hashes of the current files that `depends` names.
///
/// # Errors
/// If git is missing or this is no repository.
pub fn current(depends: &[String]) -> Result<BTreeMap<String, String>> {
    let mut arguments = vec!["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"];
    let places = places(depends);
    arguments.extend(places.iter().copied());
    let listed = output("git", &arguments)?;
    // A removed file is listed until the removal is committed.
    let files: Vec<&str> = listed.split('\0').filter(|path| repository().join(path).is_file()).collect();
    let mut hashed = Vec::new();
    for some in files.chunks(AT_ONCE) {
        let hashes = with_input(&["hash-object", "--no-filters", "--stdin-paths"], &some.join("\n"))?;
        hashed.extend(some.iter().map(|path| (*path).to_owned()).zip(hashes.lines().map(str::to_owned)));
    }
    folded(depends, hashed.into_iter())
}

/// The hashes of the files of a commit that `depends` names.
///
/// # Errors
/// If git does not have the commit.
pub fn of_commit(commit: &str, depends: &[String]) -> Result<BTreeMap<String, String>> {
    let mut arguments = vec!["ls-tree", "-r", "-z", commit, "--"];
    let places = places(depends);
    arguments.extend(places.iter().copied());
    let listed = output("git", &arguments)?;
    // MODE blob HASH<tab>PATH
    let files = listed.split('\0').filter_map(|line| {
        let (before, path) = line.split_once('\t')?;
        Some((path.to_owned(), before.rsplit(' ').next()?.to_owned()))
    });
    folded(depends, files)
}

fn places(depends: &[String]) -> Vec<&str> {
    depends.iter().map(|one| one.trim_end_matches('*')).collect()
}

/// One hash for each file, or for each folder that counts as one.
fn folded(depends: &[String], files: impl Iterator<Item = (String, String)>) -> Result<BTreeMap<String, String>> {
    let mut folders: BTreeMap<String, String> = BTreeMap::new();
    let mut hashes = BTreeMap::new();
    for (path, hash) in files {
        match depends.iter().find(|one| one.ends_with('/') && path.starts_with(one.as_str())) {
            Some(folder) => folders.entry(folder.clone()).or_default().push_str(&format!("{hash} {path}\n")),
            None => {
                hashes.insert(path, short(&hash));
            }
        }
    }
    for (folder, list) in folders {
        hashes.insert(folder, short(&with_input(&["hash-object", "--stdin"], &list)?));
    }
    Ok(hashes)
}

fn short(hash: &str) -> String {
    hash.chars().take(16).collect()
}

/// The output of a command in the root of the repository.
pub(super) fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let output =
        Command::new(program).args(arguments).current_dir(repository()).output().context(program.to_owned())?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {stderr}", arguments.join(" "));
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

fn with_input(arguments: &[&str], input: &str) -> Result<String> {
    let mut git = Command::new("git");
    git.args(arguments).current_dir(repository()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = git.spawn().context("git")?;
    child.stdin.take().context("stdin")?.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "git {}", arguments.join(" "));
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}
