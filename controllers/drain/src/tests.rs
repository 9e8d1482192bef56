//! Plans of drains.

use std::collections::BTreeMap;

use pod_safety_explain::fixture::{application, budget, failed, node, not_ready, pod, replica};
use pod_safety_shared::authority::{Evicted, NotEvicted};
use pod_safety_shared::model::{Kind, Scale, Uid};
use pod_safety_shared::testing::{World, at};
use serde_json::{Value, json};

use super::*;

mod kubectl;
mod requested;
mod room;
mod turns;

/// A world, and the same objects as the scheduler decodes them.
struct Fixture {
    world: World,
    needs: BTreeMap<Uid, Needs>,
    capacities: Vec<NodeCapacity>,
    daemon_sets: BTreeMap<Uid, DaemonSet>,
    budgets_unread: bool,
}

fn fixture() -> Fixture {
    let mut fixture = Fixture {
        world: World::listed(),
        needs: BTreeMap::new(),
        capacities: Vec::new(),
        daemon_sets: [(Uid::new("uid-agent").unwrap(), DaemonSet::Exists)].into(),
        budgets_unread: false,
    };
    fixture.node(&node("n"));
    fixture
}

impl Fixture {
    fn node(&mut self, object: &Value) {
        self.world.apply(Kind::Nodes, object, at(0));
        self.capacities.extend(NodeCapacity::from_node(serde_json::from_value(object.clone()).unwrap()));
    }

    fn pod(&mut self, object: &Value) {
        self.world.apply(Kind::Pods, object, at(0));
        let uid = Uid::new(object["metadata"]["uid"].as_str().unwrap()).unwrap();
        self.needs.insert(uid, Needs::from_pod(serde_json::from_value(object.clone()).unwrap()));
    }

    fn replica(&mut self, app: &str, name: &str) {
        self.pod(&replica(app, name));
    }

    fn application(&mut self, app: &str, replicas: i32, spec: &Value, status: [i64; 5]) {
        application(&self.world, app, replicas);
        (0..replicas).for_each(|number| self.replica(app, &format!("{app}-{number}")));
        self.world.apply(Kind::Budgets, &budget(&format!("pdb-{app}"), app, spec, status), at(0));
    }

    fn plan_with(&self, consent: &Consent) -> Plan {
        self.plans(&["n"], consent).remove(0)
    }

    /// The plans of nodes that are drained together.
    fn plans(&self, nodes: &[&str], consent: &Consent) -> Vec<Plan> {
        let guard = self.world.read();
        let cluster = Cluster {
            view: guard.view(),
            needs: &self.needs,
            capacities: &self.capacities,
            daemon_sets: &self.daemon_sets,
            budgets_unread: self.budgets_unread,
            now: at(60),
        };
        let mut plans: Vec<Plan> = nodes.iter().map(|node| plan(node, &cluster, consent)).collect();
        place(&mut plans, &cluster);
        plans
    }

    fn plan(&self) -> Plan {
        self.plan_with(&Consent::default())
    }
}

fn lines(plan: &Plan) -> Vec<String> {
    let line = |row: &Row| {
        let step = row.step.map(|step| format!(" {step}")).unwrap_or_default();
        let after = row.after.as_ref().map(|after| format!(" after {after}")).unwrap_or_default();
        format!("{}{step} {}: {}{after}", row.action.name(), row.pod.name, row.message)
    };
    plan.rows.iter().map(line).collect()
}

fn assert_lines(plan: &Plan, expected: &[&str]) {
    assert_eq!(lines(plan), expected);
}

fn index(plan: &Plan, name: &str) -> usize {
    plan.rows.iter().position(|row| &*row.pod.name == name).unwrap()
}

