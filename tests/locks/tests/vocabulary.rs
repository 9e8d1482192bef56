//! Identifiers, test names and comments use the words of Kubernetes and kube-rs. What is left of other words is counted in
//! `vocabulary.txt`, and the counts only shrink.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use pod_safety_locks::{Source, repository, sources};

/// A word that is counted, and what to write instead.
const WORDS: [(&str, &str); 24] = [
    ("anew", "redecide, restart, recreate"),
    ("beat", "heartbeat"),
    ("beats", "heartbeats"),
    ("bell", "notify"),
    ("courtesy", "medik8s_lease"),
    ("fate", "disposition"),
    ("glance", "decode_partial"),
    ("heard", "last_report, reported_at"),
    ("hears", "receives"),
    ("lane", "priority_level, flow"),
    ("nobody", "name the actor, or use the passive"),
    ("ours", "own, managed_by_us"),
    ("people", "operators"),
    ("said", "message, output, reported"),
    ("says", "states, reports"),
    ("silence", "unreachable_for"),
    ("silent", "unreachable, not_reporting"),
    ("somebody", "name the actor, or use the passive"),
    ("stake", "impact"),
    ("tell", "record, emit_event, notify"),
    ("told", "recorded, notified"),
    ("twins", "kcm_conflicts"),
    ("whoever", "name the actor"),
    ("wish", "request"),
];

/// Functions with one of these names say neither what they do nor what they return.
const NAMES: [&str; 10] = ["ended", "found", "heard", "left", "look", "of", "said", "shown", "told", "words"];

const COUNTS: &str = "tests/locks/vocabulary.txt";

type Counts = BTreeMap<(&'static str, String), usize>;

#[test]
fn other_words_than_the_field_s_only_become_fewer() -> Result<()> {
    let path = repository().join(COUNTS);
    let counted = count(&sources()?);
    let recorded = std::fs::read_to_string(&path).context(COUNTS)?;
    let most = parse(&recorded)?;
    let more: Vec<String> = counted
        .iter()
        .filter(|(key, count)| most.get(*key).is_none_or(|most| *count > most))
        .map(|((area, word), count)| format!("{area}: {word} stands {count} times; write {}", instead(word)))
        .collect();
    ensure!(more.is_empty(), "more than {COUNTS} has:\n{}", more.join("\n"));
    // The file is the record of this tree: a lower count is written down, so that it cannot rise again.
    let now = render(&counted);
    if std::env::var_os("POD_SAFETY_WRITE_GOLDEN").is_some() {
        return std::fs::write(&path, now).context(COUNTS);
    }
    ensure!(now == recorded, "fewer than {COUNTS} has: write it with POD_SAFETY_WRITE_GOLDEN=1");
    Ok(())
}

#[test]
fn planted_words_are_counted() {
    let text = "// Nobody `said` it.\nfn of(said: u8) { let last_heard = \"nobody told\"; SaidSo }\n/// As told\n";
    let source = Source { path: "shared/x.rs".to_owned(), text: text.to_owned() };
    let counts: Vec<String> =
        count(&[source]).into_iter().map(|((area, word), count)| format!("{area} {word} {count}")).collect();
    assert_eq!(
        counts,
        ["comments nobody 1", "comments told 1", "functions of 1", "identifiers heard 1", "identifiers said 2"]
    );
}

fn instead(word: &str) -> &'static str {
    WORDS
        .iter()
        .find(|(listed, _)| *listed == word)
        .map_or("a verb, or the noun that it returns", |(_, instead)| instead)
}

fn count(sources: &[Source]) -> Counts {
    let mut counts = Counts::new();
    for source in sources.iter().filter(|source| !source.path.ends_with("locks/tests/vocabulary.rs")) {
        for line in source.text.lines() {
            let (code, comment) = split(line);
            let mut add = |area, word: &str| *counts.entry((area, word.to_owned())).or_default() += 1;
            for word in comment.split(|letter: char| !letter.is_alphanumeric()) {
                let word = word.to_ascii_lowercase();
                if is_listed(&word) {
                    add("comments", &word);
                }
            }
            for name in code.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')) {
                segments(name).filter(|segment| is_listed(segment)).for_each(|segment| add("identifiers", &segment));
            }
            if let Some((_, rest)) = code.split_once("fn ")
                && let Some(name) =
                    NAMES.iter().find(|name| rest.strip_prefix(**name).is_some_and(|rest| rest.starts_with(['(', '<'])))
            {
                add("functions", name);
            }
        }
    }
    counts
}

fn is_listed(word: &str) -> bool {
    WORDS.iter().any(|(listed, _)| *listed == word)
}

/// The parts of a name in snake or camel case, in lower case.
fn segments(name: &str) -> impl Iterator<Item = String> {
    let mut parts = vec![String::new()];
    let mut after_lower = false;
    for letter in name.chars() {
        if letter == '_' || (letter.is_uppercase() && after_lower) {
            parts.push(String::new());
        }
        after_lower = letter.is_lowercase();
        if letter != '_' {
            parts.last_mut().into_iter().for_each(|part| part.push(letter.to_ascii_lowercase()));
        }
    }
    parts.into_iter()
}

/// A line's code without string literals, and its comment without what is quoted in backticks.
fn split(line: &str) -> (String, String) {
    let (mut code, mut comment) = (String::new(), String::new());
    let mut letters = line.chars().peekable();
    let (mut in_string, mut escaped) = (false, false);
    while let Some(letter) = letters.next() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            _ if in_string => {}
            '/' if letters.peek() == Some(&'/') => {
                let quoted = letters.collect::<String>();
                comment = quoted.split('`').step_by(2).collect();
                break;
            }
            _ => code.push(letter),
        }
    }
    (code, comment)
}

fn parse(text: &str) -> Result<Counts> {
    let mut counts = Counts::new();
    for line in text.lines() {
        let mut cells = line.split(' ');
        let (area, word, count) = (cells.next(), cells.next(), cells.next());
        let area = ["comments", "functions", "identifiers"].into_iter().find(|known| Some(*known) == area);
        let (Some(area), Some(word), Some(count)) = (area, word, count) else {
            anyhow::bail!("{COUNTS}: {line:?} is no area, word and count")
        };
        counts.insert((area, word.to_owned()), count.parse().with_context(|| line.to_owned())?);
    }
    Ok(counts)
}

fn render(counts: &Counts) -> String {
    let mut text = String::new();
    for ((area, word), count) in counts {
        let _ = writeln!(text, "{area} {word} {count}");
    }
    text
}
