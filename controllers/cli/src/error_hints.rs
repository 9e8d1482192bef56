//! Hints for errors: the name that was meant, the right that is missing, what is not installed.

use std::fmt;

use anyhow::Error;
use pod_safety_print::nearest;
use pod_safety_shared::authority::operator_requests::OperatorError;
use pod_safety_shared::client::ApiError;
use serde_json::Value;

use super::cluster::Session;
use super::rights;

/// How many names are read to find the one that was meant.
const MAX_NAMES: usize = 5_000;

const NO_API_SERVER: &str = "no API server is at this address: check the path of server in the kubeconfig";

/// A kind that can be named on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceKind {
    Node,
    Pod,
    Pdb,
    Namespace,
    Device,
    Policy,
    Set,
    Claim,
    PersistentVolume,
    Eviction,
}

impl ResourceKind {
    /// The name of the kind, the path of its collection in all namespaces, and the command that lists it.
    const fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Node => ("node", "/api/v1/nodes", "kubectl get nodes"),
            Self::Pod => ("pod", "/api/v1/pods", "kubectl get pods -A"),
            Self::Pdb => ("PodDisruptionBudget", "/apis/policy/v1/poddisruptionbudgets", "kubectl get pdb -A"),
            Self::Namespace => ("namespace", "/api/v1/namespaces", "kubectl get namespaces"),
            Self::Device => {
                ("FenceDevice", "/apis/pod-safety.dev/v1alpha1/fencedevices", "kubectl get fencedevices -A")
            }
            Self::Policy => ("FencePolicy", "/apis/pod-safety.dev/v1alpha1/fencepolicies", "kubectl get fencepolicies"),
            Self::Set => ("StatefulSet", "/apis/apps/v1/statefulsets", "kubectl get statefulsets -A"),
            Self::Claim => ("PersistentVolumeClaim", "/api/v1/persistentvolumeclaims", "kubectl get pvc -A"),
            Self::PersistentVolume => ("PersistentVolume", "/api/v1/persistentvolumes", "kubectl get pv"),
            Self::Eviction => (
                "Eviction or EvictionRequest",
                "/apis/lifecycle.k8s.io/v1alpha1/evictions",
                "kubectl get evictions,evictionrequests -A",
            ),
        }
    }

    const fn kind_name(self) -> &'static str {
        self.names().0
    }

    const fn path(self) -> &'static str {
        self.names().1
    }

    const fn list(self) -> &'static str {
        self.names().2
    }
}

/// An object that was named and does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotFound {
    kind: ResourceKind,
    namespace: Option<String>,
    name: String,
    /// What else is known, appended to the message.
    detail: String,
}

impl NotFound {
    pub(crate) fn new(kind: ResourceKind, namespace: Option<&str>, name: &str) -> Self {
        let namespace = namespace.map(str::to_owned);
        Self { kind, namespace, name: name.to_owned(), detail: String::new() }
    }

    pub(crate) fn with_detail(self, more: &str) -> Self {
        Self { detail: more.to_owned(), ..self }
    }

    /// The named object, if the error is about one that does not exist.
    fn from_error(error: &Error) -> Option<Self> {
        let kind_and_name = |error: &OperatorError| match error {
            OperatorError::NoNode(name) => Some((ResourceKind::Node, name.clone())),
            OperatorError::NoSuchPolicy(name) => Some((ResourceKind::Policy, name.clone())),
            OperatorError::NoDevice(name) => Some((ResourceKind::Device, name.clone())),
            _ => None,
        };
        if let Some(one) = error.downcast_ref::<Self>() {
            return Some(one.clone());
        }
        let (kind, name) = error.downcast_ref::<OperatorError>().and_then(kind_and_name)?;
        Some(match name.split_once('/') {
            Some((namespace, name)) => Self::new(kind, Some(namespace), name),
            None => Self::new(kind, None, &name),
        })
    }
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name, detail: more } = self;
        write!(f, "there is no {} {name}", kind.kind_name())?;
        if let Some(namespace) = namespace {
            write!(f, " in namespace {namespace}")?;
        }
        f.write_str(more)
    }
}

impl std::error::Error for NotFound {}

