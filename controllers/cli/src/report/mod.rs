//! `pod-safety report`: what the user may read of the cluster, in a folder, for support. Reads only.
//!
//! | file | content |
//! |---|---|
//! | `README.md` | when, by which version, what is in it, what could not be read |
//! | `status`, `doctor`, `timeline` | the output of those commands, as `.txt` and as `.json` |
//! | `explain/` | explanations of what needs an operator |
//! | `objects/` | the objects that they are based on |
//! | `logs/` | logs of the pods of pod-safety |
//!
//! Invariants: no Secret and no ConfigMap is read; everything is written through [`redact`]; what cannot be read is
//! listed in the README, and the rest is written.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args as ClapArgs;
use pod_safety_print::{Paint, redact};
use pod_safety_shared::client::Target;
use pod_safety_shared::record::error_chain;
use serde_json::{Value, json};

use super::cluster::{ConnectArgs, Output, Session};
use super::explain::{DAY, Timeline, explain_text, own_pods};
use super::status::StatusReport;
use super::{Exit, doctor, pluralize, print, sanitize};

/// How many objects are explained: in an outage, the first ones show as much as all.
const MAX_EXPLAINED: usize = 20;

/// Lists of objects, and their files.
const OBJECTS: [(&str, &str); 13] = [
    ("nodes", "/api/v1/nodes"),
    ("node-leases", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"),
    ("nodefences", "/apis/pod-safety.dev/v1alpha1/nodefences"),
    ("fenceevidences", "/apis/pod-safety.dev/v1alpha1/fenceevidences"),
    ("fencepolicies", "/apis/pod-safety.dev/v1alpha1/fencepolicies"),
    ("fencedevices", "/apis/pod-safety.dev/v1alpha1/fencedevices"),
    ("podsafetyremediations", "/apis/pod-safety.dev/v1alpha1/podsafetyremediations"),
    ("poddisruptionbudgets", "/apis/policy/v1/poddisruptionbudgets"),
    ("volumeattachments", "/apis/storage.k8s.io/v1/volumeattachments"),
    ("validatingadmissionpolicybindings", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"),
    ("warnings", "/api/v1/events?limit=1000&fieldSelector=type=Warning"),
    ("events-of-pod-safety", "/api/v1/events?limit=1000&fieldSelector=reportingComponent=pod-safety"),
    ("leader-leases", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"),
];

#[derive(Debug, ClapArgs)]
#[command(after_help = crate::exit::help("report"))]
pub struct Args {
    /// The folder, which must not exist yet. Default: pod-safety-report- and the time, in the current folder
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,

    /// How many of the last log lines of each pod of pod-safety to include; 0: none
    #[arg(long, value_name = "COUNT", default_value_t = 2_000)]
    log_lines: u32,

    #[command(flatten)]
    cluster: ConnectArgs,
}

/// The folder of the report, and its files.
struct Folder {
    path: PathBuf,
    files: Vec<String>,
    missing: Vec<String>,
}

impl Folder {
    /// Creates the folder, readable by the user only.
    fn new(path: PathBuf) -> anyhow::Result<Self> {
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("--into {}: the folder cannot be made", path.display()))?;
        Ok(Self { path, files: Vec::new(), missing: Vec::new() })
    }

    /// All files are written here. A file that cannot be written is listed as missing, and the rest is written.
    fn write(&mut self, name: &str, text: &str) {
        let path = self.path.join(name);
        let write = || -> std::io::Result<()> {
            if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
                std::fs::DirBuilder::new().mode(0o700).create(folder)?;
            }
            let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            file.write_all(sanitize::page(&redact::redact_text(text)).as_bytes())
        };
        match write() {
            Ok(()) => self.files.push(name.to_owned()),
            Err(error) => self.missing.push(format!("{name}: it cannot be written: {error}")),
        }
    }

    /// Writes the text for operators and the document for programs, or records the error.
    fn write_both(&mut self, name: &str, result: anyhow::Result<(String, Value)>) {
        match result {
            Ok((text, document)) => {
                self.write(&format!("{name}.txt"), &text);
                self.write(&format!("{name}.json"), &format!("{document:#}\n"));
            }
            Err(error) => self.missing.push(format!("{name}: {}", error_chain(error.as_ref()))),
        }
    }
}

impl Args {
    pub(super) fn main(self) -> anyhow::Result<Exit> {
        let cluster = self.cluster.clone();
        cluster.with_session("report", async |session| self.run(session).await)
    }

    async fn run(self, session: Session) -> anyhow::Result<Exit> {
        let at = session.env.clock.wall();
        // If the cluster cannot be reached at all, the command fails before it creates a folder.
        let seen = StatusReport::read(&session).await?;
        let name = format!("pod-safety-report-{}", format!("{at:.0}").replace(':', "-"));
        let mut folder = Folder::new(self.into.unwrap_or_else(|| PathBuf::from(name)))?;
        folder.write_both("status", Ok((seen.text(Paint::plain()), json!(seen.document()))));
        folder.write_both("doctor", doctor::diagnose(&session).await);
        let timeline = Timeline::read_cluster(&session, DAY).await;
        folder.write_both(
            "timeline",
            timeline.map(|timeline| (timeline.text(Paint::plain()), json!(timeline.document(session.target())))),
        );
        for (kind, namespace, name) in seen.subjects().into_iter().take(MAX_EXPLAINED) {
            let file = match &namespace {
                Some(namespace) => format!("explain/{kind}-{namespace}-{name}"),
                None => format!("explain/{kind}-{name}"),
            };
            let answer = explain_text(&session, kind, namespace.as_deref(), &name).await;
            folder.write_both(&file, answer);
        }
        write_objects(&session, &mut folder).await;
        write_pods(&session, &mut folder, self.log_lines).await;
        let readme = readme(&folder, session.target(), &seen.server, at);
        folder.write("README.md", &readme);
        print(&closing_note(&folder, session.target()))?;
        Ok(if folder.missing.is_empty() { Exit::Fine } else { Exit::Unknown })
    }
}

async fn write_objects(session: &Session, folder: &mut Folder) {
    for (name, path) in OBJECTS {
        match session.items(path).await {
            Ok(items) => write_list(folder, name, items, redact::redact_object),
            Err(error) => folder.missing.push(format!("objects/{name}: {}", error_chain(&error))),
        }
    }
}

fn write_list(folder: &mut Folder, name: &str, mut items: Vec<Value>, redact: fn(&mut Value)) {
    items.iter_mut().for_each(redact);
    let document = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    match Output::Yaml.text(&document, String::new) {
        Ok(text) => folder.write(&format!("objects/{name}.yaml"), &text),
        Err(error) => folder.missing.push(format!("objects/{name}: {}", error_chain(error.as_ref()))),
    }
}

/// Writes the pods of pod-safety and their logs, and the pods that are being deleted.
async fn write_pods(session: &Session, folder: &mut Folder, log_lines: u32) {
    match session.items("/api/v1/pods").await {
        Ok(mut all) => {
            all.retain(|pod| !pod["metadata"]["deletionTimestamp"].is_null());
            write_list(folder, "terminating-pods", all, redact::redact_pod);
        }
        Err(error) => folder.missing.push(format!("objects/terminating-pods: {}", error_chain(&error))),
    }
    let own = match own_pods(session).await {
        Ok(own) => own,
        Err(error) => {
            folder.missing.push(format!("logs: {}", error_chain(&error)));
            return;
        }
    };
    for pod in &own {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        let file = format!("{namespace}-{name}");
        for (file, previous) in [(file.clone(), false), (format!("{file}-before"), true)] {
            if log_lines == 0 {
                continue;
            }
            let path = format!(
                "/api/v1/namespaces/{namespace}/pods/{name}/log?tailLines={log_lines}&timestamps=true&previous={previous}"
            );
            match session.connection.read_text(&path).await {
                Ok(log) => folder.write(&format!("logs/{file}.log"), &log),
                // Most containers have no previous instance.
                Err(_) if previous => {}
                Err(error) => folder.missing.push(format!("logs/{file}: {}", error_chain(&error))),
            }
        }
    }
    write_list(folder, "pods-of-pod-safety", own, redact::redact_own_pod);
}

fn readme(folder: &Folder, target: &Target, server: &str, at: jiff::Timestamp) -> String {
    let server = if server.is_empty() { "of a version that could not be read" } else { server };
    let server = sanitize::line(server);
    let mut text = format!(
        "# Report of pod-safety {}\n\nMade at {at:.0} of a cluster {server} ({target}). Begin with `status.txt`.\n\n\
        Removed: Secrets and ConfigMaps (never read), values of parameters of fence devices, everything of pods except names,\n\
        places and states, foreign annotations, and what looks like a login in texts and logs. Kept: names of objects, of people and of\n\
        machines, and addresses. Review it before you send it.\n\n## In it\n\n",
        env!("CARGO_PKG_VERSION")
    );
    for file in &folder.files {
        let _infallible = writeln!(text, "- {file}");
    }
    text.push_str("\n## Not in it\n\n");
    for missing in &folder.missing {
        let _infallible = writeln!(text, "- {}", sanitize::line(missing));
    }
    if folder.missing.is_empty() {
        text.push_str("Everything could be read.\n");
    }
    text
}

/// What to do with the report.
fn closing_note(folder: &Folder, target: &Target) -> String {
    let Folder { path, files, missing } = folder;
    let path = path.display();
    let name =
        Path::new(&path.to_string()).file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    let refused = match missing.len() {
        0 => String::new(),
        count => format!(" {} could not be read: its README.md lists them.", pluralize(count, "part")),
    };
    format!(
        "Cluster: {target}\n{} files in {path}.{refused} Review them, then pack them:\n    tar -czf {name}.tar.gz {path}\n",
        files.len()
    )
}

#[cfg(test)]
mod tests;
