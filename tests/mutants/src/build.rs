//! Compiles a crate with its mutants in it. What the compiler does not take in its place is left out, and the rest is
//! compiled again, until it takes all that is left.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::{Deserializer, Value};

use crate::list::Mutant;
use crate::schema::Schema;

/// Each round finds what one phase of the compiler refuses, and there are few phases.
const ROUNDS: usize = 20;

/// Not warned about: what follows from mutants and says nothing about them.
const FIRST: &str = "#![allow(warnings, unused_must_use)] ";
/// Says which mutant is chosen, and writes down which are asked for. Added to each crate.
const HOOK: &str = include_str!("hook.rs");

/// A test program.
pub(crate) struct Program {
    /// Of which package's tests it is.
    pub(crate) package: &'static str,
    pub(crate) path: PathBuf,
    /// Where its tests expect to be started.
    pub(crate) folder: PathBuf,
}

#[derive(Deserialize)]
struct Message {
    level: String,
    message: String,
    rendered: Option<String>,
    spans: Vec<Span>,
    children: Vec<Message>,
}

#[derive(Deserialize)]
struct Span {
    file_name: String,
    byte_start: usize,
    is_primary: bool,
}

/// Copies the repository, but for what git ignores. Files that are as they were keep their age.
///
/// # Errors
/// If git or the disk fails.
pub(crate) fn copy(repository: &Path, to: &Path) -> Result<()> {
    for (file, bytes) in files(repository, &["."])? {
        write(&to.join(file), &bytes)?;
    }
    Ok(())
}

/// The files below `folders`, with what is in them, but for what git ignores.
///
/// # Errors
/// If git fails.
pub(crate) fn files(repository: &Path, folders: &[&str]) -> Result<Vec<(String, Vec<u8>)>> {
    let list = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"])
        .args(folders)
        .current_dir(repository)
        .output()?;
    let names = String::from_utf8(list.stdout)?;
    // A file that was deleted is in git's list until that is committed.
    let read = |file: &str| Some((file.to_owned(), std::fs::read(repository.join(file)).ok()?));
    Ok(names.split_terminator('\0').filter_map(read).collect())
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if std::fs::read(path).is_ok_and(|before| before == bytes) {
        return Ok(());
    }
    std::fs::create_dir_all(path.parent().context("a file has a folder")?)?;
    std::fs::write(path, bytes).with_context(|| path.display().to_string())
}

