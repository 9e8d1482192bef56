//! README, docs and chart use the terms of docs/glossary.md: phrases that they replaced are refused. Pages and comments describe the current
//! state, and not its history. README and docs are short.

use anyhow::{Result, ensure};
use pod_safety_locks::{Source, repository};

/// A phrase that is refused, and what to write instead.
const PHRASES: &[(&str, &str)] = &[
    ("not heard", "unreachable, or: does not report"),
    ("is heard", "reports"),
    ("are heard", "report"),
    ("was heard", "reported"),
    ("heard again", "reports again"),
    ("fallen silent", "stopped reporting"),
    ("falls silent", "stops reporting"),
    ("fell silent", "stopped reporting"),
    ("is silent", "does not report"),
    ("silent node", "unreachable node"),
    ("asked to end", "deleted gracefully, or: deletion requested"),
    ("asks pods to end", "gracefully deletes pods"),
    ("let through", "allowed"),
    ("lets through", "allows"),
    ("given up", "tainted NoExecute"),
    ("gives them up", "taints them NoExecute"),
    ("for ever", "indefinitely, permanently, or: never"),
    ("a person's word", "a person's confirmation"),
    ("people's words", "confirmations"),
    ("sign of life", "report, or: sign that it runs"),
    ("whose each", "name the owner"),
    ("our kinds", "the custom resources of pod-safety"),
    ("our own kinds", "the custom resources of pod-safety"),
    ("nobody", "name the role, or use the passive"),
    ("somebody", "name the role, or use the passive"),
    ("anybody", "any user, or: any client"),
    ("everybody", "all users, or: all clients"),
    ("whoever", "users who, or: the client that"),
    ("he", "it, or: they"),
    ("his", "its, or: their"),
    ("him", "it, or: them"),
    ("mend", "fix"),
    ("mended", "fixed"),
    ("mends", "fixes"),
    ("so often", "say how often"),
    ("so long", "say how long"),
    ("so many", "say how many"),
];

/// Phrases of a diary. Describe the current state, measured at one commit by one command. A capital letter matches the start of a sentence only.
const DIARY: [&str; 14] = [
    "Since then",
    "found it on its first run",
    "formerly",
    "has been fixed",
    "has not been run yet",
    "is mended",
    "mended",
    "run again after",
    "the first run found",
    "turned out",
    "used to be",
    "was fixed",
    "was wanted",
    "were wanted",
];

/// The word limits of README, and of README and docs together, as `wc -w` counts them.
const README_MAX: usize = 1_200;
const PAGES_MAX: usize = 65_000;

/// Files that quote program output, and the glossary, which names the replaced phrases.
const NOT_READ: [&str; 6] = [
    "docs/benchmarks.md",
    "docs/glossary.md",
    "docs/metrics.md",
    "tests/records/mutants.md",
    "tests/records/real-nodes.md",
    "tests/records/planted-bugs.md",
];

#[test]
fn docs_and_chart_use_glossary_terms() -> Result<()> {
    let places: Vec<String> = texts()?.iter().flat_map(refused).collect();
    ensure!(places.is_empty(), "write it as docs/glossary.md does, or quote it in backticks:\n{}", places.join("\n"));
    Ok(())
}

#[test]
fn a_planted_sentence_is_detected() {
    let places = |path: &str, text: &str| refused(&Source { path: path.to_owned(), text: text.to_owned() });
    assert_eq!(
        places("docs/x.md", "One.\n\nThe node is NOT\nheard for a minute.\n"),
        ["docs/x.md:3: \"not heard\": write unreachable, or: does not report"]
    );
    assert_eq!(
        places("charts/x.yaml", "# He waits for ever.\n"),
        [
            "charts/x.yaml:1: \"for ever\": write indefinitely, permanently, or: never",
            "charts/x.yaml:1: \"he\": write it, or: they"
        ]
    );
    assert!(places("docs/x.md", "The heap, `nobody`, this.\n").is_empty(), "no word, or quoted");
    assert!(places("docs/x.md", "```text\nis not heard\n```\n").is_empty(), "quoted");
    assert_eq!(places("docs/x.md", "```text\nx\n```\nnobody\n").len(), 1, "after a block");
    assert_eq!(places("docs/x.md", "A stray ` here.\n\nnobody\n").len(), 1, "a backtick holds for its paragraph");
}

/// `confirm-down` fails without its reason, so Events, denials and pages must include it.
#[test]
fn bug_a_command_to_type_lacked_its_reason() -> Result<()> {
    const COMMAND: &str = "pod-safety confirm-down ";
    let lacking = |text: &str| {
        let rest = text.split(COMMAND).skip(1).map(|rest| rest.lines().next().unwrap_or_default());
        rest.filter(|rest| {
            let of_a_node = ["{n", "NODE", "' + ", "worker-"].iter().any(|node| rest.starts_with(node));
            of_a_node && !rest.contains("--reason")
        })
        .count()
    };
    ensure!(lacking(&format!("or {COMMAND}{{node}})")) == 1, "a planted one is noticed");
    let all = texts()?.into_iter().chain(pod_safety_locks::sources()?);
    let places: Vec<String> = all.filter(|source| lacking(&source.text) > 0).map(|source| source.path).collect();
    ensure!(places.is_empty(), "confirm-down needs --reason TEXT: {places:?}");
    Ok(())
}

