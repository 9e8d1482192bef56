//! `pod-safety explain`: why an object is in its state. Reads only.
//!
//! | file | subject |
//! |---|---|
//! | `snapshot` | what is read, as far as the rights of the user suffice |
//! | `contents` | what is in a namespace |
//! | `evictions` | what is read of requested evictions |
//! | `pdb` | PodDisruptionBudgets, which have explanations of their own |
//! | `timeline` | what happened, with durations |
//! | `volume` | what is read of a volume |

mod contents;
pub(crate) mod evictions;
mod pdb;
mod snapshot;
mod timeline;
mod volume;

use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args as ClapArgs;
use pod_safety_explain::{Answer, ExplainContext, Verdict, explain_namespace, explain_node, explain_pod, explain_set};
use pod_safety_print::Paint;
use pod_safety_print::answers::{Document, page, sentence};
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::client::ApiError;
use pod_safety_shared::model::{Kind, Phase, Pod, Readiness};

use super::Exit;
use super::cluster::{ConnectArgs, Output, PrintArgs, Session, name};
use super::error_hints::{NotFound, ResourceKind};
use super::watch::{Rendered, WatchArgs};
pub(super) use snapshot::{ClusterSnapshot, OWN_LABEL, describe_refusal, missing_leader, own_pods};
pub(super) use timeline::{DAY, Timeline, TimelineArgs};

/// The meaning of `-n` for these commands.
const NAMESPACE: &str =
    "The namespace. Default: that of the kubeconfig's context, else the only one that has such an object";

#[derive(Debug, ClapArgs)]
#[command(after_help = crate::exit::help("explain"), mut_arg("namespace", |arg| arg.help(NAMESPACE)))]
pub struct Args {
    /// The kind: pod (po), node (no), statefulset (sts), namespace (ns), volume (a pvc or a pv), pdb or eviction; or kind and name, as
    /// in pod/NAME; or the name of a node or a pod alone
    #[arg(value_name = "KIND[/NAME]", value_parser = Subject::parse)]
    what: Subject,

    /// The name; of an eviction also NAMESPACE/NAME. Without a name, pdb prints a table of all of them
    #[arg(value_name = "NAME", value_parser = place)]
    name: Option<String>,

    /// All namespaces; only for pdb without a name, where it is the default
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,

    /// Only objects with these labels; only for pdb without a name
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,

    /// Also print the steps that release what blocks: `resolve`.
    #[arg(skip)]
    steps: bool,

    #[command(flatten)]
    watch: WatchArgs,

    #[command(flatten)]
    print: PrintArgs,

    #[command(flatten)]
    cluster: ConnectArgs,
}

/// The kind of the object to explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SubjectKind {
    Pod,
    Node,
    Set,
    Namespace,
    /// A PersistentVolumeClaim or a PersistentVolume, whichever has the name.
    Volume,
    Claim,
    PersistentVolume,
    Pdb,
    /// An Eviction, or an EvictionRequest.
    Eviction,
}

/// What was named: a kind, with a name or without one, or a name alone.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Kind(SubjectKind, Option<String>),
    Name(String),
}

/// The kinds that can be explained.
const KINDS: &str = "pod (po), node (no), statefulset (sts), namespace (ns), volume (pvc, pv), pdb or eviction";

impl Subject {
    fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((kind, of)) => match SubjectKind::from_alias(kind) {
                Some(what @ SubjectKind::Eviction) => Ok(Self::Kind(what, Some(place(of)?))),
                Some(what) => Ok(Self::Kind(what, Some(name(of)?))),
                None => Err(format!("allowed is {KINDS}")),
            },
            None => match SubjectKind::from_alias(text) {
                Some(what) => Ok(Self::Kind(what, None)),
                None => name(text).map(Self::Name),
            },
        }
    }

    /// The kind and the name, with the name argument that follows. `None` as the kind: a node or a pod.
    fn with_name(self, name: Option<String>) -> Result<(Option<SubjectKind>, Option<String>), UsageError> {
        match (self, name) {
            (Self::Kind(what, Some(one)), Some(other)) => Err(UsageError::TwoNames(what.kind_name(), one, other)),
            (Self::Kind(what, one), other) => Ok((Some(what), one.or(other))),
            (Self::Name(kind), Some(_)) => Err(UsageError::NoKind(kind)),
            (Self::Name(one), None) => Ok((None, Some(one))),
        }
    }
}

/// Parses `NAME` or `NAMESPACE/NAME`.
fn place(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((namespace, of)) => Ok(format!("{}/{}", name(namespace)?, name(of)?)),
        None => name(text),
    }
}

