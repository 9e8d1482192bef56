//! `pod-safety explain`: why something is as it is. Reads only.
//!
//! | file | subject |
//! |---|---|
//! | `look` | what is read, as far as whoever asks may read it |
//! | `contents` | what is in a namespace |
//! | `evictions` | what is read of evictions that are requested |
//! | `pdb` | budgets, which have answers of their own |
//! | `timeline` | what happened, with durations |
//! | `volume` | what is read of a volume |

mod contents;
pub(crate) mod evictions;
mod look;
mod pdb;
mod timeline;
mod volume;

use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args as ClapArgs;
use pod_safety_explain::{
    Answer, Scene, Standing, explain_namespace, explain_node, explain_pod, explain_set,
};
use pod_safety_print::Paint;
use pod_safety_print::answers::{Document, page, sentence};
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::model::{Kind, Phase, Pod, Readiness};

use super::Exit;
use super::cluster::{ConnectArgs, Output, PrintArgs, Session, name};
use super::helped::{Named, NotThere};
use super::watch::{Shown, WatchArgs};
pub(super) use look::{Look, OURS, our_pods, refusal};
pub(super) use timeline::{DAY, TimelineArgs, Told};

/// What `-n` means here.
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

    /// With what lets go of what holds it: `resolve`.
    #[arg(skip)]
    steps: bool,

    #[command(flatten)]
    watch: WatchArgs,

    #[command(flatten)]
    print: PrintArgs,

    #[command(flatten)]
    cluster: ConnectArgs,
}

/// Of which kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Pod,
    Node,
    Set,
    Namespace,
    /// A claim or a PersistentVolume, whichever has the name.
    Volume,
    Claim,
    PersistentVolume,
    Pdb,
    /// An Eviction, or an EvictionRequest.
    Eviction,
}

/// What was named: a kind, with the name or without it, or a name alone.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Kind(What, Option<String>),
    Name(String),
}

/// The kinds that can be explained.
const KINDS: &str =
    "pod (po), node (no), statefulset (sts), namespace (ns), volume (pvc, pv), pdb or eviction";

impl Subject {
    fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((kind, of)) => match What::of(kind) {
                Some(what @ What::Eviction) => Ok(Self::Kind(what, Some(place(of)?))),
                Some(what) => Ok(Self::Kind(what, Some(name(of)?))),
                None => Err(format!("allowed is {KINDS}")),
            },
            None => match What::of(text) {
                Some(what) => Ok(Self::Kind(what, None)),
                None => name(text).map(Self::Name),
            },
        }
    }

    /// With the name that stands behind it. None as the kind: it is a node or a pod.
    fn with(self, name: Option<String>) -> Result<(Option<What>, Option<String>), BadUse> {
        match (self, name) {
            (Self::Kind(what, Some(one)), Some(other)) => Err(BadUse::TwoNames(what.word(), one, other)),
            (Self::Kind(what, one), other) => Ok((Some(what), one.or(other))),
            (Self::Name(kind), Some(_)) => Err(BadUse::NoKind(kind)),
            (Self::Name(one), None) => Ok((None, Some(one))),
        }
    }
}

/// Reads `NAME` or `NAMESPACE/NAME`.
fn place(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((namespace, of)) => Ok(format!("{}/{}", name(namespace)?, name(of)?)),
        None => name(text),
    }
}

