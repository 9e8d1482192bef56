//! `pod-safety status`: the whole cluster on one screen. Reads only.

use clap::Args as ClapArgs;
use pod_safety_explain::{Overall, Overview, Running};
use pod_safety_print::Paint;
use pod_safety_print::status::page;
use pod_safety_shared::client::Target;
use serde::Serialize;

use super::cluster::{ConnectArgs, PrintArgs, Session, with_header};
use super::error_hints::check_namespace;
use super::explain::{ClusterSnapshot, evictions};
use super::watch::{Rendered, WatchArgs};
use super::{API_VERSION, Exit, pluralize};

/// The meaning of `-n` for this command.
const NAMESPACE: &str = "Only pods, PodDisruptionBudgets and fence devices of this namespace; nodes are shown all";

#[derive(Debug, ClapArgs)]
#[command(after_help = crate::exit::help("status"), mut_arg("namespace", |arg| arg.help(NAMESPACE)))]
pub struct Args {
    #[command(flatten)]
    watch: WatchArgs,

    #[command(flatten)]
    print: PrintArgs,

    #[command(flatten)]
    cluster: ConnectArgs,
}

/// The screen for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    api_version: &'static str,
    kind: &'static str,
    verdict: Overall,
    cluster: &'a Target,
    /// The only namespace whose pods are shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    server_version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    leader: Option<&'a str>,
    /// The Lease could not be read.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    leader_unknown: bool,
    standbys: usize,
    #[serde(flatten)]
    overview: &'a Overview,
}

impl Args {
    pub(crate) fn main(self) -> anyhow::Result<Exit> {
        let cluster = self.cluster.clone();
        cluster.with_session("status", async |session| self.run(session).await)
    }

    async fn run(self, session: Session) -> anyhow::Result<Exit> {
        let paint = self.print.paint();
        let render_once = async || {
            let seen = StatusReport::read_namespace(&session, self.cluster.namespace.as_deref()).await?;
            let overview = &seen.overview;
            let render = || seen.text(paint);
            let text = self.print.output.text(&seen.document(), render)?;
            Ok(Rendered { text, line: line(overview), exit: self.print.final_exit(exit(overview.verdict())) })
        };
        self.watch.render_loop(&session.env, self.print.output, render_once).await
    }
}

const fn exit(verdict: Overall) -> Exit {
    match verdict {
        Overall::Clear => Exit::Fine,
        Overall::Unknown => Exit::Unknown,
        Overall::Blocked => Exit::Blocked,
    }
}

/// What was read at once.
pub(crate) struct StatusReport {
    /// The only namespace whose pods are shown; `None`: all namespaces.
    namespace: Option<String>,
    overview: Overview,
    running: Running,
    pub(crate) server: String,
    wall: jiff::Timestamp,
    target: Target,
}

impl StatusReport {
    /// Reads what this session may read now.
    pub(crate) async fn read(session: &Session) -> anyhow::Result<Self> {
        Self::read_namespace(session, None).await
    }

    /// The same with only the pods and PodDisruptionBudgets of one namespace.
    async fn read_namespace(session: &Session, namespace: Option<&str>) -> anyhow::Result<Self> {
        let own = namespace.unwrap_or_else(|| session.connection.default_namespace());
        let mut snapshot = ClusterSnapshot::read(session, Some(own)).await?;
        snapshot.read_pauses(session, None).await;
        let mut overview = snapshot.with_context(Overview::from_context);
        if let Some(namespace) = namespace {
            check_namespace(session, namespace).await?;
            overview = snapshot.with_context(|ctx| overview.only_in(namespace, ctx));
        }
        overview.missing = snapshot.missing();
        match evictions::read_abandoned(session, snapshot.wall).await {
            Ok(abandoned) => overview.troubles.extend(abandoned),
            Err(missing) => overview.missing.push(missing),
        }
        let target = session.target().clone();
        let namespace = namespace.map(str::to_owned);
        Ok(Self {
            namespace,
            overview,
            running: snapshot.running,
            server: snapshot.server,
            wall: snapshot.wall,
            target,
        })
    }

    /// The report for operators.
    pub(crate) fn text(&self, paint: Paint) -> String {
        let page = page(&self.overview, &self.running, &self.server, self.wall, paint);
        let within = self.namespace.as_ref().map(|namespace| {
            format!("Pods, PDBs and fence devices of namespace {namespace}; nodes of the whole cluster\n")
        });
        with_header(&self.target, &format!("{}{page}", within.unwrap_or_default()))
    }

