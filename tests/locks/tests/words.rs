//! Checks program output in goldens, pages and test expectations: verbs agree with their number, no negative counts, no cause that is
//! named twice, and no terms of a library.

use anyhow::{Result, ensure};
use pod_safety_locks::{Source, repository, sources, texts};

/// Nouns that are counted.
const COUNTED: [&str; 16] = [
    "pods",
    "nodes",
    "budgets",
    "devices",
    "volumes",
    "machines",
    "claims",
    "seconds",
    "minutes",
    "hours",
    "days",
    "attempts",
    "writes",
    "leases",
    "evictions",
    "objects",
];

/// Terms that only a programmer knows.
const OF_LIBRARIES: [&str; 6] = ["ServiceError", "(os error", "client error (", "(Connect)", "'\"", "tunnel error"];

/// Files that contain refused phrases in order to refuse them.
const NOT_READ: [&str; 5] = [
    "tests/locks/tests/words.rs",
    "shared/client/src/cause.rs",
    "shared/client/src/cause/tests.rs",
    "shared/client/src/corpus.rs",
    "shared/client/src/request.rs",
];

#[test]
fn program_output_has_no_odd_wording() -> Result<()> {
    let mut all = texts(&["docs", "controllers", "shared", "devices", "tests/control-plane/golden"], &["txt", "md"])?;
    all.extend(sources()?);
    ensure!(all.len() > 300, "{} files: not the whole tree", all.len());
    let places: Vec<String> =
        all.iter().filter(|source| !NOT_READ.contains(&&*source.path)).flat_map(odd_wording).collect();
    ensure!(places.is_empty(), "{}", places.join("\n"));
    ensure!(NOT_READ.iter().all(|path| repository().join(path).exists()), "a file of the list is gone");
    Ok(())
}

#[test]
fn planted_wording_is_detected() {
    for (text, what) in [
        ("1 pods wait", "1 pods"),
        ("1 of its pods are not Ready", "1 of its pods are"),
        ("zone-a: 1 of 12 nodes are lost", "1 of 12 nodes are"),
        ("1 of 5 nodes of its zone are lost", "1 of 5 nodes are"),
        ("1 healthy - 2 needed = -1", "needed = -1"),
        ("no such thing (no such thing)", "no such thing (no such thing)"),
        ("cannot read: timed out: timed out", "timed out: timed out"),
        ("404 : 404 page not found", "404 : "),
        ("ServiceError: client error (Connect)", "ServiceError"),
    ] {
        let places = odd_wording(&Source { path: "a.txt".to_owned(), text: text.to_owned() });
        assert!(places.first().is_some_and(|line| line.contains(what)), "{text}: {places:?}");
    }
    for good in
        ["11 pods are", "v1 pods", "a (b)", "1 of 2 nodes is lost", "x: y: x", "kubectl get pods -1", "0.1 seconds"]
    {
        assert!(odd_wording(&Source { path: "a.txt".to_owned(), text: good.to_owned() }).is_empty(), "{good}");
    }
}

/// The problems in the text of a file; in a source only string literals count.
fn odd_wording(source: &Source) -> Vec<String> {
    let is_code = source.path.ends_with(".rs");
    let mut problems = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        // Output of kubectl is recorded unchanged.
        if line.starts_with("kubectl ") || is_code && line.trim_start().starts_with("//") {
            continue;
        }
        let quoted: Vec<&str> = if is_code { line.split('"').skip(1).step_by(2).collect() } else { vec![line] };
        for text in quoted {
            problems.extend(of_line(text).map(|what| format!("{}:{}: {what}", source.path, number + 1)));
        }
    }
    problems
}

fn of_line(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split([' ', '`', '|', ',', '.', '(']).filter(|word| !word.is_empty()).collect();
    for (at, _) in words.iter().enumerate().filter(|(_, word)| **word == "1") {
        let behind = &words[at..];
        match behind {
            ["1", noun, ..] if COUNTED.contains(noun) && !text.contains(".1 ") => {
                return Some(format!("1 {noun}"));
            }
            ["1", "of", of, noun, rest @ ..] => {
                let verb = rest.iter().take(4).find(|word| ["is", "has", "are", "have"].contains(*word));
                if let Some(verb @ (&"are" | &"have")) = verb {
                    return Some(format!("1 of {of} {noun} {verb}"));
                }
            }
            _ => {}
        }
    }
    let below_zero = ["healthy = -", "needed = -", "left = -", "allowed = -"].iter().find_map(|sum| {
        let (_, rest) = text.split_once(sum)?;
        rest.starts_with(|digit: char| digit.is_ascii_digit()).then(|| format!("{sum}{}", &rest[..1]))
    });
    let of_library = OF_LIBRARIES.iter().find(|word| text.contains(**word)).map(|word| (*word).to_owned());
    below_zero.or(of_library).or_else(|| without_reason(text)).or_else(|| twice(text))
}

/// A status code without its reason.
fn without_reason(text: &str) -> Option<String> {
    let (before, _) = text.split_once(" : ")?;
    let code = before.rsplit(' ').next()?;
    (code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_digit())).then(|| format!("{code} : "))
}

/// `X (X)` and `X: X`, of two words or more.
fn twice(text: &str) -> Option<String> {
    let parts: Vec<&str> = text.split(": ").collect();
    let same = parts.windows(2).find(|pair| pair[0] == pair[1] && pair[0].contains(' '));
    let in_brackets = text.split_once(" (").and_then(|(before, rest)| {
        let inner = rest.split(')').next().unwrap_or_default();
        (inner.contains(' ') && before.ends_with(inner)).then(|| format!("{inner} ({inner})"))
    });
    same.map(|pair| format!("{0}: {0}", pair[0])).or(in_brackets)
}