impl What {
    fn of(kind: &str) -> Option<Self> {
        Some(match kind {
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

    const fn word(self) -> &'static str {
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

/// Names that do not fit together.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadUse {
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
        Ok(found @ Subject::Kind(What::Namespace, _)) => Ok(found),
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
        let (what, name) = self.what.clone().with(self.name.clone())?;
        if (self.selector.is_some() || self.all_namespaces) && (what != Some(What::Pdb) || name.is_some()) {
            bail!(BadUse::NoList);
        }
        let cluster = self.cluster.clone();
        if what == Some(What::Pdb) {
            return cluster
                .reach("explain pdb", async |session| pdb::explain_pdb(&session, self, name).await);
        }
        let Some(name) = name else { bail!(BadUse::NoName(what.map_or("object", What::word))) };
        if name.contains('/') && what != Some(What::Eviction) {
            bail!(BadUse::Place(name));
        }
        let command = if self.steps { "resolve" } else { "explain" };
        cluster.reach(command, async |session| {
            let what = match what {
                Some(what) => what,
                None => node_or_pod(&session, self.cluster.namespace.as_deref(), &name).await?,
            };
            self.run(session, what, name).await
        })
    }

    async fn run(self, session: Session, what: What, name: String) -> anyhow::Result<Exit> {
        let paint = self.print.paint();
        let ask = async || {
            let answer = answer(&session, what, &name, self.cluster.namespace.as_deref(), self.steps).await?;
            let document = Document::of(&answer, session.target());
            let people = || session.headed(&page(&answer, self.print.output == Output::Wide, paint));
            let text = self.print.output.text(&document, people)?;
            let line = format!("{} {}", answer.object, sentence(&answer.verdict));
            let exit = match answer.verdict.standing {
                Standing::Free | Standing::Waiting | Standing::Released => Exit::Fine,
                Standing::Unknown => Exit::Unknown,
                Standing::Blocked => Exit::Blocked,
            };
            Ok(Shown { text, line, exit: self.print.ends(exit) })
        };
        self.watch.show(&session.env, self.print.output, ask).await
    }
}

/// The answer for programs, to who asks in words: as the page of `ui` does.
pub(super) async fn asked(
    session: &Session,
    kind: &str,
    namespace: Option<&str>,
    named: &str,
) -> anyhow::Result<serde_json::Value> {
    // All of it becomes part of URLs.
    let what = What::of(kind).with_context(|| format!("{kind}: allowed is {KINDS}"))?;
    let named = name(named).map_err(anyhow::Error::msg)?;
    let namespace = namespace.map(name).transpose().map_err(anyhow::Error::msg)?;
    let answer = answer(session, what, &named, namespace.as_deref(), false).await?;
    Ok(serde_json::to_value(Document::of(&answer, session.target()))?)
}

/// The answer for people and for programs, of what `status` names.
pub(super) async fn asked_text(
    session: &Session,
    kind: &str,
    namespace: Option<&str>,
    name: &str,
) -> anyhow::Result<(String, serde_json::Value)> {
    let what = What::of(kind).with_context(|| format!("{kind}: allowed is {KINDS}"))?;
    let answer = answer(session, what, name, namespace, false).await?;
    let document = serde_json::to_value(Document::of(&answer, session.target()))?;
    Ok((session.headed(&page(&answer, true, Paint::plain())), document))
}

/// What a name alone means: a node, else a pod.
async fn node_or_pod(session: &Session, namespace: Option<&str>, name: &str) -> anyhow::Result<What> {
    match session.whole(&format!("/api/v1/nodes/{name}")).await {
        Err(error) if error.is_not_found() => {}
        Ok(_) | Err(_) => return Ok(What::Node),
    }
    let path = Kind::Pods.path_in(namespace);
    let pods = session.items(&format!("{path}?fieldSelector=metadata.name={name}&limit=1")).await;
    if pods.is_ok_and(|pods| pods.is_empty()) {
        bail!(NotThere::new(Named::Node, None, name).and(&format!(", and no pod {name} either")));
    }
    Ok(What::Pod)
}

/// The answer about one object, by what may be read now.
async fn answer(
    session: &Session,
    what: What,
    name: &str,
    given: Option<&str>,
    steps: bool,
) -> anyhow::Result<Answer> {
    let own = session.connection.default_namespace();
    let namespace = given.unwrap_or(own);
    if matches!(what, What::Volume | What::Claim | What::PersistentVolume) {
        return volume::answer(session, what, name, given).await;
    }
    if what == What::Eviction {
        return evictions::answer(session, namespace, name).await;
    }
    let mut look = Look::at(session, Some(namespace)).await?;
    let mut answer = match what {
        What::Pod => {
            let pod = found(&look, given, own, name)?;
            of_pod(session, &mut look, &pod).await
        }
        What::Node => {
            look.hear(session, "default", "Node", name).await;
            look.ask_pauses(session, Some(name)).await;
            // Of one that is well nobody asks what it holds.
            let is_well = |scene: &Scene<'_>| matches!(scene.view.node(name), Lookup::Known(node) if node.readiness == Readiness::Ready);
            if !look.scene(is_well) {
                look.ask_attachments(session).await;
            }
            let node = look.scene(|scene| explain_node(&Arc::from(name), scene));
            let Some(answer) = node else {
                match look.pods_unread() {
                    None => bail!(NotThere::new(Named::Node, None, name).and(", and no pod names it")),
                    Some((why, _)) => {
                        bail!("there is no node {name}; it is not known whether a pod names it. {why}")
                    }
                }
            };
            answer
        }
        What::Set => {
            let set = look.set(session, namespace, name).await?;
            look.hear_all(session, namespace).await;
            let begins = |pod: &Pod| *pod.key.namespace == *namespace && pod.phase == Phase::Pending;
            if look.scene(|scene| scene.view.all_pods().any(begins)) {
                look.ask_attachments(session).await;
            }
            look.scene(|scene| explain_set(&set, scene))
        }
        What::Namespace => {
            let (namespace, contents) = contents::read(session, name).await?;
            look.scene(|scene| explain_namespace(&namespace, &contents, steps, scene))
        }
        What::Volume | What::Claim | What::PersistentVolume | What::Pdb | What::Eviction => {
            bail!("a {} is explained otherwise", what.word())
        }
    };
    answer.missing.extend(look.missing());
    Ok(answer)
}

/// The answer about a pod.
async fn of_pod(session: &Session, look: &mut Look, pod: &Pod) -> Answer {
    look.hear(session, &pod.key.namespace, "Pod", &pod.key.name).await;
    look.ask_successor(session, &pod.key.namespace, &pod.key.name).await;
    // Who may delete it is said of those that end, who holds its volume of those that begin.
    if pod.deletion.is_some() {
        look.ask_policies(session).await;
    } else if pod.phase == Phase::Pending {
        look.ask_attachments(session).await;
    }
    let mut answer = look.scene(|scene| explain_pod(pod, scene));
    evictions::note(session, look, pod, &mut answer).await;
    answer
}

/// The pod of this name: in the namespace that was given, in the usual one, or in the only one that has it. That there is
/// none is said only of namespaces that were read.
fn found(look: &Look, given: Option<&str>, own: &str, name: &str) -> anyhow::Result<Pod> {
    let unread = look.pods_unread();
    look.scene(|scene| {
        let mut all: Vec<&Pod> = scene.view.all_pods().filter(|pod| *pod.key.name == *name).collect();
        all.sort_by_key(|pod| pod.key.clone());
        let within = |namespace: &str| all.iter().find(|pod| *pod.key.namespace == *namespace).copied();
        match (given, all.as_slice()) {
            (Some(namespace), _) => within(namespace).cloned().ok_or_else(|| match &unread {
                Some((why, only)) if *only != Some(namespace) => anyhow::anyhow!(
                    "it is not known whether there is a pod {name} in namespace {namespace}. {why}"
                ),
                Some(_) | None => NotThere::new(Named::Pod, Some(namespace), name).into(),
            }),
            (None, []) => match &unread {
                Some((why, Some(only))) => {
                    bail!("there is no pod {name} in namespace {only}; it is not known whether another namespace has one. {why}")
                }
                Some((why, None)) => bail!("it is not known whether there is a pod {name}. {why}"),
                None => bail!(NotThere::new(Named::Pod, None, name).and(" in any namespace")),
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
