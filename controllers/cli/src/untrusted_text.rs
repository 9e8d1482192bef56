//! Control characters in every text of a cluster, printed by every command: the output keeps its lines.
//!
//! The commands are executed as a whole, from arguments to output.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clap::{CommandFactory, Parser};
use pod_safety_shared::testing::AnswerFn;
use serde_json::{Value, json};

use super::cluster::Session;
use super::test_session::{finish_session, start_session, test_connection, widen};
use super::{Cli, sanitize};

/// The beginning of a forged line.
const FORGED: &str = "FORGED";

fn marked(text: &str) -> String {
    format!("{text}\u{1b}[31m\u{1b}[2J\u{9b}31m\r\n{FORGED} \u{2028}{FORGED}\u{202e}\u{2066}\u{200b}\u{feff}\u{7f}")
}

pub(crate) const COMMANDS: [&str; 32] = [
    "status",
    "explain pod orders-1 -n shop -o wide",
    "explain pod cache-0 -n shop",
    "explain pod orders-0 -n shop",
    "explain eviction shop/pod-1-orders-0 -o wide",
    "explain node worker-b1 -o wide",
    "explain node worker-b2",
    "explain sts orders -n shop -o wide",
    "explain ns old -o wide",
    "explain pvc data-0 -n shop -o wide",
    "explain pv pvc-1",
    "explain pdb",
    "explain pdb -n shop orders",
    "resolve ns old",
    "timeline",
    "timeline node worker-b1",
    "timeline pod orders-1 -n shop",
    "doctor",
    "drain worker-a1",
    "devices test --timeout 1s",
    "drill worker-b1 --reason r --timeout 2s",
    "confirm-down worker-b1 --reason r --listen 1s --confirm 'worker-b1 is off'",
    "withdraw worker-b1 --reason r",
    "fence worker-b1 --reason r",
    "cancel worker-b1",
    "pause worker-a1 --reason r",
    "resume worker-b2 --reason r",
    "maintain worker-a1 --reason r --dry-run",
    "status -o yaml",
    "status -n shop",
    "explain orders-1",
    "fence worker-b1 --dry-run",
];

/// Commands that print nothing of a cluster, or are tested elsewhere: `report` and `ui` below.
const OTHERS: [&str; 4] = ["manifests", "report", "ui", "version"];

/// Objects by their collections: nodes of which two are lost, pods that are stuck for each reason, and their Events.
pub(crate) type Objects = BTreeMap<String, Vec<Value>>;

pub(crate) fn objects() -> Objects {
    serde_json::from_str(include_str!("hostile/cluster.json")).unwrap()
}

/// The collection of a path, the namespace and the name.
fn parts(path: &str) -> (String, Option<&str>, Option<&str>) {
    let words: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let base = words.len().min(if path.starts_with("/api/") { 2 } else { 3 });
    let (base, rest) = words.split_at(base);
    let within = |plural: &str| format!("/{}/{plural}", base.join("/"));
    match rest {
        ["namespaces", namespace, plural] => (within(plural), Some(namespace), None),
        ["namespaces", namespace, plural, name, ..] => (within(plural), Some(namespace), Some(name)),
        [plural] => (within(plural), None, None),
        [plural, name, ..] => (within(plural), None, Some(name)),
        [] => (within(""), None, None),
    }
}

fn refusal(code: u16, reason: &str, message: &str) -> (u16, Value) {
    (code, json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message }))
}

