//! Printed commands can be run: every command and every flag that a page, a hint or an error names, of every command of
//! this crate and in every literal of its sources.

mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use clap::error::ErrorKind;
use clap::{Args as _, CommandFactory as _, Parser as _};
use parking_lot::Mutex;
use pod_safety_shared::testing::AnswerFn;
use serde_json::{Value, json};

use crate::untrusted_text::{COMMANDS, Objects, objects, run_command, run_command_within, server};
use crate::{Cli, cluster, exit, invocation, run};

/// Flags of other programs, in sentences about them.
const OF_OTHERS: [&str; 5] = ["--disable-force-detach-on-timeout", "--force", "--grace-period", "--help", "--"];

fn well() -> Arc<AnswerFn> {
    with(|_| ())
}

/// The cluster with changed objects.
fn with(change: impl FnOnce(&mut Objects)) -> Arc<AnswerFn> {
    let mut all = objects();
    all.entry("/api/v1/replicationcontrollers".to_owned()).or_default();
    change(&mut all);
    server(all, "v1.37.2".to_owned(), false)
}

/// A cluster in which pod-safety was never installed: the API server has none of its kinds.
fn without_crds() -> Arc<AnswerFn> {
    let bare = with(|all| all.retain(|path, _| !path.contains("pod-safety.dev/v1alpha1")));
    Arc::new(move |method, path, body| match path.starts_with("/apis/pod-safety.dev/") {
        true => (404, json!({ "kind": "Status", "code": 404, "message": "404 page not found" })),
        false => bare(method, path, body),
    })
}

/// Commands that fail, or that print another page, in addition to those that are tested with untrusted texts.
const MORE: [&str; 11] = [
    "drain worker-a2",
    "drain worker-b1 --skip shop/orders-1",
    "explain pod none -n shop",
    "explain none",
    "explain pdb -n shop none",
    "confirm-down worker-b1 --reason r --confirm no",
    "maintain worker-a1 --dry-run --power-off",
    "pause --policy none --reason r",
    "devices test none",
    "fence worker-a1 --reason r --confirm 'switch off worker-a1'",
    "timeline --since 3h",
];

/// Everything that is printed for these clusters, with the command line.
fn pages() -> Vec<(String, u8, String)> {
    let refuses = server(Objects::new(), "no".to_owned(), true);
    let no_incident = with(|all| drop(all.remove("/apis/pod-safety.dev/v1alpha1/nodefences")));
    let clusters = [well(), refuses, without_crds(), no_incident];
    let lines = || COMMANDS.into_iter().chain(MORE);
    clusters
        .iter()
        .flat_map(|respond| {
            lines().map(|line| {
                let (code, text) = run_command(line, respond);
                (line.to_owned(), code, text)
            })
        })
        .collect()
}

/// The subcommand of a line; for `devices test` both words.
fn verb(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').take(2).collect();
    if words[0] == "devices" { words.join(" ") } else { words[0].to_owned() }
}

fn flags_of(command: &clap::Command) -> BTreeSet<String> {
    let flags = command.get_arguments().filter_map(|arg| Some(format!("--{}", arg.get_long()?)));
    flags.chain(OF_OTHERS.map(str::to_owned)).collect()
}

/// The flags of each command; `run`: those of the process, which pages name for changed settings.
fn flags() -> BTreeMap<String, BTreeSet<String>> {
    let mut all = BTreeMap::from([("run".to_owned(), flags_of(&run::Args::augment_args(clap::Command::new("run"))))]);
    for command in Cli::command().get_subcommands() {
        all.insert(command.get_name().to_owned(), flags_of(command));
        for below in command.get_subcommands() {
            all.insert(format!("{} {}", command.get_name(), below.get_name()), flags_of(below));
        }
    }
    all
}

/// Why a command cannot be run. A placeholder such as NODE is accepted.
fn refused(command: &str) -> Option<String> {
    let command = command.trim_start_matches("kubectl ");
    let words = command.split_whitespace().map(|word| word.trim_matches(['"', '\'']));
    let words: Vec<String> = words
        .map(|word| match word.chars().all(|letter| letter.is_ascii_uppercase()) {
            true => word.to_lowercase(),
            false => word.to_owned(),
        })
        .collect();
    if words.get(1).is_some_and(|word| invocation::PROGRAM_COMMANDS.contains(&word.as_str())) {
        return None;
    }
    let words = cluster::move_global_flags(words.into_iter().map(Into::into));
    let error = Cli::try_parse_from(words).err()?;
    let is_wrong =
        matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand | ErrorKind::ArgumentConflict);
    is_wrong.then(|| format!("{command}: {error}"))
}

