//! The API server's audit log of one user's requests.

use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{ControlPlane, Error, Options};

/// The number of lease renewals in the five seconds of design §8.
const MAX_AFTER_EVIDENCE: usize = 10;

/// An audit log of one user's requests: see [`ControlPlane::audited`].
pub struct AuditLog {
    folder: TempDir,
}

/// One answered request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditEntry {
    /// `get`, `list`, `watch`, `create`, `patch`, `delete` …
    pub verb: String,
    /// For example `pods/status`; empty for requests without a resource.
    pub resource: String,
    /// Empty for cluster-scoped resources.
    pub namespace: String,
    /// Empty for collections.
    pub name: String,
    /// The HTTP code of the answer.
    pub code: u64,
}

impl AuditEntry {
    /// Whether it is this request for this object.
    pub fn matches(&self, verb: &str, resource: &str, name: &str) -> bool {
        self.verb == verb && self.resource == resource && self.name == name
    }
}

impl ControlPlane {
    /// Starts a control plane with the usual options and a log of what `user` requests. Keep the log while the control plane runs.
    pub async fn audited(user: &str) -> Result<(AuditLog, Self), Error> {
        let audit = AuditLog::for_user(user)?;
        let options = Options { apiserver_args: audit.apiserver_args(), ..Options::default() };
        Ok((audit, Self::start(options).await?))
    }
}

impl AuditLog {
    fn for_user(user: &str) -> Result<Self, Error> {
        let folder = tempfile::tempdir().map_err(Error::file("create a folder in", &std::env::temp_dir()))?;
        let log = Self { folder };
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{ "level": "Metadata", "users": [user] }, { "level": "None" }],
        });
        crate::pki::write(&log.policy(), &policy.to_string())?;
        Ok(log)
    }

    fn policy(&self) -> PathBuf {
        self.folder.path().join("policy.yaml")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("audit.log")
    }

    fn apiserver_args(&self) -> Vec<String> {
        vec![
            format!("--audit-policy-file={}", self.policy().display()),
            format!("--audit-log-path={}", self.log().display()),
        ]
    }

    /// How often this request for this object was made so far.
    pub fn count(&self, verb: &str, resource: &str, name: &str) -> Result<usize, Error> {
        Ok(self.entries()?.iter().filter(|entry| entry.matches(verb, resource, name)).count())
    }

    /// How often pod-safety renewed its lease between two of its requests, the first of each kind; `None` if one of them was never made. This
    /// clock slows down with everything else on a busy machine: half a second or more from one renewal to the next.
    pub fn renewals(
        &self,
        from: impl Fn(&AuditEntry) -> bool,
        to: impl Fn(&AuditEntry) -> bool,
    ) -> Result<Option<usize>, Error> {
        let entries = self.entries()?;
        let Some((_, after)) = entries.iter().position(from).map(|at| entries.split_at(at)) else {
            return Ok(None);
        };
        let Some((between, _)) = after.iter().position(to).map(|at| after.split_at(at)) else {
            return Ok(None);
        };
        let renewal =
            |entry: &&AuditEntry| entry.namespace == "kube-system" && entry.matches("patch", "leases", "pod-safety");
        Ok(Some(between.iter().filter(renewal).count()))
    }

    /// Asserts design §8 about the time after the evidence that a node is off, relative to the time that the evidence took: `done` came no
    /// later after the evidence than the evidence after the incident, plus five seconds.
    pub fn was_soon_after_evidence(&self, node: &str, done: impl Fn(&AuditEntry) -> bool) -> Result<(), String> {
        let made = |resource: &'static str| {
            let begins = format!("{node}-");
            move |entry: &AuditEntry| {
                entry.verb == "create" && entry.resource == resource && entry.name.starts_with(&begins)
            }
        };
        let to_text = |error| format!("{error:?}");
        let proof = self.renewals(made("nodefences"), made("fenceevidences")).map_err(to_text)?;
        let rest = self.renewals(made("fenceevidences"), done).map_err(to_text)?;
        match (proof, rest) {
            (Some(proof), Some(rest)) if rest <= proof + MAX_AFTER_EVIDENCE => Ok(()),
            other => Err(format!("{node}: renewals until the proof, and after it: {other:?}")),
        }
    }

    /// The requests so far, in the order of the answers. A watch counts once it has begun, and again when it ends.
    pub fn entries(&self) -> Result<Vec<AuditEntry>, Error> {
        let path = self.log();
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read.map_err(Error::file("read", &path))?,
        };
        // The last line may be incomplete.
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).map(|line| entry(&line)).collect())
    }
}

fn entry(line: &Value) -> AuditEntry {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = &line["objectRef"];
    let (resource, sub) = (text(&object["resource"]), text(&object["subresource"]));
    AuditEntry {
        verb: text(&line["verb"]),
        resource: if sub.is_empty() { resource } else { format!("{resource}/{sub}") },
        namespace: text(&object["namespace"]),
        name: text(&object["name"]),
        code: line["responseStatus"]["code"].as_u64().unwrap_or(0),
    }
}
