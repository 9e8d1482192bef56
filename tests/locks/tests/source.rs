//! What clippy cannot see, read from the sources.

use anyhow::{Result, ensure};
use pod_safety_locks::{Source, sources};

/// Spelled so that this file does not find itself.
const SELECT: &str = concat!("select", "!");
/// The crate of the simulated cluster, and the way from one of its doors to a client.
const SIMULATOR: &str = "pod_safety_simulator";
const CLIENT: &str = "Door";
const EXPECT: &str = concat!("expect(clippy::", "disallowed_methods");

/// The places that hold the write client and may break the bans on kube's writing methods.
const WRITES: [&str; 3] = ["shared/src/authority/", "shared/src/client.rs", "shared/src/client/"];

/// The places outside of tests that touch the real world, and why.
const REAL_WORLD: [&str; 2] = [
    "shared/src/clock.rs",     // reads the machine's clocks, starts tasks on the real runtime
    "controllers/src/main.rs", // joins the two to everything else
];

#[test]
fn every_select_is_biased() -> Result<()> {
    let mut found = 0;
    for Source { path, text } in sources()? {
        for (number, body) in selects(&text) {
            found += 1;
            ensure!(
                body.starts_with("biased;"),
                "{path}:{number}: begin with `biased;`, most urgent branch first"
            );
        }
    }
    println!("{found} uses");
    Ok(())
}

#[test]
fn an_unbiased_select_would_be_noticed() {
    let body = |text: &str| {
        selects(&text.replace("choose!", SELECT))
            .into_iter()
            .map(|(_, body)| body.to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(body("tokio::choose! {\n    biased;\n    x"), ["biased;\n    x"]);
    assert_eq!(body("tokio::choose! { x = y => {} }"), ["x = y => {} }"]);
    assert_eq!(body("tokio::choose!(x = y => {})"), ["x = y => {})"]);
    assert!(body("// never choose! without a bias\n/// nor choose! here").is_empty());
}

#[test]
fn only_the_places_named_here_break_a_ban() -> Result<()> {
    for Source { path, text } in sources()? {
        let product = path.starts_with("shared/") || path.starts_with("controllers/");
        let tests = path.ends_with("/tests.rs") || path.contains("/tests/") || path.contains("/benches/");
        let named = WRITES.iter().any(|place| path.starts_with(place)) || REAL_WORLD.contains(&path.as_str());
        ensure!(
            !product || tests || named || !text.contains(EXPECT),
            "{path} breaks a ban of clippy.toml: move that into the authority, the clock or the spawner"
        );
    }
    Ok(())
}

/// The second half of lock 1: what shared may name, controllers may not, so shared must not hand it on.
#[test]
fn shared_hands_no_client_on() -> Result<()> {
    for Source { path, text } in
        sources()?.into_iter().filter(|source| source.path.starts_with("shared/src/"))
    {
        for (number, line) in numbered(&text) {
            let hands_on = ["kube", "k8s_openapi", "hyper", "tower", "http"].into_iter().any(|krate| {
                let named = |form: &str| {
                    line.starts_with(&format!("{form} {krate}::"))
                        || line.starts_with(&format!("{form} {krate};"))
                };
                named("pub use") || named("pub extern crate")
            });
            ensure!(!hands_on, "{path}:{number}: controllers could reach the cluster by this: {line}");
        }
    }
    Ok(())
}

/// The simulator depends on kube for its tests' sake. What controllers get of it is the demonstration, which has
/// no cluster to write to; controllers must not reach a client by it.
#[test]
fn only_the_demonstration_names_the_simulator() -> Result<()> {
    let mut found = 0;
    for Source { path, text } in
        sources()?.into_iter().filter(|source| source.path.starts_with("controllers/src/"))
    {
        let named = text.contains(SIMULATOR);
        let allowed = path.starts_with("controllers/src/cli/demo/");
        ensure!(allowed || !named, "{path} names the simulator");
        ensure!(!text.contains(CLIENT), "{path} takes a client out of a door");
        found += usize::from(named);
    }
    ensure!(found > 0, "the demonstration has moved");
    Ok(())
}

/// Line number and what stands behind the opening bracket of each `select!` that is not in a comment.
fn selects(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(SELECT) {
        let before = &text[..at];
        let line = before.rsplit('\n').next().unwrap_or_default();
        let behind = text[at + SELECT.len()..].trim_start();
        if let (false, Some(body)) = (line.contains("//"), behind.strip_prefix(['{', '(', '['])) {
            found.push((before.matches('\n').count() + 1, body.trim_start()));
        }
    }
    found
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().map(str::trim).enumerate().map(|(index, line)| (index + 1, line))
}
