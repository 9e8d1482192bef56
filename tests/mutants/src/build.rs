//! Compiles a crate with its mutants. Mutants that the compiler rejects in their place are removed, and the rest is compiled again,
//! until the compiler accepts all.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::{Deserializer, Value};

use crate::list::Mutant;
use crate::schema::Schema;

/// Each round finds what one phase of the compiler rejects, and there are few phases.
const ROUNDS: usize = 20;

/// Disables warnings, which would be about the mutants alone.
const FIRST: &str = "#![allow(warnings, unused_must_use)] ";
/// Selects the active mutant, and records which mutants are reached. Added to each crate.
const HOOK: &str = include_str!("hook.rs");

/// A test program.
pub(crate) struct Program {
    /// The package whose tests it has.
    pub(crate) package: &'static str,
    pub(crate) path: PathBuf,
    /// The working directory that its tests expect.
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

/// Copies the repository without ignored files. Unchanged files keep their modification time.
///
/// # Errors
/// If git or the disk fails.
pub(crate) fn copy(repository: &Path, to: &Path) -> Result<()> {
    for (file, bytes) in files(repository, &["."])? {
        write(&to.join(file), &bytes)?;
    }
    Ok(())
}

/// The files below `folders` with their content, without ignored files.
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
    // A deleted file is in git's list until the deletion is committed.
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

/// Compiles the unit tests of `package` in `tree` into `target` with all its `mutants` that the compiler accepts, and returns those.
/// Mutants in `refused` are known not to compile. Compiles the tests of its `users` after that.
///
/// # Errors
/// If it does not compile without mutants, or an error cannot be attributed to a mutant.
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
            let compiled: Vec<_> = mutants.iter().copied().filter(|one| !refused.contains(&one.number)).collect();
            let schema = Schema::new(source, &compiled, &constant).with_context(|| (*file).to_owned())?;
            write(&tree.join(file), schema.text.as_bytes())?;
            schemas.insert((*file).to_owned(), schema);
        }
        let (program, errors) = compile(tree, target, package)?;
        let mut errors_found = errors;
        if let Some(path) = program {
            let mut programs = vec![Program { package, path, folder: folder.clone() }];
            // Users link the crate without its tests, where some mutants may not compile.
            for (package, folder) in users {
                let (path, errors) = compile(tree, target, package)?;
                programs.extend(path.map(|path| Program { package, path, folder: tree.join(folder) }));
                errors_found = errors;
                if !errors_found.is_empty() {
                    break;
                }
            }
            if errors_found.is_empty() {
                return Ok((programs, schemas.values().flat_map(Schema::mutants).collect()));
            }
        }
        eprintln!("{package}: {} errors of the compiler", errors_found.len());
        for error in errors_found {
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

/// The mutant at the first place in the compiler's message or, if there is none, at the next one.
fn blamed(error: &Message, schemas: &BTreeMap<String, Schema>) -> Option<usize> {
    let all: Vec<&Span> = error.spans.iter().chain(error.children.iter().flat_map(|child| &child.spans)).collect();
    let (first, next): (Vec<_>, Vec<_>) = all.into_iter().partition(|span| span.is_primary);
    first.into_iter().chain(next).find_map(|span| schemas.get(&span.file_name)?.at(span.byte_start))
}

/// The name of a function that was a const fn and must remain one.
fn called_in_constant(error: &Message) -> Option<String> {
    let call = error.message.strip_prefix("cannot call non-const ")?.split('`').nth(1)?;
    call.split("::").last().map(|name| name.split('<').next().unwrap_or(name).to_owned())
}

/// The test program, or the compiler's error messages.
fn compile(tree: &Path, target: &Path, package: &str) -> Result<(Option<PathBuf>, Vec<Message>)> {
    // Cargo identifies a crate by its path in the workspace and by its profile. A codegen-units value that nothing else has keeps these
    // crates apart from the ordinary builds, while their external dependencies are shared.
    let apart = |of: &str| {
        [
            format!("--config=profile.test.package.{of}.opt-level=0"),
            format!("--config=profile.test.package.{of}.codegen-units=17"),
        ]
    };
    let output = Command::new(env!("CARGO"))
        .args(["test", "--quiet", "--no-run", "--lib", "--no-default-features", "--locked", "--message-format=json"])
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