    /// The objects that need an operator, as arguments of `explain`: kind, namespace, name.
    pub(crate) fn subjects(&self) -> Vec<(&'static str, Option<String>, String)> {
        let blocked = &self.overview.blocked;
        let nodes = self.overview.troubles.iter().filter_map(|one| one.object.strip_prefix("node/"));
        let nodes = nodes.map(|name| ("node", None, name.to_owned()));
        nodes.chain(blocked.iter().map(|one| ("pod", Some(one.namespace.clone()), one.pod.clone()))).collect()
    }

    /// The report for programs.
    pub(crate) fn document(&self) -> impl Serialize {
        let Self { namespace, overview, running, server, wall: _, target } = self;
        Document {
            api_version: API_VERSION,
            kind: "Status",
            verdict: overview.verdict(),
            cluster: target,
            namespace: namespace.as_deref(),
            server_version: server,
            mode: running.mode.map(|mode| mode.name()),
            leader: running.leader.as_deref(),
            leader_unknown: running.lease_unread,
            standbys: running.standbys,
            overview,
        }
    }
}

fn line(overview: &Overview) -> String {
    let ready: usize = overview.zones.iter().map(|zone| zone.ready).sum();
    let nodes: usize = overview.zones.iter().map(|zone| zone.nodes).sum();
    let blocked: Vec<String> = overview.blocked.iter().map(|one| format!("{}/{}", one.namespace, one.pod)).collect();
    let blocked = if blocked.is_empty() { "none".to_owned() } else { blocked.join(" ") };
    let unknown = if overview.verdict() == Overall::Unknown { ", not everything could be read" } else { "" };
    format!(
        "status: {ready} of {nodes} nodes Ready, {} for a person, blocked pods: {blocked}{unknown}",
        pluralize(overview.troubles.iter().filter(|one| one.blocks).count(), "thing")
    )
}

#[cfg(test)]
mod tests {
    use pod_safety_explain::LastDay;
    use pod_safety_shared::model::Kind;
    use pod_safety_shared::testing::objects::{self, BOOT, NEXT_BOOT, named};
    use serde_json::json;

    use super::*;
    use crate::fixture::{self, Fixture};

    fn target() -> Target {
        let (context, server) = (Some("prod".to_owned()), "https://10.0.0.1:6443".to_owned());
        Target { context, server, user: None }
    }

    fn read_status(fixture: &Fixture) -> (Overview, String) {
        let overview = fixture.with_context(Overview::from_context);
        let wall = "2026-11-21T10:23:05Z".parse().unwrap();
        let text = page(&overview, &fixture.running, "v1.37.2", wall, Paint::plain());
        (overview, text)
    }

    #[test]
    fn the_screen_shows_what_needs_an_operator() {
        let fixture = Fixture::with_lost_node();
        fixture.pod_with("orders-0", "worker-a1", fixture::ready);
        let (overview, text) = read_status(&fixture);
        assert_eq!(overview.verdict(), Overall::Blocked);
        let golden = "Kubernetes v1.37.2   mode guard   leader pod-safety-x, 1 standby
! Pods with a stable name: 2, 1 waits for proof that the old pod stopped

ZONE    READY  LOST  DISRUPTED
zone-a  2/2    0     no
zone-b  1/2    1     no

NEEDS A PERSON
✖ node/worker-b1   Lost, last reported 9m00s ago, 1 pod held until there is proof (NoEvidence)
    pod-safety explain node worker-b1

BLOCKED PODS
NAMESPACE  POD       NODE       SINCE  NEEDS
shop       orders-1  worker-b1  3m10s  proof that worker-b1 stopped

Last 24 h: no node was proved off.
";
        assert_eq!(text, golden);
        let documentation = include_str!("../../../docs/commands.md");
        assert!(documentation.contains(golden), "docs/commands.md shows another screen");
        assert_eq!(line(&overview), "status: 3 of 4 nodes Ready, 1 thing for a person, blocked pods: shop/orders-1");
        let wall = "2026-11-21T10:23:05Z".parse().unwrap();
        let seen = StatusReport {
            namespace: None,
            overview,
            running: fixture.running,
            server: "v1.37.2".to_owned(),
            wall,
            target: target(),
        };
        assert!(documentation.contains(&seen.text(Paint::plain())), "docs/commands.md does not name the cluster");
        let document = serde_json::to_value(seen.document()).unwrap();
        assert_eq!(
            (&document["verdict"], &document["blocked"][0]["reason"]),
            (&json!("Blocked"), &json!("NoEvidence"))
        );
        let (since, node) = (&document["blocked"][0]["since"], &document["blocked"][0]["node"]);
        assert_eq!((since, node), (&json!("2026-11-21T10:19:55Z"), &json!("worker-b1")));
        assert_eq!(document["cluster"], json!({ "context": "prod", "server": "https://10.0.0.1:6443" }));
    }

