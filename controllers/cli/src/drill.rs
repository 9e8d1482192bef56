//! `pod-safety drill`: what the controller would do if a node were lost, by its own decision; with `--really`, it is
//! done to a canary.
//!
//! It checks three things: which gates hold, and their numbers; by which level the node would be fenced; and whether
//! each device of the policy answers for the node. A drill with `--really` is an ordinary incident that an operator
//! requested, of a node that was labelled as a canary and drained before.

mod watchdog;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context;
use clap::Args as ClapArgs;
use pod_safety_drain::Consent;
use pod_safety_explain::pluralize;
use pod_safety_print::{Paint, Tone};
use pod_safety_shared::api::{Phase, Recovery};
use pod_safety_shared::authority::operator_requests::{self, Device, Drill, Examined, OperatorError};
use pod_safety_shared::client::Target;
use pod_safety_shared::clock::Mono;
use serde::Serialize;

use super::cluster::{ConnectArgs, PrintArgs, Session, node_name};
use super::confirm_down::{map_refusal, reason};
use super::consent::prompt;
use super::devices::{self, DeviceResult};
use super::doctor::{describe_unresponsive, print_reason};
use super::drain::snapshot::DrainSnapshot;
use super::progress::announce_wait;
use super::{API_VERSION, Exit, duration, print, print_stderr, sanitize};

/// How often the progress is read.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The phrase to type before the node's name.
const PHRASE: &str = "switch off";

/// The line below the plan.
const SWITCHED: &str = "Nothing was switched.";

/// The label that allows a node to be switched off for a drill.
const CANARY: &str = "pod-safety.dev/canary";

#[derive(Debug, ClapArgs)]
#[command(after_help = crate::exit::help("drill"))]
pub struct Args {
    /// The node
    #[arg(value_name = "NODE", value_parser = node_name)]
    node: String,

    /// Switch the node off, prove that, and wait until it is back: only for a canary that is cordoned and empty
    #[arg(long, conflicts_with = "output")]
    really: bool,

    /// Have the watchdog of the node reset it, and record whether it was on time: only for a canary that is cordoned and empty
    #[arg(long, conflicts_with_all = ["really", "output"])]
    watchdog: bool,

    /// The confirmation, instead of typing it: "switch off NODE", with --watchdog "reset NODE"
    #[arg(long, value_name = "WORDS")]
    confirm: Option<String>,

    /// Why: recorded with the incident
    #[arg(long, value_name = "TEXT", value_parser = reason, default_value = "a drill")]
    reason: String,

    /// How long to wait; a real drill takes as long as the machine needs to boot. Default: 2m, with --really or --watchdog 15m
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    timeout: Option<Duration>,

    #[command(flatten)]
    print: PrintArgs,

    #[command(flatten)]
    cluster: ConnectArgs,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Gate {
    name: String,
    holds: bool,
    message: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document<'a> {
    api_version: &'static str,
    kind: &'static str,
    cluster: &'a Target,
    node: String,
    policy: String,
    /// What would be done, or what holds it.
    plan: String,
    gates: Vec<Gate>,
    devices: Vec<DeviceResult>,
}

impl Args {
    pub(crate) fn main(self) -> anyhow::Result<Exit> {
        let cluster = self.cluster.clone();
        map_refusal(cluster.with_session("drill", async |session| self.run(session).await))
    }

    async fn run(self, session: Session) -> anyhow::Result<Exit> {
        session.announce();
        let examined = operator_requests::examine(&session.connection, &session.env, &self.node).await?;
        if self.really {
            return self.run_incident(&session, &examined).await;
        }
        if self.watchdog {
            return self.drill_watchdog(&session, &examined).await;
        }
        let timeout = self.timeout.unwrap_or(Duration::from_mins(2));
        let by = operator_requests::whoami(&session.connection).await?;
        let name = operator_requests::start_drill(&session.connection, &examined, &by, &self.reason).await?;
        let what = || format!("the leader of pod-safety to write a plan, for at most {}s", timeout.as_secs());
        let seen = tokio::select! {
            biased;
            seen = announce_wait(what, wait_for_plan(&session, &name, timeout)) => seen,
            interrupted = tokio::signal::ctrl_c() => interrupted.context("waiting for Ctrl-C").map(|()| None),
        };
        // The dry run is deleted, whatever its result.
        if let Some(drill) = operator_requests::read_incident(&session.connection, &name).await? {
            operator_requests::delete_drill(&session.connection, &drill).await?;
        }
        let Some(drill) = seen? else {
            print_stderr(&format!("pod-safety: no plan was written within {}s", timeout.as_secs()));
            print_reason(&describe_unresponsive(&session).await);
            return Ok(Exit::TimedOut);
        };
        let devices_to_test = devices_of(&session, &examined).await?;
        let (devices, answers) = devices::test_all(&session, &devices_to_test, Some(&self.node), timeout).await?;
        let document = document(&drill, devices, session.target());
        self.print.output.print(&document, || page(&document, SWITCHED, self.print.paint()))?;
        let held = document.gates.iter().any(|gate| gate.holds);
        Ok(self.print.final_exit(if held { Exit::Blocked } else { answers }))
    }