/// Compiles the unit tests of `package` in `tree` into `target`, with all its `mutants` that the compiler takes, and says
/// which those are. Those in `refused` are known not to compile. Then the tests of its `users`.
///
/// # Errors
/// If it does not compile without mutants, or an error cannot be laid to one.
pub(crate) fn build(
    tree: &Path,
    target: &Path,
    (package, folder): (&'static str, &str),
    users: &[(&'static str, &str)],
    mutants: &[&Mutant],
    mut refused: BTreeSet<usize>,
) -> Result<(Vec<Program>, BTreeSet<usize>)> {
    let mut files: BTreeMap<&str, Vec<&Mutant>> = BTreeMap::new();
    for mutant in mutants {
        files.entry(&mutant.file).or_default().push(mutant);
    }
    let folder = tree.join(folder);
    let root = folder.join("src/lib.rs");
    let library = std::fs::read_to_string(&root)?;
    write(&root, format!("{FIRST}{library}\n{HOOK}").as_bytes())?;
    let sources = files
        .into_iter()
        .map(|(file, mutants)| Ok((file, mutants, std::fs::read_to_string(tree.join(file))?)))
        .collect::<Result<Vec<_>>>()?;

    let mut constant = BTreeSet::new();
    for _ in 0..ROUNDS {
        let mut schemas = BTreeMap::new();
        for (file, mutants, source) in &sources {
            let left: Vec<_> = mutants.iter().copied().filter(|one| !refused.contains(&one.number)).collect();
            let schema = Schema::new(source, &left, &constant).with_context(|| (*file).to_owned())?;
            write(&tree.join(file), schema.text.as_bytes())?;
            schemas.insert((*file).to_owned(), schema);
        }
        let (program, errors) = compile(tree, target, package)?;
        let mut found = errors;
        if let Some(path) = program {
            let mut programs = vec![Program { package, path, folder: folder.clone() }];
            // Users link the crate without its tests, and then some mutants may not compile.
            for (package, folder) in users {
                let (path, errors) = compile(tree, target, package)?;
                programs.extend(path.map(|path| Program { package, path, folder: tree.join(folder) }));
                found = errors;
                if !found.is_empty() {
                    break;
                }
            }
            if found.is_empty() {
                return Ok((programs, schemas.values().flat_map(Schema::mutants).collect()));
            }
        }
        eprintln!("{package}: {} errors of the compiler", found.len());
        for error in found {
            match (blamed(&error, &schemas), called_in_constant(&error)) {
                (_, Some(function)) => _ = constant.insert(function),
                (Some(mutant), None) => _ = refused.insert(mutant),
                (None, None) => {
                    bail!("no mutant explains this:\n{}", error.rendered.unwrap_or(error.message))
                }
            }
        }
    }
    bail!("{package} does not compile after {ROUNDS} rounds")
}

/// The mutant where the compiler points first or, if there is none, where it points next.
fn blamed(error: &Message, schemas: &BTreeMap<String, Schema>) -> Option<usize> {
    let all: Vec<&Span> =
        error.spans.iter().chain(error.children.iter().flat_map(|child| &child.spans)).collect();
    let (first, next): (Vec<_>, Vec<_>) = all.into_iter().partition(|span| span.is_primary);
    first.into_iter().chain(next).find_map(|span| schemas.get(&span.file_name)?.at(span.byte_start))
}

/// The name of a function that was a const fn, and must stay one.
fn called_in_constant(error: &Message) -> Option<String> {
    let call = error.message.strip_prefix("cannot call non-const ")?.split('`').nth(1)?;
    call.split("::").last().map(|name| name.split('<').next().unwrap_or(name).to_owned())
}

/// The test program, or what the compiler has against it.
fn compile(tree: &Path, target: &Path, package: &str) -> Result<(Option<PathBuf>, Vec<Message>)> {
    // Cargo knows a crate by its place in its workspace and by its profile: with a number of units that nothing else has, these crates
    // are none of those of every day, and what they use from outside is the same.
    let apart = |of: &str| {
        [
            format!("--config=profile.test.package.{of}.opt-level=0"),
            format!("--config=profile.test.package.{of}.codegen-units=17"),
        ]
    };
    let output = Command::new(env!("CARGO"))
        .args([
            "test",
            "--quiet",
            "--no-run",
            "--lib",
            "--no-default-features",
            "--locked",
            "--message-format=json",
        ])
        .args(["--package", package])
        .args(crate::USERS.iter().chain(&crate::OTHERS).flat_map(|(package, _)| apart(package)))
        .arg("--target-dir")
        .arg(target)
        .current_dir(tree)
        .stderr(Stdio::inherit())
        .output()?;
    let (mut program, mut errors) = (None, Vec::new());
    for line in Deserializer::from_slice(&output.stdout).into_iter::<Value>() {
        let mut line = line.context("cargo's messages")?;
        if let Some(path) = line["executable"].as_str() {
            program = Some(PathBuf::from(path));
        } else if line["reason"] == "compiler-message" {
            let message: Message = serde_json::from_value(line["message"].take())?;
            errors.extend(Some(message).filter(|it| it.level == "error" && !it.spans.is_empty()));
        }
    }
    if !output.status.success() && errors.is_empty() {
        bail!("cargo could not build {package}");
    }
    Ok((program.filter(|_| output.status.success()), errors))
}