    #[test]
    fn with_a_namespace_only_its_pods_are_counted() {
        let fixture = Fixture::with_lost_node();
        for (namespace, pods) in [("shop", 1), ("other", 0)] {
            let overview = fixture.with_context(|ctx| Overview::from_context(ctx).only_in(namespace, ctx));
            let counts = (overview.identities, overview.wait_for_proof, overview.blocked.len());
            assert_eq!(counts, (Some(pods), Some(pods), pods), "{namespace}");
        }
    }

    #[test]
    fn bug_with_a_namespace_a_pod_whose_node_is_fenced_did_not_wait_for_proof() {
        let fixture = Fixture::with_lost_node();
        fixture.policy_after(550, None);
        let count =
            |namespace| fixture.with_context(|ctx| Overview::from_context(ctx).only_in(namespace, ctx).wait_for_proof);
        let all = fixture.with_context(|ctx| Overview::from_context(ctx).wait_for_proof);
        assert_eq!((all, count("shop"), count("other")), (Some(1), Some(1), Some(0)));
        // The first line counted it, and no list showed it.
        let text = read_status(&fixture).1;
        let line = "! Not listed: 1 pod to be released by fencing, without a person. To see which:\n    pod-safety explain node NODE\n";
        assert!(text.contains(line) && !text.contains("BLOCKED PODS"), "{text}");
        let of = |namespace| {
            fixture.with_context(|ctx| Overview::from_context(ctx).only_in(namespace, ctx).wait_for_fencing)
        };
        assert_eq!((of("shop"), of("other")), (1, 0));
    }

    #[test]
    fn with_a_namespace_only_its_pdbs_and_fence_devices_are_shown() {
        let fixture = Fixture::healthy();
        fixture.policy("Verified");
        let selector = json!({ "matchExpressions": [{ "key": "k", "operator": "Like" }] });
        fixture.put(Kind::Budgets, objects::budget("b", "b", &json!({ "selector": selector })).in_namespace("shop"));
        for (namespace, object) in [("shop", "pdb/shop/b"), ("fence", "fencedevice/fence/ipmi-b1")] {
            let overview = fixture.with_context(|ctx| Overview::from_context(ctx).only_in(namespace, ctx));
            assert_eq!(overview.troubles.iter().map(|one| &*one.object).collect::<Vec<_>>(), [object]);
        }
    }

    #[test]
    fn a_running_pod_in_a_terminal_phase_and_a_missing_node_are_shown() {
        let mut fixture = Fixture::with_lost_node();
        fixture.settings.pod_gc.terminated_threshold = Some(0);
        let status = json!({ "phase": "Failed", "containerStatuses": [{ "state": { "running": {} } }] });
        fixture.pod_with("job-0", "worker-a1", |pod| pod["status"] = status);
        fixture.node_gone();
        fixture.kubelet_reports();
        let overview = read_status(&fixture).0;
        assert_eq!(overview.blocked.iter().map(|one| &*one.pod).collect::<Vec<_>>(), ["job-0", "orders-1"]);
        assert_eq!(overview.troubles.iter().map(|one| &*one.object).collect::<Vec<_>>(), ["node/worker-b1"]);
    }

    #[test]
    fn in_a_healthy_cluster_nothing_blocks() {
        let fixture = Fixture::healthy();
        fixture.pod_with("orders-0", "worker-a1", fixture::ready);
        let (overview, text) = read_status(&fixture);
        assert_eq!(exit(overview.verdict()), Exit::Fine, "{text}");
        assert!(text.contains("✔ Nothing needs a person"), "{text}");
    }