#[test]
fn pods_that_stay_and_pods_that_need_consent_are_distinguished() {
    let mut fixture = fixture();
    fixture.pod(&pod("a", "daemon").owned_by("apps/v1", "DaemonSet", "agent"));
    fixture.pod(&pod("a", "static").mirror());
    fixture.pod(&pod("a", "ending").terminating());
    fixture.pod(&pod("a", "naked"));
    let done = pod("a", "done").set("/status", json!({ "phase": "Succeeded" }));
    fixture.pod(&done.owned_by("batch/v1", "Job", "job"));
    fixture.pod(&pod("a", "lies").phase("Failed"));
    fixture.pod(&pod("a", "lies-0").phase("Failed").owned_by("apps/v1", "StatefulSet", "lies"));
    let scratch = pod("a", "scratch").owned_by("apps/v1", "StatefulSet", "s");
    fixture.pod(&scratch.set("/spec/volumes", json!([{ "name": "tmp", "emptyDir": {} }])));
    fixture.replica("a", "plain-0");
    let plan = fixture.plan();
    assert_lines(
        &plan,
        &[
            "Evict 1 plain-0: no PodDisruptionBudget",
            "Blocked naked: it has no controller, so it would not come back: --evict-unmanaged or --skip",
            "Blocked scratch: the data of its emptyDir volume would be lost: --delete-emptydir-data or --skip",
            "RefusedForSafety lies: its phase says that it terminated, but its last report shows a running container: evicting it would remove it at once",
            "RefusedForSafety lies-0: its phase says that it terminated, but its last report shows a running container: evicting it would remove it at once",
            "Terminating ending: it is terminating already",
            "Stay daemon: DaemonSet/agent would recreate it at once",
            "Stay done: it has terminated: none of its containers runs",
            "Stay static: mirror pod of a static pod: its kubelet keeps it running",
        ],
    );
    assert!(plan.must_not_start(false) && !plan.is_clear());
    assert_eq!(plan.dry_run_candidates().count(), 1, "a dry run cannot give consent");
}

#[test]
fn with_consent_pods_are_evicted_and_their_loss_is_reported() {
    let mut fixture = fixture();
    fixture.pod(&pod("a", "naked"));
    let scratch = pod("a", "scratch").owned_by("apps/v1", "StatefulSet", "s");
    fixture.pod(&scratch.set("/spec/volumes", json!([{ "name": "tmp", "emptyDir": {} }])));
    fixture.replica("a", "stays-0");
    let skip = [("ns", "stays-0"), ("other", "naked")].map(|(namespace, pod)| (namespace.to_owned(), pod.to_owned()));
    let plan = fixture.plan_with(&Consent { skip: skip.into(), delete_emptydir_data: true, evict_unmanaged: true });
    assert_lines(
        &plan,
        &[
            "Evict 1 naked: no PodDisruptionBudget",
            "Evict 1 scratch: no PodDisruptionBudget",
            "Stay stays-0: by --skip",
        ],
    );
    assert_eq!(plan.rows[0].place, Some(Place::NotRecreated));
    assert_eq!(plan.rows[1].loses, Some("emptyDir data is lost"));
    assert!(!plan.must_not_start(false));
}

#[test]
fn pods_of_one_budget_are_evicted_one_after_another() {
    let mut fixture = fixture();
    fixture.application("db", 3, &json!({ "maxUnavailable": 1 }), [2, 3, 2, 3, 1]);
    fixture.replica("web", "web-0");
    assert_lines(
        &fixture.plan(),
        &[
            "Evict 1 db-0: pdb pdb-db: 3 healthy - 2 needed = 1 at a time",
            "Evict 1 web-0: no PodDisruptionBudget",
            "Evict 2 db-1: pdb pdb-db: 3 healthy - 2 needed = 1 at a time after db-0",
            "Evict 3 db-2: pdb pdb-db: 3 healthy - 2 needed = 1 at a time after db-1",
        ],
    );
    assert!(!fixture.plan().must_not_start(false) && fixture.plan().node_ready);
    // There is no other node: nothing blocks, but the plan is not clear.
    assert!(!fixture.plan().is_clear());
    assert_eq!(fixture.plan().summarize(), Summary { nowhere: 4, ..Summary::default() });
}

#[test]
fn a_budget_that_never_allows_blocks_and_one_that_allows_later_waits() {
    let mut fixture = fixture();
    fixture.application("never", 1, &json!({ "minAvailable": 1 }), [2, 1, 1, 1, 0]);
    fixture.application("later", 2, &json!({ "maxUnavailable": 1 }), [2, 1, 1, 2, 0]);
    let plan = fixture.plan();
    assert_lines(
        &plan,
        &[
            "Wait later-0: pdb pdb-later: 1 healthy - 1 needed = 0, none now",
            "Wait later-1: pdb pdb-later: 1 healthy - 1 needed = 0, none now",
            "Blocked never-0: pdb pdb-never: 1 healthy - 1 needed = 0, never more while replicas is 1",
        ],
    );
    assert!(!plan.must_not_start(false) && !plan.is_clear(), "a PDB may change after the cordon: it is tried");
}