/// Refuses a mistyped namespace: it would have no troubles.
pub(crate) async fn check_namespace(session: &Session, namespace: &str) -> anyhow::Result<()> {
    match session.get_raw(&format!("/api/v1/namespaces/{namespace}")).await {
        Err(error) if error.is_not_found() => Err(NotFound::new(ResourceKind::Namespace, None, namespace).into()),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The same error with a hint, if there is one.
pub(crate) async fn add_hint(session: &Session, command: &str, error: Error) -> Error {
    if let Some(not_there) = NotFound::from_error(&error) {
        let text = format!("{not_there}{}", suggest_name(session, &not_there).await);
        // Other errors are recognised by their types, this one by its text.
        return Error::msg(text);
    }
    let Some(api) = error.chain().find_map(|cause| cause.downcast_ref::<ApiError>()) else { return error };
    let advice = match api {
        ApiError::Refused { code: 403, message, .. } => refusal_hint(command, message),
        error if error.is_unknown_kind() => Some(match session.get_raw("/version").await {
            Err(error) if error.is_unknown_kind() => NO_API_SERVER.to_owned(),
            _ => "are the CRDs of pod-safety installed? pod-safety manifests prints them".to_owned(),
        }),
        _ => None,
    };
    match advice {
        Some(advice) => Error::msg(format!("{}; {advice}", pod_safety_shared::record::error_chain(error.as_ref()))),
        None => error,
    }
}

/// Admission policies have hints of their own, and impersonation needs a right of another kind.
fn refusal_hint(command: &str, message: &str) -> Option<String> {
    if message.contains("cannot impersonate") {
        return Some("--as takes the right to impersonate that user: leave it out, or ask for it".to_owned());
    }
    let is_admission = message.contains("ValidatingAdmissionPolicy") || message.contains("admission webhook");
    rights::missing_rights_hint(command).filter(|_| !is_admission)
}

/// The names of a kind, each with its namespace. `None`: they could not be read.
async fn list_names(session: &Session, path: &str) -> Option<Vec<(String, String)>> {
    let joint = if path.contains('?') { '&' } else { '?' };
    let items = session.items(&format!("{path}{joint}limit={MAX_NAMES}")).await.ok()?;
    let text = |item: &Value, field: &str| item["metadata"][field].as_str().unwrap_or_default().to_owned();
    Some(items.iter().map(|item| (text(item, "namespace"), text(item, "name"))).collect())
}

/// The name that was probably meant, as the rest of a sentence.
async fn suggest_name(session: &Session, not_there: &NotFound) -> String {
    let NotFound { kind, namespace, name, .. } = not_there;
    if let Some(namespace) = namespace
        && let Some(rest) = suggest_namespace(session, *kind, namespace, name).await
    {
        return rest;
    }
    if *kind == ResourceKind::Node
        && list_names(session, &format!("/api/v1/pods?fieldSelector=spec.nodeName={name}"))
            .await
            .is_none_or(|pods| !pods.is_empty())
    {
        return ". If its Node object was deleted, pod-safety removes its pods after the quarantine".to_owned();
    }
    let Some(all) = list_names(session, kind.path()).await else { return String::new() };
    let within = |(one, _): &&(String, String)| namespace.as_ref().is_none_or(|namespace| one == namespace);
    if let Some(one) = nearest(name, all.iter().filter(within).map(|(_, name)| name.as_str())) {
        return format!(": did you mean {one}?");
    }
    let elsewhere: Vec<&str> =
        all.iter().filter(|(_, one)| one == name).map(|(namespace, _)| namespace.as_str()).collect();
    match (namespace, elsewhere.as_slice()) {
        (Some(_), [one]) => format!(": did you mean the one in namespace {one}?"),
        (Some(_), [_, ..]) => format!("; there are some in the namespaces {}", elsewhere.join(", ")),
        _ => format!(". {} shows which there are", kind.list()),
    }
}

/// Whether the namespace itself does not exist, and the name that was probably meant.
async fn suggest_namespace(session: &Session, kind: ResourceKind, namespace: &str, name: &str) -> Option<String> {
    let is_there = session.get_raw(&format!("/api/v1/namespaces/{namespace}")).await;
    if !is_there.is_err_and(|error| error.is_not_found()) {
        return None;
    }
    let all = list_names(session, ResourceKind::Namespace.path()).await.unwrap_or_default();
    let near = nearest(namespace, all.iter().map(|(_, name)| name.as_str()));
    let near = near.map_or(String::new(), |one| format!("; did you mean {one}?"));
    let objects = list_names(session, kind.path()).await.unwrap_or_default();
    let mut others = objects.iter().filter(|(_, one)| one == name).map(|(namespace, _)| namespace);
    let other = match (others.next(), near.is_empty()) {
        (None, _) => String::new(),
        (Some(one), true) => format!("; namespace {one} has a {} {name}", kind.kind_name()),
        (Some(one), false) => format!(" Namespace {one} has a {} {name}", kind.kind_name()),
    };
    Some(format!(", because there is no namespace {namespace}{near}{other}"))
}