    /// `doctor` and an alert reported a device that could fence nothing, and `status` did not.
    #[test]
    fn bug_a_device_that_was_never_checked_was_not_shown() {
        let fixture = Fixture::healthy();
        fixture.pod_with("orders-0", "worker-a1", fixture::ready);
        fixture.policy("Verified");
        let (overview, text) = read_status(&fixture);
        let [trouble] = overview.troubles.as_slice() else { panic!("{text}") };
        assert_eq!((&*trouble.object, trouble.reason), ("fencedevice/fence/ipmi-b1", "Unseen"));
        assert!(text.contains("! fencedevice/fence/ipmi-b1   Not checked since"), "{text}");
        assert!(text.contains("TO KNOW\n") && !text.contains("NEEDS A PERSON"), "{text}");
        assert!(!text.contains("Nothing needs a person"), "{text}");
        assert_eq!(exit(overview.verdict()), Exit::Fine, "{text}");
    }

    /// Without rights the page had two green marks, and a deployment that checked it proceeded.
    #[test]
    fn bug_unread_kinds_were_shown_as_fine() {
        let all = [
            &[Kind::Pods][..],
            &[Kind::Nodes],
            &[Kind::NodeLeases],
            &[Kind::Budgets],
            &[Kind::NodeFences],
            &[Kind::Nodes, Kind::NodeLeases, Kind::Pods, Kind::Budgets],
        ];
        for unread in all {
            let fixture = Fixture::without_nodes(unread);
            let (overview, text) = read_status(&fixture);
            assert_eq!(exit(overview.verdict()), Exit::Unknown, "{unread:?}: {text}");
            assert!(text.contains("! It is not known whether something needs a person"), "{unread:?}: {text}");
            let promised = [Kind::Budgets, Kind::NodeFences].contains(&unread[0]);
            assert_eq!(text.contains('✔'), promised, "{unread:?}: {text}");
            let wall = fixture.with_context(|ctx| ctx.wall);
            let seen = StatusReport {
                namespace: None,
                overview,
                running: fixture.running,
                server: String::new(),
                wall,
                target: Target::default(),
            };
            let document = serde_json::to_value(seen.document()).unwrap();
            assert_eq!(document["verdict"], "Unknown", "{document:#}");
            assert_eq!(document["identities"].is_null(), !promised, "{document:#}");
        }
        let mut fixture = Fixture::healthy();
        fixture.running = Running { lease_unread: true, ..Running::default() };
        assert_eq!(read_status(&fixture).0.verdict(), Overall::Unknown, "whether pod-safety has a leader is not known");
        let mut lost = Fixture::with_lost_node();
        lost.unread = vec![Kind::Budgets];
        assert_eq!(
            read_status(&lost).0.verdict(),
            Overall::Blocked,
            "what blocks is reported although something else is not known"
        );
    }

    #[test]
    fn the_last_day_is_one_line_with_counts() {
        let fixture = Fixture::healthy();
        assert!(read_status(&fixture).1.contains("\nLast 24 h: no node was proved off.\n"));
        let day = "2026-11-21T0";
        for (name, hour, minutes, back) in [("a", 1, 1, true), ("b", 2, 2, true), ("c", 3, 4, false)] {
            let (began, proved) = (format!("{day}{hour}:00:00Z"), format!("{day}{hour}:0{minutes}:00Z"));
            let mut conditions = vec![("Fenced", proved.as_str())];
            conditions.extend(back.then_some(("Recovered", "2026-11-21T09:00:00Z")));
            fixture.incident(name, &began, &conditions);
        }
        fixture.incident("long-ago", "2026-11-19T08:00:00Z", &[("Fenced", "2026-11-19T09:00:00Z")]);
        fixture.incident("waits", "2026-11-21T08:00:00Z", &[("Stalled", "2026-11-21T08:30:00Z")]);
        let text = read_status(&fixture).1;
        assert!(
            text.contains("Last 24 h: 3 nodes proved off (within 2m00s in the median, 4m00s at most); 2 nodes back; 1 node waits for a person.\n"),
            "{text}"
        );
        fixture.add_confirmation("2026-11-21T10:21:00Z", None);
        assert!(read_status(&fixture).1.contains("Last 24 h: 4 nodes proved off, 1 of them by a person"));
        for kind in [Kind::NodeFences, Kind::FenceEvidences] {
            let unread = Fixture::without_nodes(&[kind]);
            assert!(!read_status(&unread).1.contains("24 h"), "what was not read is not counted");
        }
    }