/// An API server of these objects. `message` is its message where it refuses, and the name of the user.
pub(crate) fn server(objects: Objects, message: String, refuses: bool) -> Arc<AnswerFn> {
    Arc::new(move |method, path, body| {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let (collection, namespace, name) = parts(path);
        let given = || serde_json::from_slice(body).unwrap_or(json!({}));
        match (method, path) {
            (_, "/apis/authentication.k8s.io/v1/selfsubjectreviews") => {
                return (201, json!({ "status": { "userInfo": { "username": message } } }));
            }
            (_, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews") => {
                return (201, json!({ "status": { "allowed": true } }));
            }
            (_, "/version") => return (200, json!({ "gitVersion": message })),
            ("GET", _) if refuses => return refusal(403, "Forbidden", &message),
            ("POST", path) if path.ends_with("/eviction") => {
                return refusal(429, "TooManyRequests", &message);
            }
            ("POST", _) => return (201, given()),
            ("PATCH" | "PUT" | "DELETE", _) => return (200, json!({ "metadata": {} })),
            (_, "/apis") => {
                let version = |version: &str| json!({ "preferredVersion": { "groupVersion": version } });
                return (200, json!({ "groups": [version("example.com/v1"), version("broken.example.com/v1")] }));
            }
            (_, "/api/v1") => return (200, json!({ "resources": [] })),
            (_, "/apis/example.com/v1") => {
                let kind = json!({ "name": "widgets", "namespaced": true, "verbs": ["list"] });
                return (200, json!({ "resources": [kind] }));
            }
            _ => {}
        }
        let Some(all) = objects.get(&collection) else { return refusal(404, "NotFound", &message) };
        let is_within = |one: &&Value| namespace.is_none_or(|name| one["metadata"]["namespace"] == *name);
        let is_selected = |one: &&Value| {
            let of = |field: &str| query.split_once(&format!("fieldSelector={field}=")).map(|(_, rest)| rest);
            let is = |expected: Option<&str>, value: &Value| {
                expected.is_none_or(|selected| *value == *selected.split('&').next().unwrap_or_default())
            };
            is(of("spec.nodeName"), &one["spec"]["nodeName"]) && is(of("metadata.name"), &one["metadata"]["name"])
        };
        let within: Vec<&Value> = all.iter().filter(is_within).filter(is_selected).collect();
        let Some(name) = name else {
            return (200, json!({ "metadata": { "resourceVersion": "9" }, "items": within }));
        };
        let named = within.iter().find(|one| one["metadata"]["name"] == *name);
        // An incident may have any name.
        let named = named.or_else(|| within.first().filter(|_| collection.ends_with("nodefences")));
        named.map_or_else(|| refusal(404, "NotFound", &message), |one| (200, (*one).clone()))
    })
}

