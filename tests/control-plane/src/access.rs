//! Kubeconfigs and clients, for external programs and for service accounts.

use std::path::{Path, PathBuf};

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use crate::pki::{Pki, write};
use crate::{ControlPlane, Error};

/// Longer than any test; the API server gives no less than ten minutes.
pub(crate) const TOKEN_SECONDS: i64 = 12 * 3600;

impl ControlPlane {
    /// A client with all rights. It belongs to the runtime in which the control plane was started.
    pub fn admin(&self) -> Client {
        self.admin.clone()
    }

    /// The kubeconfig of that client, for programs.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.folder.access().join("admin.kubeconfig")
    }

    /// A client for a kubeconfig, in the current runtime. It never retries by itself: the test decides.
    pub async fn client(&self, kubeconfig: &Path) -> Result<Client, Error> {
        client(kubeconfig).await
    }

    /// Writes a kubeconfig for a user with the rights of its groups (two at most) and of its own role
    /// bindings.
    pub fn user_kubeconfig(&self, name: &str, groups: &[&str]) -> Result<PathBuf, Error> {
        user_kubeconfig(&self.pki, &self.url(), &self.folder.access(), name, groups)
    }

    /// Writes a kubeconfig for a service account, with a token like those of pods. Creates the account and its namespace if they are
    /// missing; the account has only the rights that the test binds to it.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<PathBuf, Error> {
        self.namespace(namespace).await?;
        let accounts = Api::<ServiceAccount>::namespaced(self.admin(), namespace);
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let account = ServiceAccount { metadata, ..ServiceAccount::default() };
        let create = accounts.create(&PostParams::default(), &account).await;
        existing(create).map_err(Error::api(format!("create the service account {namespace}/{name}")))?;

        let spec = TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await;
        let answer = answer.map_err(Error::api(format!("get a token for {namespace}/{name}")))?;
        let token = answer.status.ok_or(Error::Incomplete("the token"))?.token;
        let user = format!("system:serviceaccount:{namespace}:{name}");
        write_kubeconfig(&self.pki, &self.url(), &self.folder.access(), &user, &json!({ "token": token }))
    }

    /// Creates a namespace if it is missing.
    pub async fn namespace(&self, name: &str) -> Result<(), Error> {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        let create = Api::all(self.admin()).create(&PostParams::default(), &namespace).await;
        existing(create).map_err(Error::api(format!("create the namespace {name}")))
    }
}

/// As [`ControlPlane::client`], for any API server.
///
/// # Errors
/// The kubeconfig cannot be read or used.
pub async fn client(kubeconfig: &Path) -> Result<Client, Error> {
    let failed = |source| Error::Kubeconfig { path: kubeconfig.to_owned(), source: Box::new(source) };
    let parsed = Kubeconfig::read_from(kubeconfig).map_err(failed)?;
    let mut config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await.map_err(failed)?;
    config.default_retry = false;
    Client::try_from(config).map_err(Error::api(format!("make a client for {}", kubeconfig.display())))
}

pub(crate) fn user_kubeconfig(
    pki: &Pki,
    server: &str,
    folder: &Path,
    name: &str,
    groups: &[&str],
) -> Result<PathBuf, Error> {
    let (certificate, key) = pki.user(name, groups)?;
    let (certificate_file, key_file) = (file(folder, name, "crt"), file(folder, name, "key"));
    write(&certificate_file, &certificate)?;
    write(&key_file, &key)?;
    let user = json!({ "client-certificate": certificate_file, "client-key": key_file });
    write_kubeconfig(pki, server, folder, name, &user)
}

/// For the user `admin` of the group `system:masters`.
pub(crate) fn admin_kubeconfig(pki: &Pki, server: &str, folder: &Path, name: &str) -> Result<PathBuf, Error> {
    write_kubeconfig(pki, server, folder, name, &json!({ "token": pki.admin_token() }))
}

/// For a server beside the API server that accepts anonymous clients, such as a component's health endpoint.
pub(crate) fn anonymous_kubeconfig(pki: &Pki, server: &str, folder: &Path, port: u16) -> Result<PathBuf, Error> {
    write_kubeconfig(pki, server, folder, &format!("anonymous-{port}"), &json!({}))
}

/// For a server without TLS and authentication.
pub(crate) fn open_kubeconfig(folder: &Path, server: &str, port: u16) -> Result<PathBuf, Error> {
    write_config(folder, &format!("open-{port}"), &json!({ "server": server }), &json!({}))
}

/// A kubeconfig is YAML, and JSON is YAML.
fn write_kubeconfig(pki: &Pki, server: &str, folder: &Path, name: &str, user: &Value) -> Result<PathBuf, Error> {
    let cluster = json!({ "server": server, "certificate-authority": pki.authority_file() });
    write_config(folder, name, &cluster, user)
}

fn write_config(folder: &Path, name: &str, cluster: &Value, user: &Value) -> Result<PathBuf, Error> {
    let path = file(folder, name, "kubeconfig");
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "test", "cluster": cluster }],
        "users": [{ "name": name, "user": user }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": name } }],
        "current-context": "test",
    });
    write(&path, &config.to_string())?;
    Ok(path)
}

/// User names contain colons, and those of nodes any character that a node name may have.
fn file(folder: &Path, name: &str, kind: &str) -> PathBuf {
    let safe: String = name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    folder.join(format!("{safe}.{kind}"))
}

/// Treats "already exists" as success.
fn existing<T>(created: kube::Result<T>) -> kube::Result<()> {
    match created {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        other => other.map(drop),
    }
}