    #[test]
    fn the_last_day_has_24_hours_and_no_dry_runs() {
        let (inside, outside) = ("2026-11-20T10:23:05Z", "2026-11-20T10:23:04Z");
        for (status, dry_run, proved_off) in [("True", false, 1), ("False", false, 0), ("True", true, 0)] {
            let fixture = Fixture::healthy();
            let fenced = json!({ "conditions": [{ "type": "Fenced", "status": status, "reason": "", "message": "",
                "lastTransitionTime": inside }] });
            let spec = json!({ "node": { "name": "a", "uid": "a", "bootID": BOOT }, "policy": "rack-b",
                "trigger": { "kind": "Detected", "reason": "r" }, "dryRun": dry_run });
            fixture.put(Kind::NodeFences, named("a").set("/spec", spec).set("/status", fenced));
            assert_eq!(fixture.with_context(LastDay::from_context).unwrap().proved_off, proved_off, "{status}");
        }
        for (at, ready, boot, proved_off, back) in [
            (inside, "True", NEXT_BOOT, 1, 1),
            (outside, "True", NEXT_BOOT, 0, 0),
            (inside, "True", BOOT, 1, 0),
            (inside, "Unknown", NEXT_BOOT, 1, 0),
        ] {
            let fixture = Fixture::healthy();
            fixture.put(Kind::Nodes, objects::node("worker-b1").ready(ready).boot(boot));
            fixture.add_confirmation(at, None);
            let day = fixture.with_context(LastDay::from_context).unwrap();
            assert_eq!((day.proved_off, day.back), (proved_off, back), "{at} {ready} {boot}");
        }
    }

    /// The line had the count 0, while the page above it showed the node as proved off, and then why no incident was opened.
    #[test]
    fn bug_a_node_that_was_confirmed_without_an_incident_was_not_counted() {
        let fixture = Fixture::with_lost_node();
        fixture.add_confirmation("2026-11-21T10:21:00Z", None);
        fixture.policy("Asserted");
        let text = read_status(&fixture).1;
        assert!(text.contains("Last 24 h: 1 node proved off, 1 of them by a person.\n"), "{text}");
        assert!(text.contains("ConfirmedDown") && !text.contains("FenceNotNeeded"), "{text}");
        fixture.add_confirmation("2026-11-21T10:21:00Z", Some(("2026-11-21T10:22:00Z", "wrong plug")));
        assert!(read_status(&fixture).1.contains("Last 24 h: no node was proved off.\n"), "it was withdrawn");
    }

    /// Its pod was counted as held until there is proof.
    #[test]
    fn bug_a_pod_of_a_node_that_is_proved_off_waited_for_proof() {
        let mut fixture = Fixture::with_lost_node();
        fixture.add_confirmation("2026-11-21T10:21:00Z", None);
        fixture.running = Running::default();
        let text = read_status(&fixture).1;
        let row = "✖ node/worker-b1   ConfirmedDown, last reported 9m00s ago, 1 pod waits to be removed (NoLeader)";
        assert!(text.contains(row) && text.contains("1, none waits for proof"), "{text}");
    }

    /// It was reported as needing an operator, with exit code 3, ten seconds before pod-safety switched it off.
    #[test]
    fn bug_a_node_that_is_fenced_soon_was_reported_as_needing_an_operator() {
        let fixture = Fixture::with_lost_node();
        fixture.policy_after(550, None);
        let (overview, text) = read_status(&fixture);
        let golden = "
TO KNOW
! node/worker-b1   Lost, last reported 9m00s ago, 1 pod held until there is proof. pod-safety switches it off in 10s (FencePolicy rack-b)
    pod-safety explain node worker-b1
";
        assert!(text.contains(golden) && exit(overview.verdict()) == Exit::Fine, "{text}");
        assert!(text.contains("2, 1 waits for proof") || text.contains("1, 1 waits for proof"), "{text}");
        let documentation = include_str!("../../../docs/commands.md");
        assert!(documentation.contains(golden.trim()), "docs/commands.md shows another node");
        for change in [
            |fixture: &mut Fixture| fixture.running = Running::default(),
            |fixture: &mut Fixture| fixture.running.without_fencing = true,
            |fixture: &mut Fixture| fixture.running.mode = Some(pod_safety_shared::controller_loop::Mode::Observe),
        ] {
            let mut fixture = Fixture::with_lost_node();
            fixture.policy_after(550, None);
            change(&mut fixture);
            assert_eq!(exit(read_status(&fixture).0.verdict()), Exit::Blocked, "no process fences it");
        }
    }

