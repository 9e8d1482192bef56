//! `pod-safety fence`, `cancel` and `withdraw`: requests of operators to fencing.

use anyhow::Context;
use clap::Args as ClapArgs;
use jiff::{SignedDuration, Timestamp};
use pod_safety_explain::plan_fencing;
use pod_safety_print::Color;
use pod_safety_shared::api::new_object;
use pod_safety_shared::authority::incident_name;
use pod_safety_shared::authority::operator_requests::{self, Drill, Examined};
use pod_safety_shared::model::Kind;
use pod_safety_shared::wire::{Encoding, Raw};
use serde_json::json;

use super::cluster::{ConnectArgs, Session, node_name};
use super::confirm_down::reason;
use super::consent::{check_confirm_flag, prompt};
use super::explain::{ClusterSnapshot, missing_leader};
use super::impact::Impact;
use super::terminal;
use super::{Exit, devices, drill, print, sanitize};

/// The phrase to type before the name of a node that reports.
const PHRASE: &str = "switch off";

/// The text below the plan of a dry run.
const NOTHING: &str =
    "Nothing was written, and nothing was switched. POWER is what the devices said when they were last checked.";

/// A kubelet renews its Lease every ten seconds, and the Lease lasts 40 s: a node whose Lease was renewed later than
/// that reports.
const REPORTING_WITHIN: SignedDuration = SignedDuration::from_secs(40);

#[derive(Debug, ClapArgs)]
#[command(after_help = crate::exit::help("fence"))]
pub struct FenceArgs {
    /// The node: it is switched off, whether it is healthy or not
    #[arg(value_name = "NODE", value_parser = node_name)]
    node: String,

    /// Why: recorded with the incident
    #[arg(long, value_name = "TEXT", value_parser = reason, required_unless_present = "dry_run")]
    reason: Option<String>,

    /// Only show the plan, and the gates that would hold it: nothing is written
    #[arg(long, conflicts_with = "confirm")]
    dry_run: bool,

    /// For a node that reports: the confirmation, instead of typing it: "switch off NODE"
    #[arg(long, value_name = "WORDS")]
    confirm: Option<String>,

    #[command(flatten)]
    cluster: ConnectArgs,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = crate::exit::help("cancel"))]
pub struct CancelArgs {
    /// The node
    #[arg(value_name = "NODE", value_parser = node_name)]
    node: String,

    #[command(flatten)]
    cluster: ConnectArgs,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = crate::exit::help("withdraw"))]
pub struct WithdrawArgs {
    /// The node
    #[arg(value_name = "NODE", value_parser = node_name)]
    node: String,

    /// Why the evidence is wrong
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: String,

    #[command(flatten)]
    cluster: ConnectArgs,
}

impl FenceArgs {
    pub(crate) fn main(self) -> anyhow::Result<Exit> {
        let cluster = self.cluster.clone();
        cluster.with_session("fence", async |session| self.run(session).await)
    }

    async fn run(self, session: Session) -> anyhow::Result<Exit> {
        session.announce();
        let examined = operator_requests::examine(&session.connection, &session.env, &self.node).await?;
        if self.dry_run {
            return self.plan(&session, &examined).await;
        }
        let by = operator_requests::whoami(&session.connection).await?;
        if !self.prompt(&session, &examined).await? {
            return Ok(Exit::Refused);
        }
        let (node, reason) = (&self.node, self.reason.as_deref().unwrap_or_default());
        let fence = drill::request(&session, &examined, &by, reason).await?;
        let leader = missing_leader(&session).await;
        print(&format!(
            "nodefence/{fence} written. See the progress: pod-safety explain node {node}, or kubectl get nodefence {fence} -w\n{leader}"
        ))?;
        Ok(Exit::Fine)
    }

    /// Prints what the controller would write, calculated here by its own decision function: nothing is written.
    async fn plan(&self, session: &Session, examined: &Examined) -> anyhow::Result<Exit> {
        let connection = &session.connection;
        let incident = operator_requests::read_incident(connection, &incident_name(&examined.node)).await?;
        let (plan, exit) = match incident {
            Some(mut incident) => {
                let Drill { name, status, .. } = &mut incident;
                let phase = status.phase.name();
                status.message = format!("nodefence/{name} is there already ({phase}): {}", status.message);
                (incident, Some(Exit::Blocked))
            }
            None => (self.simulate_drill(session, examined).await?, None),
        };
        let devices = drill::devices_of(session, examined).await?;
        let devices = devices.iter().map(|device| devices::last_result(device, examined)).collect();
        let document = drill::document(&plan, devices, session.target());
        print(&drill::page(&document, NOTHING, terminal::for_stdout(Color::Auto)))?;
        Ok(exit.unwrap_or(if document.is_blocked() { Exit::Blocked } else { Exit::Fine }))
    }

    /// A NodeFence that does not exist, with the status that it would get.
    async fn simulate_drill(&self, session: &Session, examined: &Examined) -> anyhow::Result<Drill> {
        let (name, spec) = operator_requests::plan_drill(&session.connection, examined, "a dry run").await?;
        let snapshot = ClusterSnapshot::read(session, None).await?;
        // An object needs a UID and a resourceVersion to be decided about.
        let metadata = json!({ "name": name, "uid": name, "resourceVersion": "1" });
        let object = serde_json::to_vec(&new_object("NodeFence", metadata, &spec));
        let object = Raw::from_body(Encoding::Json, object.context("supposing a NodeFence")?.into());
        snapshot.cache.insert_hypothetical(Kind::NodeFences, &object.context("supposing a NodeFence")?);
        let status = snapshot.with_context(|ctx| plan_fencing(&name, &self.node.as_str().into(), ctx));
        let status = status.map_err(|why| anyhow::anyhow!("there is no plan for node {}: {why}", self.node))?;
        Ok(Drill { uid: name.clone(), name, spec, status })
    }