/// Phrases that suggested to confirm machines that were only isolated and still wrote.
const NEVER_ENOUGH: [&str; 6] = [
    "cut off from network and storage: confirm",
    "cannot reach its storage and its clients",
    "make sure that it is off, and confirm",
    "make sure that it is off and confirm",
    "make sure that its machines are off, and",
    "by your confirmation",
];

/// The condition must be at most this far before the command.
const NEAR: usize = 400;

/// The places that suggest a confirmation without the condition that somebody saw the machine powered off.
fn offered_without_check(source: &Source) -> Vec<String> {
    const COMMAND: &str = "pod-safety confirm-down ";
    let text = source.text.to_lowercase();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut places: Vec<String> =
        NEVER_ENOUGH.iter().filter(|phrase| text.contains(*phrase)).map(|phrase| (*phrase).to_owned()).collect();
    for (at, _) in text.match_indices(COMMAND) {
        let rest: String = text.get(at..).unwrap_or_default().chars().take(120).collect();
        let before = text.get(..at).unwrap_or_default();
        let near: String = before.chars().rev().take(NEAR).collect::<Vec<_>>().into_iter().rev().collect();
        let is_heading = near.ends_with("## `") || near.ends_with("](commands.md#");
        let is_offer = rest.contains("--reason text") && !is_heading;
        if is_offer && !["saw", "seen"].iter().any(|word| near.contains(word)) {
            places.push(rest);
        }
    }
    places.into_iter().map(|what| format!("{}: {what}", source.path)).collect()
}

/// A confirmation needs somebody who saw the machine powered off: that it is isolated, or does not answer, is never enough.
#[test]
fn confirm_down_is_suggested_only_for_machines_seen_powered_off() -> Result<()> {
    let of = |text: &str| offered_without_check(&Source { path: "x".to_owned(), text: text.to_owned() }).len();
    ensure!(of("If it is off,\nor cut off from network and storage: confirm it") == 1, "a planted phrase");
    ensure!(of("Is it off? pod-safety confirm-down NODE --reason TEXT") == 1, "a planted command");
    ensure!(of("If you saw it powered off: pod-safety confirm-down NODE --reason TEXT") == 0, "the rule");
    let is_test = |path: &str| path.contains("tests/") || path.ends_with("tests.rs");
    let mut all = texts()?;
    all.extend(pod_safety_locks::sources()?.into_iter().filter(|source| !is_test(&source.path)));
    all.extend(pod_safety_locks::texts(&["controllers/cli/src/explain/golden"], &["txt"])?);
    let places: Vec<String> = all.iter().flat_map(offered_without_check).collect();
    ensure!(places.is_empty(), "say that somebody must have seen the machine powered off:\n{}", places.join("\n"));
    Ok(())
}

#[test]
fn each_excluded_file_exists() -> Result<()> {
    for path in NOT_READ {
        ensure!(repository().join(path).is_file(), "{path} is gone: take it from the list");
    }
    Ok(())
}

#[test]
fn no_page_and_no_comment_is_a_diary() -> Result<()> {
    let mut pages = pages()?;
    pages.extend(pod_safety_locks::sources()?.iter().map(comments));
    let places: Vec<String> = pages.iter().flat_map(diary_phrases).collect();
    ensure!(places.is_empty(), "say what is, and not how it came to be:\n{}", places.join("\n"));
    Ok(())
}

#[test]
fn a_planted_diary_phrase_is_detected() {
    let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    for (page, count) in [
        ("The race was\nfixed.", 1),
        ("Since then it holds.", 1),
        ("One worker, since then by default. It is used to begin.", 0),
        ("`mended`", 0),
    ] {
        assert_eq!(diary_phrases(&source("docs/x.md", page)).len(), count, "{page}");
    }
    let code = "/// A rule that turned\n/// out well.\nlet x = \"was wanted\"; // which is mended\nlet url = \"https://used to be\";\n";
    assert_eq!(
        diary_phrases(&comments(&source("x.rs", code))),
        ["x.rs:3: \"is mended\"", "x.rs:3: \"mended\"", "x.rs:1: \"turned out\""]
    );
}

#[test]
fn readme_and_docs_are_short() -> Result<()> {
    let words = |pages: &[&str]| -> Result<usize> {
        let pages = pod_safety_locks::texts(pages, &["md"])?;
        Ok(pages.iter().map(|page| page.text.split_whitespace().count()).sum())
    };
    let (readme, all) = (words(&["README.md"])?, words(&["README.md", "docs"])?);
    ensure!(readme <= README_MAX, "README.md has {readme} words, at most {README_MAX}");
    ensure!(all <= PAGES_MAX, "README.md and docs have {all} words, at most {PAGES_MAX}");
    Ok(())
}