fn is_own(command: &str) -> bool {
    command.starts_with("pod-safety ") || command.starts_with("kubectl pod-safety ")
}

/// The flags of a line that are in none of its commands.
fn bare_flags(line: &str) -> Vec<String> {
    let mut rest = String::new();
    let mut at = 0;
    for range in invocation::commands().find_in(line) {
        rest.push_str(&line[at..range.start]);
        at = range.end;
    }
    rest.push_str(&line[at..]);
    let is_name = |letter: char| letter.is_ascii_lowercase() || letter == '-';
    let words = rest.split(|letter: char| letter.is_whitespace() || "(),;:=\"'`".contains(letter));
    let flags = words.filter(|word| word.starts_with("--")).map(|word| word.trim_end_matches('.'));
    flags.filter(|word| word.chars().all(is_name)).map(str::to_owned).collect()
}

/// `maintain NODE --dry-run` ended with "To do it: add --apply", which it does not have.
#[test]
fn bug_hints_named_flags_that_their_command_does_not_have() {
    let flags = flags();
    let (mut hints, mut wrong) = (0, BTreeSet::new());
    for (line, _, text) in pages() {
        for printed in text.lines().filter(|line| !line.contains(" takes these rights: ")) {
            for range in
                invocation::commands().find_in(printed).into_iter().filter(|range| is_own(&printed[range.clone()]))
            {
                hints += 1;
                wrong.extend(refused(&printed[range]).map(|why| format!("{line}: {why}")));
            }
            for flag in bare_flags(printed) {
                let of = |command: &str| flags.get(command).is_some_and(|all| all.contains(&flag));
                if !of(&verb(&line)) && !of("run") {
                    wrong.insert(format!("{line}: it has no {flag}: {printed}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.into_iter().collect::<Vec<_>>().join("\n"));
    assert!(hints > 60, "only {hints} hints were printed");
}

/// The literals of a source, without its tests; placeholders in braces are filled in.
fn literals(source: &str) -> Vec<String> {
    let source = source.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let (mut literals, mut letters) = (Vec::new(), source.chars().peekable());
    while let Some(letter) = letters.next() {
        match letter {
            '/' if letters.peek() == Some(&'/') => while letters.next().is_some_and(|next| next != '\n') {},
            // A quote as a char literal.
            '\'' if letters.peek() == Some(&'"') => drop(letters.next()),
            '"' => {
                let (mut text, mut open) = (String::new(), 0_u32);
                while let Some(next) = letters.next() {
                    match next {
                        '"' => break,
                        '\\' => match letters.next() {
                            Some('n') => text.push('\n'),
                            // A literal that continues on the next line.
                            Some('\n') => while letters.next_if(|next| next.is_whitespace()).is_some() {},
                            Some(other) => text.push(other),
                            None => {}
                        },
                        '{' => open += 1,
                        '}' => {
                            open = open.saturating_sub(1);
                            text.push('x');
                        }
                        _ if open > 0 => {}
                        other => text.push(other),
                    }
                }
                literals.push(text);
            }
            _ => {}
        }
    }
    literals
}

fn sources(folder: &Path, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.file_name().unwrap().to_string_lossy().into_owned();
        if entry.is_dir() {
            if !["tests", "target"].contains(&&*name) {
                sources(&entry, files);
            }
        } else if name.ends_with(".rs") && !["tests.rs", "hint.rs", "called.rs", "documents.rs"].contains(&&*name) {
            files.push(std::fs::read_to_string(entry).unwrap());
        }
    }
}

/// Hints of states that no test reaches are checked too: in the sources of all crates that print to operators.
#[test]
fn every_command_in_a_literal_of_the_sources_is_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = Vec::new();
    for folder in ["controllers", "shared", "devices"] {
        sources(&root.join(folder), &mut all);
    }
    let (mut hints, mut wrong) = (0, BTreeSet::new());
    for literal in all.iter().flat_map(|source| literals(source)) {
        for line in literal.lines() {
            for range in invocation::commands().find_in(line).into_iter().filter(|range| is_own(&line[range.clone()])) {
                hints += 1;
                wrong.extend(refused(&line[range]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.into_iter().collect::<Vec<_>>().join("\n"));
    assert!(hints > 60, "only {hints} hints were found");
}

#[test]
fn an_invalid_hint_is_detected() {
    for (command, wrong) in [
        ("pod-safety maintain x --apply", true),
        ("pod-safety drain NODE --apply", false),
        ("kubectl pod-safety pause x --reason TEXT", false),
        ("pod-safety frobnicate x", true),
        ("pod-safety -n shop status", false),
    ] {
        assert_eq!(refused(command).is_some(), wrong, "{command}");
    }
    assert_eq!(bare_flags("add --apply (pod-safety drain x --skip a/b), or --reason TEXT."), ["--apply", "--reason"]);
    assert_eq!(literals("f(\"a {b} c\", '\"'); // \"no\"\ng(\"d\\\n   e\")"), ["a x c", "de"]);
}

#[test]
fn each_command_exits_with_a_code_of_its_help() {
    for (line, code, text) in pages() {
        let (_, codes) = exit::COMMANDS.iter().find(|(name, _)| *name == verb(&line)).unwrap();
        assert!(codes.iter().any(|(one, _)| *one == code), "{line}: {code}\n{text}");
    }
}

/// The cluster was named twice, and PodDisruptionBudgets had another name than in the API.
#[test]
fn bug_pages_named_their_cluster_twice_and_called_pdbs_budgets() {
    for (line, _, text) in pages() {
        let cluster = text.lines().filter(|line| line.starts_with("Cluster: ")).count();
        assert!(cluster <= 1, "{line}:\n{text}");
        let is_budget = |word: &str| ["budget", "budgets"].contains(&&*word.to_lowercase());
        let mut words = text.split(|letter: char| !letter.is_alphanumeric());
        // The API server's own message.
        let is_api_message = text.contains("disruption budget");
        assert!(is_api_message || !words.any(is_budget), "{line}:\n{text}");
    }
}

/// With 100 columns confirm-down printed `pod-safety pause worker-b --r` and, on the next line, `eason TEXT`.
#[test]
fn bug_commands_were_wrapped_on_terminals_of_80_and_100_columns() {
    let respond = well();
    let mut whole = 0;
    for line in COMMANDS.into_iter().filter(|line| !line.contains("-o ")) {
        let (_, wide) = run_command(line, &respond);
        let commands: Vec<&str> = wide
            .lines()
            .flat_map(|line| invocation::commands().find_in(line).into_iter().map(move |range| &line[range]))
            .collect();
        for columns in [80, 100] {
            let (_, narrow) = run_command_within(Some(columns), line, &respond);
            for command in &commands {
                whole += 1;
                assert!(narrow.contains(command), "{line} on {columns} columns: {command}: broken in\n{narrow}");
            }
        }
    }
    assert!(whole > 40, "only {whole} commands were checked");
}

/// `fence --dry-run` wrote a NodeFence, which stayed, and printed neither plan nor gate.
#[test]
fn bug_fence_dry_run_wrote_an_object_and_showed_no_plan() {
    // A node without an incident, in a cluster whose policy is not paused.
    let bare = || {
        with(|all| {
            drop(all.remove("/apis/pod-safety.dev/v1alpha1/nodefences"));
            all.insert("/apis/pod-safety.dev/v1alpha1/nodefences".to_owned(), Vec::new());
            for policy in all.get_mut("/apis/pod-safety.dev/v1alpha1/fencepolicies").unwrap() {
                policy["spec"].as_object_mut().unwrap().remove("paused");
            }
        })
    };
    for (line, code, expected) in [
        ("fence worker-b1 --dry-run", 3, "LargeOutage"),
        ("fence worker-a1 --reason r --dry-run", 3, "node/worker-a1 by fencepolicy/rack-b"),
        ("maintain worker-a1 --dry-run", 3, "leave out --dry-run, add --reason TEXT"),
        ("maintain worker-a1 --dry-run --power-off", 3, "switched off by its FencePolicy"),
        ("drain worker-a1", 3, "Nothing was changed."),
    ] {
        let written = Arc::new(Mutex::new(Vec::new()));
        let (observed, cluster) = (Arc::clone(&written), bare());
        let watched: Arc<AnswerFn> = Arc::new(move |method, path, body| {
            let is_review = path.contains("reviews");
            let dry = serde_json::from_slice::<Value>(body).unwrap_or_default();
            let is_dry = path.ends_with("/eviction?dryRun=All") && dry["deleteOptions"]["dryRun"] == json!(["All"]);
            if method != "GET" && !is_review && !is_dry {
                observed.lock().push(format!("{method} {path}"));
            }
            cluster(method, path, body)
        });
        let (ended, text) = run_command(line, &watched);
        assert_eq!(*written.lock(), Vec::<String>::new(), "{line}: {text}");
        assert!(text.contains(expected) && ended == code, "{line}: {ended}: {text}");
    }
    let (_, text) = run_command("fence worker-b1 --dry-run", &bare());
    for part in ["GATE", "NUMBERS", "ipmi-b1", "Nothing was written, and nothing was switched."] {
        assert!(text.contains(part), "{part}: not in\n{text}");
    }
}