    /// Runs the incident itself.
    async fn run_incident(&self, session: &Session, examined: &Examined) -> anyhow::Result<Exit> {
        let Session { connection, env } = session;
        let node = &self.node;
        if let Some(why) = reason_not_fit(session, examined, true).await? {
            print_stderr(&format!("pod-safety: {why}. Nothing was done"));
            return Ok(Exit::Refused);
        }
        let page = || format!("\nThe machine of node {node} loses its power now.");
        if !prompt(&format!("{PHRASE} {node}"), self.confirm.as_deref(), page)? {
            return Ok(Exit::Refused);
        }
        let by = operator_requests::whoami(connection).await?;
        let name = request(session, examined, &by, &self.reason).await?;
        let deadline = env.now() + self.timeout.unwrap_or(Duration::from_mins(15));
        let ended =
            |phase| matches!(phase, Phase::Done | Phase::AwaitingOperator | Phase::Cancelled | Phase::Superseded);
        match follow_incident(session, &name, deadline, ended).await? {
            Some(Phase::Done) => {
                print(&format!("It is back and still cordoned: kubectl uncordon {node}\n"))?;
                return Ok(Exit::Fine);
            }
            Some(_) => return Ok(Exit::Blocked),
            None => {}
        }
        print_stderr(&format!(
            "pod-safety: the drill continues: kubectl get nodefence {name} -w. To prevent new attempts: pod-safety cancel {node}"
        ));
        Ok(Exit::TimedOut)
    }
}

/// Requests that the node is fenced. The error names the NodeFence that this boot has already.
pub(super) async fn request(session: &Session, examined: &Examined, by: &str, reason: &str) -> anyhow::Result<String> {
    let (connection, node) = (&session.connection, &examined.node.name);
    match operator_requests::request_fence(connection, examined, by, reason).await {
        Err(OperatorError::AlreadyExists { name, .. }) => {
            let existing = operator_requests::read_incident(connection, &name).await.ok().flatten();
            let is_over = existing.as_ref().is_some_and(|fence| fence.status.phase.is_over());
            let phase = existing.map_or(String::new(), |fence| format!(" ({})", fence.status.phase.name()));
            let way_out = match is_over {
                true => format!("which must be deleted first: kubectl delete nodefence {name}"),
                false => format!("which goes on: pod-safety explain node {node}"),
            };
            anyhow::bail!("this boot of {node} has a NodeFence{phase}, {way_out}");
        }
        requested => Ok(requested?),
    }
}

/// Prints each change of an incident until its phase is one of these; `None`: timeout.
pub(crate) async fn follow_incident(
    session: &Session,
    name: &str,
    deadline: Mono,
    is_final: impl Fn(Phase) -> bool,
) -> anyhow::Result<Option<Phase>> {
    let Session { connection, env } = session;
    let began = env.now();
    let mut last_printed = (Phase::Pending, String::new());
    let mut is_silent = true;
    while env.now() < deadline {
        let Some(Drill { status, .. }) = operator_requests::read_incident(connection, name).await? else {
            anyhow::bail!("nodefence/{name} was deleted in the meantime");
        };
        if (status.phase, &status.message) != (last_printed.0, &last_printed.1) {
            let after = env.now().since(began).as_secs();
            let line = format!("{after:>4}s  {}: {}", status.phase.name(), status.message);
            print(&format!("{}\n", sanitize::line(&line)))?;
            last_printed = (status.phase, status.message);
            is_silent = false;
        }
        if is_silent && env.now().since(began) > POLL_INTERVAL * 2 {
            is_silent = false;
            print_stderr(&format!("waiting for the leader of pod-safety to begin with nodefence/{name} …"));
        }
        if is_final(last_printed.0) {
            return Ok(Some(last_printed.0));
        }
        env.sleep(POLL_INTERVAL).await;
    }
    Ok(None)
}

/// Why a node must not be switched off for a drill; `None`: it may. `is_switched_on`: only its policy switches it on
/// again.
async fn reason_not_fit(
    session: &Session,
    examined: &Examined,
    is_switched_on: bool,
) -> anyhow::Result<Option<String>> {
    let node = &examined.node.name;
    if !examined.labels.contains_key(CANARY) {
        return Ok(Some(format!(
            "node {node} is not a canary. If it may be switched off: kubectl label node {node} {CANARY}=true"
        )));
    }
    if !examined.ready {
        return Ok(Some(format!("node {node} is not Ready: this would not be a drill")));
    }
    let policy = operator_requests::read_policy(&session.connection, examined).await?;
    if is_switched_on && policy.recovery != Recovery::PowerOn {
        return Ok(Some(format!("the policy of node {node} would leave it off (recovery: Hold)")));
    }
    let consent = Consent { skip: BTreeSet::new(), delete_emptydir_data: false, evict_unmanaged: false };
    let plan = DrainSnapshot::read_for_apply(session, std::slice::from_ref(node)).await?.plan(node, &consent);
    let (summary, all) = (plan.summarize(), plan.rows.len());
    if !examined.cordoned || summary.staying < all {
        let remaining = all - summary.staying;
        return Ok(Some(format!(
            "node {node} is not cordoned and empty ({} would be terminated): pod-safety drain {node} --apply",
            pluralize(remaining, "pod")
        )));
    }
    Ok(None)
}

/// Waits until the controller has written its plan, or what holds it.
async fn wait_for_plan(session: &Session, name: &str, timeout: Duration) -> anyhow::Result<Option<Drill>> {
    let deadline = session.env.now() + timeout;
    loop {
        let seen = operator_requests::read_incident(&session.connection, name).await?;
        match seen.filter(|drill| !drill.status.gates.is_empty() || drill.status.phase.is_over()) {
            Some(drill) => return Ok(Some(drill)),
            None if session.env.now() >= deadline => return Ok(None),
            None => session.env.sleep(POLL_INTERVAL).await,
        }
    }
}

/// The devices of the policy by which it would be fenced.
pub(super) async fn devices_of(session: &Session, examined: &Examined) -> anyhow::Result<Vec<Device>> {
    let policy = operator_requests::read_policy(&session.connection, examined).await?;
    let named: BTreeSet<_> = policy.levels.iter().flat_map(|level| &level.devices).collect();
    let all = operator_requests::list_devices(&session.connection).await?;
    Ok(all.into_iter().filter(|device| named.contains(&device.named)).collect())
}

pub(super) fn document<'a>(drill: &Drill, devices: Vec<DeviceResult>, cluster: &'a Target) -> Document<'a> {
    let gates = drill.status.gates.iter().map(|gate| Gate {
        name: gate.name.clone(),
        holds: gate.holds,
        message: gate.message.clone(),
    });
    Document {
        api_version: API_VERSION,
        kind: "Drill",
        cluster,
        node: drill.spec.node.name.clone(),
        policy: drill.spec.policy.clone(),
        plan: drill.status.message.clone(),
        gates: gates.collect(),
        devices,
    }
}