/// The comments of a source, each at its line and column, and blanks in place of the code.
fn comments(source: &Source) -> Source {
    let mut text = String::with_capacity(source.text.len());
    for line in source.text.split_inclusive('\n') {
        let own = line.trim_start().starts_with("//");
        let begins = if own { line.find("//") } else { line.find(" // ").map(|at| at + 1) };
        let (code, comment) = line.split_at(begins.unwrap_or(line.trim_end_matches('\n').len()));
        text.push_str(&" ".repeat(code.len()));
        // A sentence continues after the slashes of the next line.
        let slashes = comment.bytes().take_while(|byte| b"/!".contains(byte)).count();
        text.push_str(&" ".repeat(slashes));
        text.push_str(&comment[slashes..]);
    }
    Source { path: source.path.clone(), text }
}

/// Place and phrase of each diary phrase in a page or a comment.
fn diary_phrases(source: &Source) -> Vec<String> {
    let blanked = unquoted(source);
    let (mut words, mut at) = (Vec::new(), 0);
    for (number, line) in (1..).zip(source.text.split_inclusive('\n')) {
        let plain = |word: &'_ str| word.trim_matches(|letter: char| letter.is_ascii_punctuation()).to_owned();
        words.extend(blanked[at..at + line.len()].split_whitespace().map(|word| (number, plain(word))));
        at += line.len();
    }
    let mut phrases = Vec::new();
    for phrase in DIARY {
        let (first, rest) = phrase.split_at(1);
        let capital = first.to_ascii_uppercase() + rest;
        for begins in words.windows(phrase.split(' ').count()) {
            let phrase_here = begins.iter().map(|(_, word)| word.as_str()).collect::<Vec<_>>().join(" ");
            if phrase_here == phrase || phrase_here == capital {
                phrases.push(format!("{}:{}: {phrase:?}", source.path, begins[0].0));
            }
        }
    }
    phrases
}

/// Place, phrase and replacement of each refused phrase.
fn refused(source: &Source) -> Vec<String> {
    let text = prose(source);
    let mut refusals = Vec::new();
    for (phrase, instead) in PHRASES {
        for (at, _) in text.match_indices(phrase).filter(|(at, _)| is_word(&text, *at, phrase.len())) {
            let line = source.text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
            refusals.push(format!("{}:{line}: \"{phrase}\": write {instead}", source.path));
        }
    }
    refusals
}

/// Whether neither neighbour is a letter, a digit or an underscore.
fn is_word(text: &str, at: usize, length: usize) -> bool {
    let outside = |byte: Option<&u8>| byte.is_none_or(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
    let bytes = text.as_bytes();
    outside(at.checked_sub(1).and_then(|before| bytes.get(before))) && outside(bytes.get(at + length))
}

/// The text in lower case on one line, with blanks in place of quotes. Byte offsets are preserved.
fn prose(source: &Source) -> String {
    unquoted(source).to_ascii_lowercase()
}

fn unquoted(source: &Source) -> String {
    let is_page = source.path.ends_with(".md");
    let (mut in_block, mut in_quotes) = (false, false);
    let mut blanked = String::with_capacity(source.text.len());
    for line in source.text.split_inclusive('\n') {
        let fence = is_page && line.trim_start().starts_with("```");
        in_quotes &= !line.trim().is_empty();
        if fence || in_block {
            blanked.push_str(&" ".repeat(line.len()));
            in_block ^= fence;
            in_quotes = false;
        } else {
            blank_quotes(line, &mut in_quotes, &mut blanked);
        }
    }
    blanked
}

/// Appends the line with blanks in place of text in backticks and of the line break.
fn blank_quotes(line: &str, in_quotes: &mut bool, blanked: &mut String) {
    for letter in line.chars() {
        if letter == '`' {
            *in_quotes = !*in_quotes;
        }
        if *in_quotes || letter == '`' || letter.is_whitespace() {
            blanked.push_str(&" ".repeat(letter.len_utf8()));
        } else {
            blanked.push(letter);
        }
    }
}

fn pages() -> Result<Vec<Source>> {
    pod_safety_locks::texts(&["CONTRIBUTING.md", "README.md", "SECURITY.md", "docs"], &["md"])
}

/// Everything that users of pod-safety read. The change log may contain replaced phrases.
fn texts() -> Result<Vec<Source>> {
    let mut sources = pages()?;
    sources.extend(pod_safety_locks::texts(&["charts"], &["json", "md", "tpl", "txt", "yaml"])?);
    sources.retain(|source| !NOT_READ.contains(&source.path.as_str()));
    ensure!(sources.len() > 80, "{} files: not all of them", sources.len());
    Ok(sources)
}