impl SubjectKind {
    fn from_alias(kind: &str) -> Option<Self> {
        // kubectl takes kinds in any case, and Events write `StatefulSet/db`.
        Some(match &*kind.to_ascii_lowercase() {
            "pod" | "pods" | "po" => Self::Pod,
            "node" | "nodes" | "no" => Self::Node,
            "statefulset" | "statefulsets" | "sts" => Self::Set,
            "namespace" | "namespaces" | "ns" => Self::Namespace,
            "volume" | "volumes" | "vol" => Self::Volume,
            "persistentvolumeclaim" | "persistentvolumeclaims" | "pvc" => Self::Claim,
            "persistentvolume" | "persistentvolumes" | "pv" => Self::PersistentVolume,
            "eviction" | "evictions" | "evictionrequest" | "evictionrequests" => Self::Eviction,
            "pdb" | "pdbs" | "poddisruptionbudget" | "poddisruptionbudgets" => Self::Pdb,
            _ => return None,
        })
    }

    const fn kind_name(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Node => "node",
            Self::Set => "statefulset",
            Self::Namespace => "namespace",
            Self::Volume => "volume",
            Self::Claim => "pvc",
            Self::PersistentVolume => "pv",
            Self::Pdb => "pdb",
            Self::Eviction => "eviction",
        }
    }
}