/// The JSON pointers of all strings.
fn leaves(value: &Value, at: &str, pointers: &mut BTreeSet<String>) {
    let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::String(_) => drop(pointers.insert(at.to_owned())),
        Value::Array(all) => {
            all.iter().enumerate().for_each(|(index, one)| leaves(one, &format!("{at}/{index}"), pointers));
        }
        Value::Object(all) => {
            all.iter().for_each(|(key, one)| leaves(one, &format!("{at}/{}", escaped(key)), pointers));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The output of a command for such a cluster, stdout and stderr.
fn output_of(command: &str, server: &Arc<AnswerFn>) -> String {
    run_command(command, server).1
}

/// The same with its exit code. Words in single quotes are one argument.
pub(crate) fn run_command(command: &str, server: &Arc<AnswerFn>) -> (u8, String) {
    run_command_within(None, command, server)
}

/// The same on a terminal of this width.
pub(crate) fn run_command_within(columns: Option<usize>, command: &str, server: &Arc<AnswerFn>) -> (u8, String) {
    start_session(server);
    widen(columns);
    let mut words = vec!["pod-safety"];
    for (index, part) in command.split('\'').enumerate() {
        match index % 2 {
            0 => words.extend(part.split_whitespace()),
            _ => words.push(part),
        }
    }
    let code = super::exit_code(Cli::try_parse_from(words).unwrap().command.execute());
    (code, finish_session())
}

/// The first forged line, or line with control characters.
fn forged(text: &str) -> Option<&str> {
    let is_odd = |letter: char| sanitize::is_control(letter) && !matches!(letter, '\n' | '\t');
    text.lines().find(|line| line.contains(is_odd) || line.trim_start().starts_with(FORGED))
}

/// The results of all commands.
#[derive(Default)]
struct Attempts {
    /// How many pages had a mark in them.
    shown: usize,
    broken: Vec<String>,
}

impl Attempts {
    fn with(&mut self, server: &Arc<AnswerFn>, what: &str) {
        for command in COMMANDS {
            let text = output_of(command, server);
            self.shown += usize::from(text.contains(FORGED));
            self.broken.extend(forged(&text).map(|line| format!("{command}, with {what}: {line:?}")));
        }
    }

    fn held(self, at_least: usize) {
        assert!(self.broken.is_empty(), "{}", self.broken.join("\n"));
        assert!(self.shown >= at_least, "{} pages showed a mark: the others say nothing", self.shown);
    }
}

#[test]
fn each_command_is_tested_or_excluded() {
    let named = |line: &&str| line.split(' ').next().unwrap().to_owned();
    let tried: BTreeSet<String> = COMMANDS.iter().map(named).chain(OTHERS.map(str::to_owned)).collect();
    let all: BTreeSet<String> = Cli::command().get_subcommands().map(|one| one.get_name().to_owned()).collect();
    let untried: Vec<&String> = all.difference(&tried).collect();
    assert!(untried.is_empty(), "{untried:?}");
}

/// Every command prints something about a cluster without marks, so that the next test looks for marks in real pages.
#[test]
fn each_command_prints_something_about_the_cluster() {
    let server = server(objects(), "v1.37.2".to_owned(), false);
    for command in COMMANDS {
        let text = output_of(command, &server);
        assert!(!text.is_empty() && !text.contains("decoding"), "{command}: {text}");
    }
}

/// A program that queries several clusters could not tell from a plan, a timeline or a device test which cluster it was
/// about.
#[test]
fn bug_a_json_document_did_not_name_its_cluster() {
    let server = server(objects(), "v1.37.2".to_owned(), false);
    let mut documents = 0;
    for command in COMMANDS {
        let command = format!("{} -o json", command.split(" -o ").next().unwrap());
        if Cli::try_parse_from(std::iter::once("pod-safety").chain(command.split(' '))).is_err() {
            continue;
        }
        let text = output_of(&command, &server);
        let Some(start) = text.find("{\n") else { continue };
        let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
        let document = values.next().unwrap().unwrap();
        assert!(document["cluster"].is_object(), "{command}: {document:#}");
        documents += 1;
    }
    assert!(documents > 12, "only {documents} documents");
}

#[test]
fn attack_control_characters_in_any_text_of_the_cluster_reach_no_terminal() {
    let objects = objects();
    let mut all = BTreeSet::new();
    objects.values().flatten().for_each(|object| leaves(object, "", &mut all));
    let mut tried = Attempts::default();
    for pointer in &all {
        let mut hostile = objects.clone();
        for object in hostile.values_mut().flatten() {
            if let Some(Value::String(text)) = object.pointer_mut(pointer) {
                *text = marked(text);
            }
        }
        let respond = server(hostile, "v1.37.2".to_owned(), false);
        tried.with(&respond, pointer);
    }
    tried.held(100);
}

#[test]
fn attack_control_characters_in_answers_of_the_api_server_reach_no_terminal() {
    let mut tried = Attempts::default();
    tried.with(&server(objects(), marked("v1"), false), "what it says of itself and of evictions");
    tried.with(&server(Objects::new(), marked("no"), true), "refusals");
    tried.held(10);
}

#[test]
fn attack_control_characters_of_the_cluster_reach_no_report_and_no_browser() {
    let mut objects = objects();
    for event in objects.get_mut("/api/v1/events").unwrap() {
        event["message"] = json!(marked("m"));
    }
    for fence in objects.get_mut("/apis/pod-safety.dev/v1alpha1/nodefences").unwrap() {
        fence["status"]["message"] = json!(marked("m"));
    }
    let respond = server(objects, marked("v1"), false);
    let folder = tempfile();
    let output = output_of(&format!("report --into {}", folder.display()), &respond);
    assert_eq!(forged(&output), None, "{output}");
    let mut files = 0;
    let mut folders = vec![folder.clone()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
                continue;
            }
            files += 1;
            let text = std::fs::read_to_string(&entry).unwrap();
            assert_eq!(forged(&text), None, "{}: {text}", entry.display());
        }
    }
    assert!(files > 15, "{files} files");
    std::fs::remove_dir_all(folder).unwrap();

    start_session(&respond);
    let pages = crate::block_on(async {
        let (connection, env) = test_connection().unwrap();
        Ok(super::ui::pages(Session { connection, env }).await)
    });
    let pages = pages.unwrap();
    finish_session();
    for page in pages {
        assert!(page.contains(FORGED), "{page}");
        let document: Value = serde_json::from_str(&page).unwrap();
        let mut pointers = BTreeSet::new();
        leaves(&document, "", &mut pointers);
        let texts = pointers.iter().filter_map(|pointer| document.pointer(pointer)?.as_str());
        texts.for_each(|text| assert!(!text.contains(sanitize::is_control), "{text:?}"));
    }
}

fn tempfile() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("pod-safety-hostile-{:x}", super::random()))
}
