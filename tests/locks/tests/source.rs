//! Source checks that clippy cannot do.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use pod_safety_locks::{Source, repository, sources};

/// Spelled so that this file does not find itself.
const SELECT: &str = concat!("select", "!");
/// The crate of the simulated cluster, and the path from its transport to a client.
const SIMULATOR: &str = "pod_safety_simulator";
const CLIENT: &str = "Door";
/// The crate that reaches fence devices.
const DEVICES: &str = "pod_safety_devices";
const EXPECT: &str = concat!("expect(clippy::", "disallowed_methods");

/// The places that hold the writing client and may use kube's banned writing methods.
const WRITES: [&str; 2] = ["shared/src/authority/", "shared/client/src/"];

/// The places outside of tests that may access the real environment, and why.
const REAL_WORLD: [&str; 2] = [
    "shared/clock/src/lib.rs", // reads the machine's clocks, starts tasks on the real runtime
    "controllers/src/main.rs", // joins the two to everything else
];

#[test]
fn every_select_is_biased() -> Result<()> {
    let mut count = 0;
    for Source { path, text } in sources()? {
        for (number, body) in selects(&text) {
            count += 1;
            ensure!(body.starts_with("biased;"), "{path}:{number}: begin with `biased;`, most urgent branch first");
        }
    }
    println!("{count} uses");
    Ok(())
}

#[test]
fn an_unbiased_select_is_detected() {
    let body = |text: &str| {
        selects(&text.replace("choose!", SELECT)).into_iter().map(|(_, body)| body.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(body("tokio::choose! {\n    biased;\n    x"), ["biased;\n    x"]);
    assert_eq!(body("tokio::choose! { x = y => {} }"), ["x = y => {} }"]);
    assert_eq!(body("tokio::choose!(x = y => {})"), ["x = y => {})"]);
    assert!(body("// never choose! without a bias\n/// nor choose! here").is_empty());
}

#[test]
fn only_the_places_named_here_break_a_ban() -> Result<()> {
    for Source { path, text } in sources()? {
        let product = ["shared/", "devices/", "controllers/"].iter().any(|folder| path.starts_with(folder));
        let tests = path.ends_with("/tests.rs") || path.contains("/tests/") || path.contains("/benches/");
        let named = WRITES.iter().any(|place| path.starts_with(place)) || REAL_WORLD.contains(&path.as_str());
        ensure!(
            !product || tests || named || !text.contains(EXPECT),
            "{path} breaks a ban of clippy.toml: move that into the authority, the clock or the spawner"
        );
    }
    Ok(())
}

/// Controllers may not use what the crates below them may use, so those crates must not re-export it.
#[test]
fn no_crate_below_controllers_exposes_a_client() -> Result<()> {
    let below = |source: &Source| ["shared/", "devices/src/"].iter().any(|path| source.path.starts_with(path));
    for Source { path, text } in sources()?.into_iter().filter(below) {
        for (number, line) in numbered(&text) {
            let clients = ["kube", "k8s_openapi", "hyper", "hyper_util", "tokio_rustls", "tower", "http"];
            let hands_on = clients.into_iter().any(|krate| {
                let named = |form: &str| {
                    line.starts_with(&format!("{form} {krate}::")) || line.starts_with(&format!("{form} {krate};"))
                };
                named("pub use") || named("pub extern crate")
            });
            ensure!(!hands_on, "{path}:{number}: controllers could reach the cluster by this: {line}");
        }
    }
    Ok(())
}

/// Code that reaches fence devices can send requests, so controllers use it for wiring only: a decision goes through the transport trait
/// (`shared/transport`), and an order is made only where the authority has recorded its intent.
#[test]
fn only_the_process_names_the_devices() -> Result<()> {
    for Source { path, text } in sources()? {
        let wiring = path.starts_with("controllers/process/");
        let outside = path.starts_with("shared/") || path.starts_with("controllers/") && !wiring;
        ensure!(!outside || !text.contains(DEVICES), "{path} reaches devices past the seam");
    }
    Ok(())
}

/// The simulator depends on kube for its tests. Controllers use only its demonstration, which has no cluster to write to; they must not
/// reach a client through it.
#[test]
fn only_the_demonstration_names_the_simulator() -> Result<()> {
    let mut count = 0;
    for Source { path, text } in sources()?.into_iter().filter(|source| source.path.starts_with("controllers/")) {
        let named = text.contains(SIMULATOR);
        let allowed = path.starts_with("controllers/src/demo/");
        ensure!(allowed || !named, "{path} names the simulator");
        ensure!(!text.contains(CLIENT), "{path} takes a client out of a door");
        count += usize::from(named);
    }
    ensure!(count > 0, "the demonstration has moved");
    Ok(())
}

/// Line number and text after the opening bracket of each `select!` that is not in a comment.
fn selects(text: &str) -> Vec<(usize, &str)> {
    let mut matches = Vec::new();
    for (at, _) in text.match_indices(SELECT) {
        let before = &text[..at];
        let line = before.rsplit('\n').next().unwrap_or_default();
        let behind = text[at + SELECT.len()..].trim_start();
        if let (false, Some(body)) = (line.contains("//"), behind.strip_prefix(['{', '(', '['])) {
            matches.push((before.matches('\n').count() + 1, body.trim_start()));
        }
    }
    matches
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().map(str::trim).enumerate().map(|(index, line)| (index + 1, line))
}

/// The threat model names each attack test, and no other.
#[test]
fn the_threat_model_names_the_attacks_that_are_played() -> Result<()> {
    let is_of_a_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    let names = |text: &str, before: &str| -> BTreeSet<String> {
        let ends = |rest: &str| rest.find(|letter| !is_of_a_name(letter)).unwrap_or(rest.len());
        text.split(before).skip(1).map(|rest| rest.get(..ends(rest)).unwrap_or_default().to_owned()).collect()
    };
    let declared = concat!("fn ", "attack_");
    let played: BTreeSet<String> = sources()?.iter().flat_map(|source| names(&source.text, declared)).collect();
    let page = std::fs::read_to_string(repository().join("docs/threat-model.md"))?;
    ensure!(played.len() > 20, "only {played:?} were found");
    assert_eq!(names(&page, "`attack_"), played);
    Ok(())
}
