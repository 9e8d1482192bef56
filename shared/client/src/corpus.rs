//! Kubeconfigs and environments of every form, with the results of kubectl 1.37.2 and of this program:
//! `testdata/kubeconfigs.txt`. `POD_SAFETY_WRITE_KCM=1` records kubectl's results again, with the kubectl of `make
//! control-plane`; `POD_SAFETY_WRITE_GOLDEN=1` records this program's results.

mod logins;
mod row;
mod stubs;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prometheus::Registry;

use crate::{Call, ClientMetrics, ConfigError, ConnectOptions, Connection, error_chain};
use pod_safety_clock::Env;
use row::Row;
use stubs::Stubs;

const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/kubeconfigs.txt");

/// A row whose files are written to a folder.
struct Fixture<'s> {
    stubs: &'s Stubs,
    folder: tempfile::TempDir,
    variables: BTreeMap<String, String>,
    arguments: Vec<String>,
    /// The request timeout.
    within: Option<Duration>,
}

impl<'s> Fixture<'s> {
    fn for_row(row: &Row, stubs: &'s Stubs) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().to_string_lossy().into_owned();
        let placed = |text: &str| filled(&stubs.placed(text)).replace("{here}", &here);
        for (name, text) in &row.files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            if name.ends_with(".sh") {
                write_program(&path, &placed(text));
            } else {
                std::fs::write(&path, placed(text)).unwrap();
            }
        }
        let path = std::env::var("PATH").unwrap();
        let mut variables = BTreeMap::from([("HOME".to_owned(), here.clone()), ("PATH".to_owned(), path)]);
        if row.files.contains_key("config") {
            variables.insert("KUBECONFIG".to_owned(), format!("{here}/config"));
        }
        variables.extend(row.variables.iter().map(|(name, value)| (name.clone(), placed(value))));
        let arguments = row.arguments.iter().map(|argument| placed(argument)).collect();
        Self { stubs, folder, variables, arguments, within: None }
    }

    /// The result of a program, with the requests that reached the servers.
    fn verdict(&self, answer: Result<(), String>) -> String {
        let seen = self.stubs.seen().join(" > ");
        let text = match answer {
            Ok(()) => format!("accepts {seen}"),
            Err(why) if seen.is_empty() => format!("refuses {why}"),
            Err(why) => format!("refuses {why} [{seen}]"),
        };
        let text = self.stubs.unplaced(&text);
        // The message differs where there is no name server.
        let text = text.replace("Temporary failure in name resolution", "Name or service not known");
        text.replace(&*self.folder.path().to_string_lossy(), "{here}")
            .replace(&*stubs::pki().to_string_lossy(), "{pki}")
    }

    async fn outcome(&self) -> String {
        let answer = self.ask().await;
        self.verdict(answer)
    }

    async fn open(&self) -> Result<Connection, ConfigError> {
        let variable = |name: &str| self.variables.get(name).map(OsString::from);
        let metrics = ClientMetrics::register(&Registry::new()).unwrap();
        let mut options = ConnectOptions { request_timeout: self.within, ..ConnectOptions::default() };
        for pair in self.arguments.chunks(2) {
            let (flag, value) = (&*pair[0], pair[1].clone());
            match flag {
                "--context" => options.context = Some(value),
                "--kubeconfig" => options.kubeconfig = Some(PathBuf::from(value)),
                "--server" => options.server = Some(value),
                "--as" => options.user = Some(value),
                "--as-group" => options.groups.push(value),
                other => panic!("{other}"),
            }
        }
        Connection::open_with(&options, Env::real(1), metrics, &variable).await
    }

    async fn ask(&self) -> Result<(), String> {
        let connection = self.open().await.map_err(|error| error_chain(&error))?;
        let answer = connection.send(Call::get("/version")).await;
        answer.map(drop).map_err(|error| error_chain(&error))
    }

    async fn kubectl(&self, kubectl: &Path) -> String {
        let mut command = tokio::process::Command::new(kubectl);
        command.args(["get", "--raw", "/version"]).args(&self.arguments).env_clear().envs(&self.variables);
        let out = command.stdin(std::process::Stdio::null()).output().await.unwrap();
        let output = String::from_utf8_lossy(&out.stderr).into_owned();
        let last = output.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        let message = last.split_once(": dial tcp").map_or(last, |(before, _)| before).to_owned();
        self.verdict(if out.status.success() { Ok(()) } else { Err(message) })
    }
}