#[test]
fn budgets_that_overlap_or_are_not_calculated_block_or_wait() {
    let mut fixture = fixture();
    fixture.application("db", 1, &json!({ "maxUnavailable": 1 }), [2, 1, 0, 1, 1]);
    let other = budget("other", "db", &json!({ "maxUnavailable": 1 }), [2, 1, 0, 1, 1]);
    fixture.world.apply(Kind::Budgets, &other, at(0));
    fixture.application("new", 1, &json!({ "maxUnavailable": 1 }), [1, 0, 0, 0, 0]);
    assert_lines(
        &fixture.plan(),
        &[
            "Wait new-0: pdb pdb-new is still being processed: its status is older than its last change",
            "Blocked db-0: pdbs other and pdb-db select it: the API server evicts no pod with several PDBs",
        ],
    );
}

#[test]
fn a_pod_that_is_not_ready_is_evicted_beside_its_budget() {
    let mut fixture = fixture();
    fixture.application("db", 2, &json!({ "maxUnavailable": 1 }), [2, 1, 1, 2, 0]);
    fixture.pod(&not_ready(replica("db", "db-1")));
    assert_lines(
        &fixture.plan(),
        &[
            "Evict 1 db-1: pdb pdb-db: it is not Ready, and enough others are",
            "Wait db-0: pdb pdb-db: 1 healthy - 1 needed = 0, none now",
        ],
    );
}

#[test]
fn a_dry_run_takes_precedence_over_listed_objects() {
    let blocked = || NotEvicted::Blocked { why: "b needs 2 healthy pods and has 2".to_owned(), retry_after: None };
    let mut fixture = fixture();
    fixture.application("db", 1, &json!({ "maxUnavailable": 1 }), [2, 1, 0, 1, 1]);
    fixture.application("never", 1, &json!({ "minAvailable": 1 }), [2, 1, 1, 1, 0]);
    fixture.application("later", 1, &json!({ "maxUnavailable": 1 }), [2, 0, 0, 1, 0]);
    let mut plan = fixture.plan();
    let answers: [(&str, Result<Evicted, NotEvicted>); 3] =
        [("db-0", Err(blocked())), ("never-0", Err(blocked())), ("later-0", Ok(Evicted::Terminates { grace: 7 }))];
    for (name, answer) in &answers {
        let index = index(&plan, name);
        plan.record_dry_run(index, answer);
    }
    plan.sort_by_turn();
    assert_lines(
        &plan,
        &[
            "Evict 1 later-0: the API server would allow it now",
            "Wait db-0: b needs 2 healthy pods and has 2",
            "Blocked never-0: pdb pdb-never: 1 healthy - 1 needed = 0, never more while replicas is 1",
        ],
    );
    assert_eq!((plan.rows[0].grace, plan.rows[0].dry_run.as_ref().unwrap().passed), (7, true));
    assert!(plan.rows.iter().all(|row| row.dry_run.is_some()));
}

#[test]
fn a_refusal_for_safety_stops_the_drain() {
    let mut fixture = fixture();
    fixture.replica("a", "a-0");
    let mut plan = fixture.plan();
    plan.record_dry_run(0, &Err(NotEvicted::Unsafe));
    assert_eq!(plan.rows[0].action, Action::Unsafe);
    assert!(plan.must_not_start(false));
}

#[test]
fn an_unreadable_pod_stops_a_drain() {
    let fixture = fixture();
    fixture.world.apply(Kind::Pods, &pod("a", "x").set("/metadata/resourceVersion", json!(null)), at(0));
    let plan = fixture.plan();
    assert_eq!((plan.unreadable, plan.rows.len(), plan.must_not_start(false)), (1, 0, true));
}

