//! Programs that must not compile: forged evidence, evidence that is used twice, a force delete without evidence.
//!
//! One program per attempt, `tests/locks/refused/<what_it_tries>.rs`, named in Cargo.toml. Above each line that must fail is the
//! expected error, `//~v E0603 module `act` is private`. The message matters: a program may also fail to compile for an unrelated reason
//! (a typing error, a moved module).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use pod_safety_locks::refused::refusals;
use pod_safety_locks::{Source, manifest, texts};

/// At least this many attempts to bypass the deletion authority must exist.
const MIN_FILES: usize = 10;

/// Marks an expected error, on the line above.
const REFUSED: &str = "//~v ";

#[test]
fn forbidden_code_does_not_compile() -> Result<()> {
    let (mut programs, mut expected) = (Vec::new(), BTreeSet::new());
    for (program, source) in attempts()? {
        let before = expected.len();
        for (above, text) in (1..).zip(source.text.lines()) {
            let refusal = text.trim_start().strip_prefix(REFUSED);
            expected.extend(refusal.map(|refusal| (program.clone(), above + 1, refusal.to_owned())));
        }
        ensure!(expected.len() > before, "{} says of no line that it is refused", source.path);
        programs.push(program);
    }
    ensure!(programs.len() >= MIN_FILES, "attempts are missing: {programs:?}");
    let reported = refusals(&programs)?.into_iter().filter(|one| one.is_of_the_language()).map(|one| {
        let code = one.code.map(|code| format!("{code} ")).unwrap_or_default();
        (one.program, one.line, code + &one.message)
    });
    let reported: BTreeSet<_> = reported.collect();
    ensure!(
        reported == expected,
        "refused otherwise: {:#?}\nexpected: {:#?}",
        reported.difference(&expected).collect::<Vec<_>>(),
        expected.difference(&reported).collect::<Vec<_>>()
    );
    Ok(())
}

/// Name and file of each, without the program that violates the lints.
fn attempts() -> Result<Vec<(String, Source)>> {
    let manifest = manifest("tests/locks/Cargo.toml")?;
    let programs = manifest["bin"].as_array().context("bin")?.iter().filter_map(|bin| {
        let (name, path) = (bin["name"].as_str()?, bin["path"].as_str()?);
        Some((format!("tests/locks/{path}"), name.to_owned()))
    });
    let mut programs: BTreeMap<_, _> = programs.filter(|(_, name)| name != "lints").collect();
    let mut attempts = Vec::new();
    for file in texts(&["tests/locks/refused"], &["rs"])? {
        if !file.path.contains("/lints/") {
            let name = programs.remove(&file.path);
            attempts.push((name.with_context(|| format!("{} is not named in Cargo.toml", file.path))?, file));
        }
    }
    ensure!(programs.is_empty(), "Cargo.toml names what is not in refused/: {programs:?}");
    Ok(attempts)
}