/// Writes a program by another process: a file that this process has open for writing cannot be run, not even after a fork
/// of another test.
fn write_program(path: &Path, text: &str) {
    use std::io::Write as _;
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "cat > \"$0\" && chmod 700 \"$0\""]).arg(path).stdin(std::process::Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success());
}

/// Replaces `{pki}`, `{text FILE}`, `{base64 FILE}`, and `{lines FILE}`: base64 in lines, as in a block of YAML.
fn filled(text: &str) -> String {
    let mut text = text.replace("{pki}", &stubs::pki().to_string_lossy());
    for (word, width) in [("{text ", 0), ("{base64 ", usize::MAX), ("{lines ", 64)] {
        while let Some((before, rest)) = text.split_once(word) {
            let (file, after) = rest.split_once('}').unwrap();
            let bytes = std::fs::read(stubs::pki().join(file)).unwrap();
            let encoded = STANDARD.encode(&bytes);
            let lines = encoded.as_bytes().chunks(width.max(1)).map(|line| std::str::from_utf8(line).unwrap());
            let put =
                if width == 0 { String::from_utf8(bytes).unwrap() } else { lines.collect::<Vec<_>>().join("\n      ") };
            text = format!("{before}{put}{after}");
        }
    }
    text
}

/// The kubectl of the control plane tests.
fn kubectl() -> PathBuf {
    let tools = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.cache/tools");
    let builds = std::fs::read_dir(tools).unwrap().map(|build| build.unwrap().path().join("bin/kubectl"));
    builds.into_iter().find(|path| path.exists()).unwrap()
}

/// Asserts that a text for users has no names of types, no quotes of Debug, and no error twice.
fn is_a_sentence(name: &str, text: &str) {
    for odd in ["Error(", "Other(", "Error:", "\\\"", "'\"", "os error", "rustls", "{ ", "Some(", "None", "(Connect)"] {
        assert!(!text.contains(odd), "{name}: {odd} in {text}");
    }
    for (index, part) in text.split(": ").enumerate() {
        let again =
            text.split(": ").skip(index + 1).any(|other| other == part || other.ends_with(&format!("({part})")));
        assert!(!again, "{name}: {part:?} twice in {text}");
    }
}

/// Each of these rows failed once, or ended the process. If kubectl accepts a row, this program accepts it and the API
/// server sees the same requests; if not, the error is one sentence.
#[tokio::test]
async fn bug_kubeconfigs_that_kubectl_accepts_were_refused() {
    let env = Env::real(1);
    let stubs = Stubs::start(&env).await;
    let kubectl = std::env::var_os("POD_SAFETY_WRITE_KCM").map(|_| kubectl());
    assert!(kubectl.is_none() || std::env::var_os("CI").is_none(), "CI records nothing");
    let writes = kubectl.is_some() || std::env::var_os("POD_SAFETY_WRITE_GOLDEN").is_some();
    let before = std::fs::read_to_string(RECORD).unwrap();
    let mut after = String::new();
    for mut row in Row::all(&before) {
        if let Some(kubectl) = &kubectl {
            row.kubectl = Fixture::for_row(&row, &stubs).kubectl(kubectl).await;
        }
        let outcome = Fixture::for_row(&row, &stubs).outcome().await;
        let Row { name, kubectl, differs, .. } = &row;
        if let Some(sentence) = outcome.strip_prefix("refuses ") {
            is_a_sentence(name, sentence.split(" [").next().unwrap_or_default());
        }
        let agree = match (kubectl.strip_prefix("accepts "), outcome.strip_prefix("accepts ")) {
            (None, None) => true,
            (theirs, outcome) => theirs == outcome,
        };
        assert!(writes || agree == differs.is_empty(), "{name}:\nkubectl {kubectl}\nours {outcome}");
        assert!(writes || outcome == row.ours, "{name}: POD_SAFETY_WRITE_GOLDEN=1 writes\n{outcome}\nfor {}", row.ours);
        row.ours = outcome;
        after += &row.to_string();
    }
    if writes {
        std::fs::write(RECORD, &after).unwrap();
        panic!("the record was written");
    }
    assert_eq!(after, before);
}