#[test]
fn pods_are_placed_on_nodes_where_they_fit() {
    let mut fixture = fixture();
    fixture.node(&node("big"));
    fixture.node(&node("cordoned").set("/spec/unschedulable", json!(true)));
    fixture.node(&node("tainted").set("/spec/taints", json!([{ "key": "gpu", "effect": "NoSchedule" }])));
    fixture.node(&node("silent").set("/status/conditions", json!([])));
    let pod_with = |name: &str, cpu: &str| {
        let requests = json!([{ "name": "main", "resources": { "requests": { "cpu": cpu } } }]);
        replica("a", name).set("/spec/containers", requests)
    };
    fixture.pod(&pod_with("a-0", "3"));
    fixture.pod(&pod_with("a-1", "2500m"));
    let toleration = json!([{ "key": "gpu", "operator": "Exists" }]);
    fixture.pod(&pod_with("b-0", "4").set("/spec/tolerations", toleration).set("/spec/affinity", json!({})));
    fixture.pod(&pod_with("c-0", "0").set("/spec/nodeSelector", json!({ "disk": "ssd" })));
    assert!(!fixture.plans(&["silent"], &Consent::default())[0].node_ready);
    let places: Vec<_> = fixture.plan().rows.into_iter().map(|row| row.place.unwrap()).collect();
    let on = |name: &str, unchecked| Place::Node { name: name.to_owned(), unchecked };
    let nowhere = |why: &str| Place::Nowhere(why.to_owned());
    assert_eq!(
        places,
        [
            on("big", false),
            nowhere("0 of 4 other nodes: 1 cordoned, 1 taint gpu, 1 too little cpu, 1 unreadable"),
            on("tainted", true),
            nowhere("0 of 4 other nodes: 1 cordoned, 2 other labels, 1 taint gpu"),
        ]
    );
}

#[test]
fn requests_of_init_containers_and_sidecars_match_the_scheduler() {
    let mut fixture = fixture();
    fixture.node(&node("small").set("/status/allocatable/cpu", json!("3")));
    let resources = |cpu: &str| json!({ "requests": { "cpu": cpu } });
    let mut object = replica("a", "a-0");
    object["spec"]["containers"] = json!([{ "name": "main", "resources": resources("1") }]);
    object["spec"]["initContainers"] = json!([
        { "name": "side", "restartPolicy": "Always", "resources": resources("1") }, { "name": "first", "resources": resources("2") }]);
    fixture.pod(&object);
    assert!(matches!(&fixture.plan().rows[0].place, Some(Place::Node { .. })), "max(1+1, 1+2) = 3 fit in 3");
    object["spec"]["overhead"] = json!({ "cpu": "1m" });
    fixture.pod(&object);
    assert!(matches!(&fixture.plan().rows[0].place, Some(Place::Nowhere(_))));
}

/// An operator who waits for a budget should know if it is not known whether the wait ends.
#[test]
fn a_budget_of_a_custom_resource_blocks_by_its_scale_and_waits_without_one() {
    let mut fixture = fixture();
    fixture.pod(&pod("f", "f-0").owned_by("example.com/v1", "Fleet", "f"));
    let one = budget("b", "f", &json!({ "minAvailable": 1 }), [2, 1, 1, 1, 0]);
    fixture.world.apply(Kind::Budgets, &one, at(0));
    fixture.world.set_scale("uid-f-0", Ok(Scale::Replicas(1)), at(60));
    assert_lines(&fixture.plan(), &["Blocked f-0: pdb b: 1 healthy - 1 needed = 0, never more while replicas is 1"]);
    fixture.world.set_scale("uid-f-0", Err("no right to ask"), at(60));
    assert_lines(
        &fixture.plan(),
        &[
            "Wait f-0: pdb b: 1 healthy - 1 needed = 0, none now; whether it ever allows one is not known: no right to ask",
        ],
    );
}

/// It waited without end for a budget whose status will never be calculated.
#[test]
fn bug_a_new_budget_that_failed_to_sync_was_waited_for() {
    let mut fixture = fixture();
    fixture.application("db", 1, &json!({ "maxUnavailable": 1 }), [2, 0, 0, 0, 0]);
    let failed = failed(budget("pdb-db", "db", &json!({ "maxUnavailable": 1 }), [0, 0, 0, 0, 0]));
    fixture.world.apply(Kind::Budgets, &failed, at(1));
    let mut plan = fixture.plan();
    let expected = ["Blocked db-0: pdb pdb-db failed to sync: no scale"];
    assert_eq!(lines(&plan), expected);
    plan.record_dry_run(0, &Err(NotEvicted::Processing { why: "still being processed".to_owned(), retry_after: None }));
    assert_eq!(lines(&plan), expected);
    assert_eq!(plan.rows[0].reason, "BudgetSyncFailed");
}