    /// A critical alert fired for the incident, and it stood under TO KNOW, with exit code 0, as no pod waited. A
    /// machine that can be repaired stood under NEEDS A PERSON.
    #[test]
    fn bug_a_node_that_needs_an_operator_blocked_only_where_pods_waited() {
        let lost = "NEEDS A PERSON\n✖ node/worker-b1   Lost, last reported 9m00s ago (AwaitingOperator)";
        let off = "\n! node/worker-b1   Fenced, last reported 9m00s ago (MachinePoweredOff)";
        for (phase, evidence, code, expected) in
            [("AwaitingOperator", None, Exit::Blocked, lost), ("Fenced", Some("worker-b1-e"), Exit::Fine, off)]
        {
            let fixture = Fixture::healthy();
            fixture.put(Kind::Nodes, objects::node("worker-b1").boot(BOOT));
            let renewed = json!("2026-11-21T10:14:05.000000Z");
            fixture.put(Kind::NodeLeases, objects::lease("worker-b1", 0).set("/spec/renewTime", renewed));
            fixture.policy("Verified");
            if evidence.is_some() {
                fixture.add_evidence("PowerOff", BOOT);
            }
            let node = json!({ "name": "worker-b1", "uid": "uid-worker-b1", "bootID": BOOT });
            let spec = json!({ "node": node, "policy": "rack-b", "trigger": { "kind": "Detected", "reason": "r" } });
            let status = json!({ "phase": phase, "message": "m", "evidence": evidence, "tainted": evidence.is_some() });
            fixture.put(Kind::NodeFences, named("worker-b1-x").set("/spec", spec).set("/status", status));
            let (overview, text) = read_status(&fixture);
            assert!(text.contains(expected) && exit(overview.verdict()) == code, "{text}");
        }
    }

    /// Every device of the only policy lacked its Secret: that was reported as attention only, with exit code 0.
    #[test]
    fn bug_a_policy_that_can_fence_no_node_was_not_reported_as_blocking() {
        let fixture = Fixture::healthy();
        fixture.pod_with("orders-0", "worker-a1", fixture::ready);
        fixture.policy_after(60, Some("Secret pod-safety/bmc does not exist"));
        let (overview, text) = read_status(&fixture);
        let golden = "NEEDS A PERSON
✖ fencepolicy/rack-b   It can fence no node: device fence/ipmi-b1: Secret pod-safety/bmc does not exist
    pod-safety doctor
";
        assert!(text.contains(golden) && exit(overview.verdict()) == Exit::Blocked, "{text}");
    }

    #[test]
    fn pauses_are_shown_with_author_and_command_to_resume() {
        let mut fixture = Fixture::healthy();
        fixture.paused();
        let (overview, text) = read_status(&fixture);
        let golden = "
PAUSED
! fencepolicy/rack-b   rack b moves, by anna 20m00s ago
    pod-safety resume --policy rack-b --reason TEXT
! node/worker-b2   hands in it, by anna 20m00s ago
    pod-safety resume worker-b2 --reason TEXT
";
        assert!(text.contains(golden) && overview.verdict() == Overall::Clear, "{text}");
        let documentation = include_str!("../../../docs/commands.md");
        assert!(documentation.contains(golden.trim()), "docs/commands.md shows other pauses");
        let marks = json!({ "cluster.x-k8s.io/skip-remediation": "" });
        fixture.put(Kind::Nodes, objects::node("worker-a1").ready("True").set("/metadata/annotations", marks));
        let paused = read_status(&fixture).0.paused;
        let foreign = (&*paused[1].object, &*paused[1].reason, &*paused[1].command);
        assert_eq!(foreign, ("node/worker-a1", "it has cluster.x-k8s.io/skip-remediation", ""));
    }

    #[test]
    fn a_missing_leader_is_reported_as_blocking() {
        let mut fixture = Fixture::healthy();
        fixture.running = Running::default();
        let (overview, text) = read_status(&fixture);
        assert_eq!(overview.verdict(), Overall::Blocked, "{text}");
        assert!(text.contains("✖ pod-safety   No leader"), "{text}");
        fixture.running.stale = Some("2026-11-21T10:20:05Z".parse().unwrap());
        assert!(read_status(&fixture).1.contains("✖ pod-safety   No leader: the lease was last renewed 3m00s ago"));
    }
}
