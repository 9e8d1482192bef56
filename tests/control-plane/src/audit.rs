//! The API server's own record of what somebody asked of it.

use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Error;

/// An audit log of one user's requests. Make it before the control plane and keep it as long.
pub struct AuditLog {
    folder: TempDir,
}

/// One answered request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditEntry {
    /// `get`, `list`, `watch`, `create`, `patch`, `delete` …
    pub verb: String,
    /// For example `pods/status`; empty for what is no resource.
    pub resource: String,
    /// Empty for what has none.
    pub namespace: String,
    /// Empty for collections.
    pub name: String,
    /// The HTTP code of the answer.
    pub code: u64,
}

impl AuditLog {
    /// A log of what `user` asks.
    pub fn of(user: &str) -> Result<Self, Error> {
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

    /// For [`Options::apiserver_args`](crate::Options::apiserver_args).
    pub fn apiserver_args(&self) -> Vec<String> {
        vec![
            format!("--audit-policy-file={}", self.policy().display()),
            format!("--audit-log-path={}", self.log().display()),
        ]
    }

    /// What was asked so far. A watch counts once it has begun, and again when it ends.
    pub fn entries(&self) -> Result<Vec<AuditEntry>, Error> {
        let path = self.log();
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read.map_err(Error::file("read", &path))?,
        };
        // The last line may still be being written.
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