impl Document<'_> {
    /// Whether a gate holds it, or a device of its policy would not answer.
    pub(super) fn is_blocked(&self) -> bool {
        self.gates.iter().any(|gate| gate.holds) || self.devices.iter().any(DeviceResult::is_wrong)
    }
}

/// The page; `end`: what was done.
pub(super) fn page(document: &Document<'_>, end: &str, paint: Paint) -> String {
    let row = |gate: &Gate| {
        let tone = if gate.holds { Tone::Bad } else { Tone::Good };
        (tone, [paint.mark(tone), &gate.name, &gate.message].map(str::to_owned).to_vec())
    };
    let Document { node, policy, plan, gates, devices, .. } = document;
    let has_numbers = |gate: &&Gate| gate.holds || !gate.message.is_empty();
    let rows: Vec<_> = gates.iter().filter(has_numbers).map(row).collect();
    let mut table = paint.table(&["", "GATE", "NUMBERS"], &rows);
    if rows.len() < gates.len() {
        let others = pluralize(gates.len() - rows.len(), "other gate");
        table.push_str(&paint.with_mark(Tone::Good, &format!("{others}: nothing holds it")));
    }
    let devices = devices::page(devices, paint);
    let head = format!("node/{node} by fencepolicy/{policy}: {plan}");
    format!("{}\n\n{table}\n{devices}\n{}\n", sanitize::line(&head), paint.wrap(end, 0))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use pod_safety_shared::testing::AnswerFn;
    use serde_json::{Value, json};

    use super::*;
    use crate::untrusted_text::{Objects, objects, run_command, server};

    const NODES: &str = "/api/v1/nodes";
    const DRILL: &str = "drill worker-a1 --watchdog --confirm 'reset worker-a1'";

    /// worker-a1 has a watchdog, and is a canary that is cordoned and empty.
    fn canary() -> Objects {
        let mut all = objects();
        all.get_mut("/api/v1/pods").unwrap().iter_mut().for_each(|pod| pod["spec"]["nodeName"] = json!("worker-a2"));
        let node = &mut all.get_mut(NODES).unwrap()[0];
        (node["metadata"]["labels"], node["spec"]["unschedulable"]) = (json!({ CANARY: "true" }), json!(true));
        let device = &mut all.get_mut("/apis/pod-safety.dev/v1alpha1/fencedevices").unwrap()[0];
        device["spec"] = json!({ "driver": "WatchdogLease", "watchdogLease": { "tickSeconds": 2 } });
        all
    }

    #[test]
    fn only_a_canary_that_is_ready_cordoned_and_empty_is_drilled() {
        for (path, pointer, value, expected) in [
            (NODES, "/spec/unschedulable", json!(true), "promises nothing for this boot"),
            (NODES, "/spec/unschedulable", json!(false), "is not cordoned and empty (0 pods"),
            (NODES, "/metadata/labels", json!({ "zone": "a" }), "is not a canary"),
            (NODES, "/status/conditions/0/status", json!("Unknown"), "is not Ready"),
            ("/api/v1/pods", "/spec/nodeName", json!("worker-a1"), "is not cordoned and empty (1 pod "),
        ] {
            let mut all = canary();
            *all.get_mut(path).unwrap()[0].pointer_mut(pointer).unwrap() = value;
            let (code, text) = run_command(DRILL, &server(all, "v1".to_owned(), false));
            assert!(code == 4 && text.contains(expected), "{expected}: {code}: {text}");
        }
    }

    #[test]
    fn a_watchdog_passes_its_drill_if_it_reset_that_boot_within_its_timeout_and_a_tick() {
        for (earlier, survived, expected) in [(1, 12_000, (0, 2)), (1, 12_001, (3, 1)), (3, 5_000, (3, 1))] {
            let (cluster, writes) = (server(canary(), "v1".to_owned(), false), Arc::new(Mutex::new(0_u8)));
            let written = Arc::clone(&writes);
            let respond: Arc<AnswerFn> = Arc::new(move |method, path, body| {
                *written.lock() += u8::from(method == "PATCH");
                if method == "PATCH" || !path.contains("/leases/watchdog.worker-a1") {
                    return cluster(method, path, body);
                }
                let boot = 1 + *written.lock();
                let fields = format!(
                    "state=Armed epoch=7-0 round=3 node-uid=uid-worker-a1 class=Hardware identity=x firmware=6 \
                     kernel=6 timeout-seconds=10 nowayout=true pings-on-close=false \
                     earlier-boot-survived-milliseconds={survived} boot-id=b0000000-0000-4000-8000-00000000000{boot} \
                     earlier-boot-id=b0000000-0000-4000-8000-00000000000{earlier}"
                );
                let fields = fields.split(' ').filter_map(|field| field.split_once('='));
                let fields = fields.map(|(name, value)| (format!("watchdog.pod-safety.dev/{name}"), value));
                (200, json!({ "metadata": { "annotations": fields.collect::<Value>() } }))
            });
            let (code, text) = run_command(DRILL, &respond);
            assert_eq!((code, *writes.lock()), expected, "{text}");
        }
    }

    #[test]
    fn drill_really_takes_no_output_format() {
        use clap::Parser as _;
        let parsed = |args: &str| crate::Cli::try_parse_from(args.split(' ')).is_ok();
        assert!(parsed("pod-safety drill n --exit-zero --no-headers -o json") && parsed("pod-safety drill n --really"));
        assert!(parsed("pod-safety devices test --exit-zero --no-headers -o wide"));
        assert!(!parsed("pod-safety drill n --really -o json"));
    }

    #[test]
    fn gates_are_printed_with_their_numbers_whether_or_not_they_hold() {
        let gate =
            |name: &str, holds, message: &str| Gate { name: name.to_owned(), holds, message: message.to_owned() };
        let gates = vec![
            gate("LargeOutage", false, "1 of 20 nodes is lost; the limit is 49 %"),
            gate("Paused", true, "the policy db is paused"),
            gate("SelfNode", false, ""),
            gate("Repeated", false, ""),
        ];
        let document = Document {
            api_version: API_VERSION,
            kind: "Drill",
            cluster: &Target::default(),
            node: "a".to_owned(),
            policy: "db".to_owned(),
            plan: "the policy db is paused".to_owned(),
            gates,
            devices: Vec::new(),
        };
        let text = page(&document, SWITCHED, Paint::plain());
        for line in [
            "node/a by fencepolicy/db: the policy db is paused",
            "✔  LargeOutage  1 of 20 nodes is lost; the limit is 49 %",
            "✖  Paused       the policy db is paused",
            "✔ 2 other gates: nothing holds it",
            "Nothing was switched.",
        ] {
            assert!(text.lines().any(|printed| printed == line), "{line}: {text}");
        }
    }
}