/// A wrong combination of arguments.
#[derive(Debug, thiserror::Error)]
pub(super) enum UsageError {
    /// `pod/a b`.
    #[error("one name is enough: {0}/{1} or {0} {2}")]
    TwoNames(&'static str, String, String),
    /// `pod a -l app=b`.
    #[error("--selector and --all-namespaces are for a list: only pdb without a name prints one")]
    NoList,
    /// `pod shop/a`.
    #[error("{0}: only an eviction is named with its namespace. Give it by --namespace")]
    Place(String),
    /// `timeline pdb`.
    #[error("there is no timeline of a {0}: allowed is pod (po) or node (no)")]
    NoTimeline(&'static str),
    /// `pdo orders-1`.
    #[error("there is no kind {0}: allowed is {KINDS}")]
    NoKind(String),
    /// `pod`.
    #[error("which {0}? Give its name: {0} NAME")]
    NoName(&'static str),
}

/// `resolve` is `explain` with the steps that let go.
#[derive(Debug, ClapArgs)]
#[command(after_help = crate::exit::help("resolve"))]
pub struct ResolveArgs {
    /// The kind: namespace (ns); or kind and name, as in namespace/NAME
    #[arg(value_name = "KIND[/NAME]", value_parser = namespace_kind)]
    what: Subject,

    /// Which one
    #[arg(value_name = "NAME", value_parser = name)]
    name: Option<String>,

    #[command(flatten)]
    print: PrintArgs,

    #[command(flatten)]
    cluster: ConnectArgs,
}

fn namespace_kind(text: &str) -> Result<Subject, String> {
    match Subject::parse(text) {
        Ok(subject @ Subject::Kind(SubjectKind::Namespace, _)) => Ok(subject),
        Ok(_) | Err(_) => Err("allowed is namespace (ns)".to_owned()),
    }
}

impl ResolveArgs {
    pub(super) fn main(self) -> anyhow::Result<Exit> {
        let Self { what, name, print, cluster } = self;
        let watch = WatchArgs::default();
        let (selector, all_namespaces) = (None, false);
        Args { what, name, all_namespaces, selector, steps: true, watch, print, cluster }.main()
    }
}

impl Args {
    pub(super) fn main(self) -> anyhow::Result<Exit> {
        let (what, name) = self.what.clone().with_name(self.name.clone())?;
        if (self.selector.is_some() || self.all_namespaces) && (what != Some(SubjectKind::Pdb) || name.is_some()) {
            bail!(UsageError::NoList);
        }
        let cluster = self.cluster.clone();
        if what == Some(SubjectKind::Pdb) {
            return cluster.with_session("explain pdb", async |session| pdb::explain_pdb(&session, self, name).await);
        }
        let Some(name) = name else { bail!(UsageError::NoName(what.map_or("object", SubjectKind::kind_name))) };
        if name.contains('/') && what != Some(SubjectKind::Eviction) {
            bail!(UsageError::Place(name));
        }
        let command = if self.steps { "resolve" } else { "explain" };
        cluster.with_session(command, async |session| {
            let what = match what {
                Some(what) => what,
                None => node_or_pod(&session, self.cluster.namespace.as_deref(), &name).await?,
            };
            self.run(session, what, name).await
        })
    }

    async fn run(self, session: Session, what: SubjectKind, name: String) -> anyhow::Result<Exit> {
        let paint = self.print.paint();
        let render_once = async || {
            let answer = explain_object(&session, what, &name, self.cluster.namespace.as_deref(), self.steps).await?;
            let document = Document::new(&answer, session.target());
            let render = || session.with_header(&page(&answer, self.print.output == Output::Wide, paint));
            let text = self.print.output.text(&document, render)?;
            let line = format!("{} {}", answer.object, sentence(&answer.judgement));
            let exit = match answer.judgement.verdict {
                Verdict::Free | Verdict::Waiting | Verdict::Released => Exit::Fine,
                Verdict::Unknown => Exit::Unknown,
                Verdict::Blocked => Exit::Blocked,
            };
            Ok(Rendered { text, line, exit: self.print.final_exit(exit) })
        };
        self.watch.render_loop(&session.env, self.print.output, render_once).await
    }
}

/// The explanation for programs, given the kind as text, as the page of `ui` sends it.
pub(super) async fn explain_json(
    session: &Session,
    kind: &str,
    namespace: Option<&str>,
    named: &str,
) -> anyhow::Result<serde_json::Value> {
    // All of it becomes part of URLs.
    let what = SubjectKind::from_alias(kind).with_context(|| format!("{kind}: allowed is {KINDS}"))?;
    let named = name(named).map_err(anyhow::Error::msg)?;
    let namespace = namespace.map(name).transpose().map_err(anyhow::Error::msg)?;
    let answer = explain_object(session, what, &named, namespace.as_deref(), false).await?;
    Ok(serde_json::to_value(Document::new(&answer, session.target()))?)
}

/// The explanation for operators and for programs, of an object that `status` names.
pub(super) async fn explain_text(
    session: &Session,
    kind: &str,
    namespace: Option<&str>,
    name: &str,
) -> anyhow::Result<(String, serde_json::Value)> {
    let what = SubjectKind::from_alias(kind).with_context(|| format!("{kind}: allowed is {KINDS}"))?;
    let answer = explain_object(session, what, name, namespace, false).await?;
    let document = serde_json::to_value(Document::new(&answer, session.target()))?;
    Ok((session.with_header(&page(&answer, true, Paint::plain())), document))
}

/// The kind of an object given by its name alone: a node, else a pod. Without the right to list nodes it may be either.
async fn node_or_pod(session: &Session, namespace: Option<&str>, name: &str) -> anyhow::Result<SubjectKind> {
    let find = async |path: String| {
        let items = session.items(&format!("{path}?fieldSelector=metadata.name={name}")).await?;
        Ok::<_, ApiError>(items.iter().any(|one| one["metadata"]["name"] == *name))
    };
    let is_node = find(Kind::Nodes.path_in(None)).await;
    if matches!(is_node, Ok(true)) {
        return Ok(SubjectKind::Node);
    }
    match (is_node, find(Kind::Pods.path_in(namespace)).await, namespace) {
        (Ok(_), Ok(false), Some(namespace)) => {
            let pod = NotFound::new(ResourceKind::Pod, Some(namespace), name);
            bail!(pod.with_detail(&format!(" (and no node {name})")))
        }
        (Ok(_), Ok(false), None) => {
            bail!(NotFound::new(ResourceKind::Node, None, name).with_detail(&format!(", and no pod {name} either")))
        }
        (Err(_), Ok(false), _) => Ok(SubjectKind::Node),
        (_, Ok(true) | Err(_), _) => Ok(SubjectKind::Pod),
    }
}

/// The explanation of one object, by what may be read now.
async fn explain_object(
    session: &Session,
    what: SubjectKind,
    name: &str,
    given: Option<&str>,
    steps: bool,
) -> anyhow::Result<Answer> {
    let own = session.connection.default_namespace();
    let namespace = given.unwrap_or(own);
    if matches!(what, SubjectKind::Volume | SubjectKind::Claim | SubjectKind::PersistentVolume) {
        return volume::answer(session, what, name, given).await;
    }
    if what == SubjectKind::Eviction {
        return evictions::answer(session, namespace, name).await;
    }
    let mut snapshot = ClusterSnapshot::read(session, Some(namespace)).await?;
    let mut answer = match what {
        SubjectKind::Pod => {
            let pod = find_pod(&snapshot, given, own, name)?;
            answer_for_pod(session, &mut snapshot, &pod).await
        }
        SubjectKind::Node => {
            snapshot.read_events(session, "default", "Node", name).await;
            snapshot.read_pauses(session, Some(name)).await;
            // For a Ready node the attachments are not read.
            let is_well = |ctx: &ExplainContext<'_>| matches!(ctx.view.node(name), Lookup::Known(node) if node.readiness == Readiness::Ready);
            if !snapshot.with_context(is_well) {
                snapshot.read_attachments(session).await;
            }
            let node = snapshot.with_context(|ctx| explain_node(&Arc::from(name), ctx));
            node.ok_or_else(|| missing_node(&snapshot, name))?
        }
        SubjectKind::Set => {
            let set = snapshot.read_set(session, namespace, name).await?;
            snapshot.read_namespace_events(session, namespace).await;
            let is_pending = |pod: &Pod| *pod.key.namespace == *namespace && pod.phase == Phase::Pending;
            if snapshot.with_context(|ctx| ctx.view.all_pods().any(is_pending)) {
                snapshot.read_attachments(session).await;
            }
            snapshot.with_context(|ctx| explain_set(&set, ctx))
        }
        SubjectKind::Namespace => {
            let (namespace, contents) = contents::read(session, name).await?;
            snapshot.with_context(|ctx| explain_namespace(&namespace, &contents, steps, ctx))
        }
        SubjectKind::Volume
        | SubjectKind::Claim
        | SubjectKind::PersistentVolume
        | SubjectKind::Pdb
        | SubjectKind::Eviction => {
            bail!("a {} is explained otherwise", what.kind_name())
        }
    };
    answer.missing.extend(snapshot.missing());
    Ok(answer)
}

/// Neither a Node nor a pod that names it was read. It is reported as absent only if all nodes were read.
fn missing_node(snapshot: &ClusterSnapshot, name: &str) -> anyhow::Error {
    match snapshot.pods_unread() {
        _ if !snapshot.with_context(|ctx| ctx.has_all(&[Kind::Nodes])) => {
            anyhow::anyhow!("you may not list nodes: it is not known whether there is a node {name}")
        }
        None => NotFound::new(ResourceKind::Node, None, name).with_detail(", and no pod names it").into(),
        Some((why, _)) => anyhow::anyhow!("there is no node {name}; it is not known whether a pod names it. {why}"),
    }
}

/// The explanation of a pod.
async fn answer_for_pod(session: &Session, snapshot: &mut ClusterSnapshot, pod: &Pod) -> Answer {
    snapshot.read_events(session, &pod.key.namespace, "Pod", &pod.key.name).await;
    snapshot.read_successor(session, &pod.key.namespace, &pod.key.name).await;
    // The admission policies are relevant for a pod that is being deleted, the attachments for a pod that starts.
    if pod.deletion.is_some() {
        snapshot.read_policies(session).await;
    } else if pod.phase == Phase::Pending {
        snapshot.read_attachments(session).await;
    }
    let mut answer = snapshot.with_context(|ctx| explain_pod(pod, ctx));
    evictions::add_note(session, snapshot, pod, &mut answer).await;
    answer
}

/// The pod of this name: in the given namespace, in the default one, or in the only one that has it. It is reported as
/// absent only if the namespace was read.
fn find_pod(snapshot: &ClusterSnapshot, given: Option<&str>, own: &str, name: &str) -> anyhow::Result<Pod> {
    let unread = snapshot.pods_unread();
    snapshot.with_context(|ctx| {
        let mut all: Vec<&Pod> = ctx.view.all_pods().filter(|pod| *pod.key.name == *name).collect();
        all.sort_by_key(|pod| pod.key.clone());
        let within = |namespace: &str| all.iter().find(|pod| *pod.key.namespace == *namespace).copied();
        match (given, all.as_slice()) {
            (Some(namespace), _) => within(namespace).cloned().ok_or_else(|| match &unread {
                Some((why, only)) if *only != Some(namespace) => anyhow::anyhow!(
                    "it is not known whether there is a pod {name} in namespace {namespace}. {why}"
                ),
                Some(_) | None => NotFound::new(ResourceKind::Pod, Some(namespace), name).into(),
            }),
            (None, []) => match &unread {
                Some((why, Some(only))) => {
                    bail!("there is no pod {name} in namespace {only}; it is not known whether another namespace has one. {why}")
                }
                Some((why, None)) => bail!("it is not known whether there is a pod {name}. {why}"),
                None => bail!(NotFound::new(ResourceKind::Pod, None, name).with_detail(" in any namespace")),
            },
            (None, [one]) => Ok((*one).clone()),
            (None, several) => match within(own) {
                Some(pod) => Ok(pod.clone()),
                None => {
                    let namespaces: Vec<&str> = several.iter().map(|pod| &*pod.key.namespace).collect();
                    bail!(
                        "{} pods are named {name}, in the namespaces {}. Choose one with -n",
                        several.len(),
                        namespaces.join(" and ")
                    )
                }
            },
        }
    })
}

#[cfg(test)]
mod tests;