    /// A node that does not report is fenced at once. For one that reports, the operator consents first, because its
    /// pods are lost.
    async fn prompt(&self, session: &Session, examined: &Examined) -> anyhow::Result<bool> {
        let (session, _version) = &session.with_server_clock().await;
        if !is_reporting(examined, session.env.clock.wall()) {
            return Ok(true);
        }
        let phrase = format!("{PHRASE} {}", self.node);
        if check_confirm_flag(&phrase, self.confirm.as_deref())?.is_some() {
            return Ok(false);
        }
        let page = match &self.confirm {
            Some(_) => String::new(),
            None => page(&self.node, &Impact::read(session, examined, terminal::for_stderr()).await?),
        };
        prompt(&phrase, self.confirm.as_deref(), || page)
    }
}

/// Whether its kubelet reported recently, by the clock of the API server.
fn is_reporting(examined: &Examined, wall: Timestamp) -> bool {
    let renewed = examined.renewed.as_deref().and_then(|at| at.parse::<Timestamp>().ok());
    examined.ready || renewed.is_some_and(|at| wall.duration_since(at) < REPORTING_WITHIN)
}

/// The page that an operator reads before typing the phrase.
fn page(node: &str, impact: &Impact) -> String {
    let by = match &impact.policy {
        Some((policy, _)) if impact.asks_a_person => {
            format!("The FencePolicy {policy} asks a person to switch the machine off. pod-safety switches nothing.")
        }
        Some((policy, spec)) => {
            let levels: Vec<&str> = spec.levels.iter().map(|level| level.name.as_str()).collect();
            format!(
                "The machine loses its power without a shutdown, by the FencePolicy {policy} (levels: {}). Its gates may delay that, but there is no further confirmation.",
                levels.join(", ")
            )
        }
        None => "No FencePolicy selects it, or none could be read: nothing is switched off.".to_owned(),
    };
    let after = if impact.is_powered_on_again() {
        "It is switched on again when its pods are gone (recovery: PowerOn)."
    } else {
        "It stays off until someone starts it (recovery: Hold)."
    };
    format!(
        "\nNODE {node} ANSWERS: IT IS NOT LOST.\n\n{}\nWhat follows:\n- {by}\n- Its pods are deleted and start elsewhere once it is proved off. Data that they have not written is lost. A PodDisruptionBudget delays this, but does not prevent it.\n- {after}\n\nInstead:\n- Move its pods away first, within their PodDisruptionBudgets:\n    pod-safety drain {node} --apply\n- See gates, levels and devices, and switch nothing:\n    pod-safety drill {node}\n- Keep it from being fenced:\n    pod-safety pause {node} --reason TEXT\n",
        impact.page,
    )
}

impl CancelArgs {
    pub(crate) fn main(self) -> anyhow::Result<Exit> {
        let cluster = self.cluster.clone();
        cluster.with_session("cancel", async |session| {
            session.announce();
            let node = operator_requests::examine(&session.connection, &session.env, &self.node).await?.node;
            let fence = operator_requests::cancel_fence(&session.connection, &node).await?;
            print(&format!(
                "nodefence/{fence} cancelled: no new attempt is begun; attempts in flight are not interrupted\n"
            ))?;
            Ok(Exit::Fine)
        })
    }
}

impl WithdrawArgs {
    pub(crate) fn main(self) -> anyhow::Result<Exit> {
        let cluster = self.cluster.clone();
        cluster.with_session("withdraw", async |session| {
            session.announce();
            let node = operator_requests::examine(&session.connection, &session.env, &self.node).await?.node;
            let all = operator_requests::withdraw(&session.connection, &session.env, &node, &self.reason).await?;
            for evidence in all {
                let line = format!(
                    "fenceevidence/{evidence} is invalidated: from now on no pod is force deleted on it. Pods that were deleted already stay gone"
                );
                print(&format!("{}\n", sanitize::line(&line)))?;
            }
            Ok(Exit::Fine)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pod_safety_shared::testing::AnswerFn;

    use super::*;
    use crate::untrusted_text::{objects, run_command, server};

    /// The answer was the name of the NodeFence and a command that prints it as YAML.
    #[test]
    fn bug_the_phase_of_an_existing_nodefence_was_not_named() {
        let cluster = server(objects(), "v1.37.2".to_owned(), false);
        let respond: Arc<AnswerFn> =
            Arc::new(move |method, path, body| match method == "POST" && path.ends_with("/nodefences") {
                true => (409, json!({ "kind": "Status", "reason": "AlreadyExists", "message": "m", "code": 409 })),
                false => cluster(method, path, body),
            });
        let line = "fence worker-b1 --reason r --confirm 'switch off worker-b1'";
        let (code, text) = run_command(line, &respond);
        let expected =
            "this boot of worker-b1 has a NodeFence (Fencing), which goes on: pod-safety explain node worker-b1\n";
        assert!(code == 1 && text.ends_with(expected), "{code}: {text}");
    }

    #[test]
    fn a_node_with_a_recent_lease_or_ready_is_reporting() {
        let wall = "2026-11-21T10:00:00Z".parse().unwrap();
        for (ready, renewed, does) in [
            (true, None, true),
            (false, Some("2026-11-21T09:59:30Z"), true),
            (false, Some("2026-11-21T09:59:20Z"), false),
            (false, None, false),
        ] {
            let node = pod_safety_shared::api::Incarnation::default();
            let renewed = renewed.map(str::to_owned);
            let examined = Examined { node, labels: Default::default(), ready, cordoned: false, renewed };
            assert_eq!(is_reporting(&examined, wall), does, "{examined:?}");
        }
    }
}
