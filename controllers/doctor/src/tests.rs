//! Each check reports what it is for, and nothing else.

use pod_safety_explain::Paused;
use pod_safety_process::account::PolicyAccount;
use pod_safety_shared::model::Kind;
use pod_safety_shared::testing::objects::{Obj, lease, named, node};
use pod_safety_shared::testing::{World, at};
use serde_json::json;

use super::*;

fn health_and_text(symptoms: &[Symptom]) -> Vec<(Health, String)> {
    symptoms.iter().map(|one| (one.health, one.what.clone())).collect()
}

fn wall() -> Timestamp {
    "2026-11-21T10:00:00Z".parse().unwrap()
}

fn devices_of(world: &World, unread: &[Kind], paused: &[Paused]) -> Vec<Symptom> {
    world.cache().restrict_fencing_to(["f".to_owned()].into());
    check_devices(&world.read().view(), unread, paused, wall(), &Installation::default())
}

fn condition(name: &str, status: &str) -> Value {
    json!({ "type": name, "status": status, "reason": "r", "message": "m", "lastTransitionTime": "t" })
}

/// In the namespace `f`, checked since it was changed the last time.
fn device(name: &str, spec: Value, conditions: &[Value], targets: &Value) -> Obj {
    let status = json!({ "observedGeneration": 1, "conditions": conditions, "targets": targets });
    let device = named(name).in_namespace("f").set("/metadata/uid", json!(format!("uid-of-{name}")));
    device.set("/spec", spec).set("/metadata/generation", json!(1)).set("/status", status)
}

/// A FencePolicy `p` with one level for each list of devices.
fn policy(levels: &[&[&str]]) -> Obj {
    let level = |names: &&[&str]| {
        let devices: Vec<Value> = names.iter().map(|name| json!({ "namespace": "f", "name": name })).collect();
        json!({ "name": "l", "devices": devices })
    };
    named("p").set("/spec/levels", levels.iter().map(level).collect())
}

#[test]
fn untested_versions_are_reported() {
    for (server, health) in [
        ("v1.37.2", Health::Fine),
        ("v1.32.0+k3s1", Health::Fine),
        ("v1.31.9", Health::Attention),
        ("v1.38.0", Health::Attention),
        ("", Health::Unknown),
    ] {
        assert_eq!(check_version(server).health, health, "{server}");
    }
}

#[test]
fn clocks_that_differ_are_reported_with_their_machine() {
    let server = wall();
    let world = World::listed();
    for (name, ready, renewed) in [
        ("right", "True", "09:59:55"),
        ("ahead", "True", "10:00:30"),
        ("behind", "True", "09:50:00"),
        ("lost", "Unknown", "09:50:00"),
    ] {
        world.apply(Kind::Nodes, &node(name).ready(ready), at(0));
        let renewed = json!(format!("2026-11-21T{renewed}.000000Z"));
        world.apply(Kind::NodeLeases, &lease(name, 0).set("/spec/renewTime", renewed), at(0));
    }
    let installation = Installation::default();
    let duties = Duties { mode: Some(Mode::Guard), controllers: &[], installation: &installation };
    let check = |world: &World, nodes_read: bool, server: Option<Timestamp>, wall: &str, kcm: &Kcm| {
        check_clocks(&world.read().view(), nodes_read, server, wall.parse().unwrap(), kcm, duties)
    };
    // The remedy for each of them was NTP.
    let flags = |list: &str| Kcm::Arguments(vec![vec![format!("--controllers={list}")]]);
    let (hidden, lifecycle) = (Kcm::Hidden { is_leading: true }, duties.remedy(Name::NodeLifecycle));
    let unknown = "node lifecycle here, or they stopped reporting just now";
    let both = format!("synchronize them by NTP. If no controller does node lifecycle: {lifecycle}");
    for (kcm, cause, remedy) in [
        (flags("*"), unknown, both.clone()),
        (hidden.clone(), unknown, both),
        (flags("*,-nodelifecycle"), "so nodes that stopped reporting stay Ready", lifecycle),
    ] {
        let symptoms = check(&world, true, Some(server), "2026-11-21T10:02:00Z", &kcm);
        let what: Vec<&str> = symptoms.iter().map(|one| one.what.as_str()).collect();
        assert_eq!(what[0], "the API server's clock is 2m00s behind this machine's");
        assert!(what[1].ends_with("are ahead: ahead"), "{what:?}");
        assert!(what[2].ends_with(&format!("{cause}: behind")) && symptoms[2].remedy == remedy, "{symptoms:?}");
    }
    let world = World::listed();
    let now = "2026-11-21T10:00:00Z";
    assert_eq!(check(&world, true, Some(server), now, &hidden)[0].health, Health::Fine);
    assert_eq!(check(&world, true, None, now, &hidden)[0].health, Health::Unknown);
    assert_eq!(
        health_and_text(&check(&world, false, Some(server), now, &hidden)).iter().map(|one| one.0).collect::<Vec<_>>(),
        [Health::Unknown],
        "bug: nodes that could not be listed agreed"
    );
}

#[test]
fn flags_of_kube_controller_manager_are_compared_with_the_mode() {
    let compare = |controllers: &str| {
        Kcm::Arguments(vec![vec![controllers.to_owned(), "--disable-force-detach-on-timeout=true".to_owned()]])
    };
    let off = "--controllers=*,bootstrapsigner,-podgc,-disruption-controller,-nodelifecycle,-taint-eviction-controller";
    let own_controllers = [Name::PodGc, Name::Disruption, Name::NodeLifecycle, Name::TaintEviction, Name::Fencing];
    let installation = Installation::default();
    let all =
        "pod-garbage-collector-controller, disruption-controller, node-lifecycle-controller, taint-eviction-controller";
    for (kcm, mode, health, expected) in [
        (compare(off), Mode::Replace, Health::Fine, format!("pod-safety runs {all} in its place")),
        // The first entry of a name decides, as in kube-controller-manager.
        (compare(&format!("{off},podgc")), Mode::Replace, Health::Fine, format!("pod-safety runs {all} in its place")),
        (
            compare("--controllers=*,-podgc"),
            Mode::Replace,
            Health::Problem,
            "disruption-controller, node-lifecycle-controller".to_owned(),
        ),
        (
            compare("--v=2"),
            Mode::Replace,
            Health::Problem,
            format!("it runs, too, what pod-safety runs in the mode replace: {all}"),
        ),
        (compare("--v=2"), Mode::Guard, Health::Fine, format!("it runs {all}; pod-safety runs beside it")),
        (compare(off), Mode::Guard, Health::Problem, format!("nobody runs {all}")),
        (Kcm::Hidden { is_leading: true }, Mode::Replace, Health::Unknown, "its flags cannot be read".to_owned()),
        (Kcm::Hidden { is_leading: true }, Mode::Guard, Health::Fine, "beside it".to_owned()),
        (Kcm::Hidden { is_leading: false }, Mode::Guard, Health::Unknown, "cannot be seen".to_owned()),
    ] {
        let duties = Duties { mode: Some(mode), controllers: &own_controllers, installation: &installation };
        let symptoms = check_kcm(&kcm, duties);
        assert_eq!(symptoms[0].health, health, "{kcm:?} {mode:?}: {symptoms:?}");
        assert!(symptoms[0].what.contains(&expected), "{expected}: {symptoms:?}");
    }
    let twice = [off, "--controllers=podgc"].map(str::to_owned).to_vec();
    let replace = Duties { mode: Some(Mode::Replace), controllers: &own_controllers, installation: &installation };
    assert_eq!(check_kcm(&Kcm::Arguments(vec![twice]), replace)[0].health, Health::Fine, "one list of two flags");
    let guard = Duties { mode: Some(Mode::Guard), controllers: &[], installation: &installation };
    let first = vec!["--disable-force-detach-on-timeout".to_owned()];
    let detaches = check_kcm(&Kcm::Arguments(vec![first, Vec::new()]), guard);
    assert_eq!(detaches[1].check, "ForceDetach");
}

/// In a cluster that denied each write, the check passed for an account that no process used.
#[test]
fn bug_an_account_that_the_policies_deny_passed_the_check() {
    const OURS: &str = "system:serviceaccount:pod-safety:pod-safety";
    let lease = |user: Option<&str>| {
        let annotations = user.map(
            |user| json!({ "pod-safety.dev/leader": user.replacen(' ', " mode=guard controllers=pod-gc user=", 1) }),
        );
        json!({ "metadata": { "annotations": annotations },
            "spec": { "holderIdentity": "laptop_1", "acquireTime": "2026-11-21T10:00:00.000000Z" } })
    };
    let named = [PolicyAccount { policy: "pod-safety-fence".to_owned(), account: OURS.to_owned() }];
    for (user, named, health, expected) in [
        (
            Some("laptop_1 anna"),
            Some(&named[..]),
            Some(Health::Problem),
            "runs as anna, and of the admission policies pod-safety-fence only",
        ),
        (Some(&*format!("laptop_1 {OURS}")), Some(&named), Some(Health::Fine), "the account of the admission policies"),
        (Some("another_2 anna"), Some(&named), Some(Health::Unknown), "does not say"),
        (None, Some(&named), Some(Health::Unknown), "does not say"),
        (Some("laptop_1 anna"), Some(&[]), None, ""),
        (Some("laptop_1 anna"), None, Some(Health::Unknown), "could not be listed"),
    ] {
        let leader = Leader::from_lease(&lease(user)).unwrap();
        let accounts = Accounts { named, leader: Some(&leader), pod_account: None };
        let symptom = accounts.check();
        assert_eq!(symptom.as_ref().map(|one| one.health), health, "{user:?}: {symptom:?}");
        assert!(symptom.is_none_or(|one| one.what.contains(expected)), "{user:?}: {expected}");
    }
    assert_eq!(Accounts { named: Some(&named), leader: None, pod_account: None }.check(), None, "there is no leader");
    let rights = |runs, lacking: &[_]| check_rights(OURS, runs, 52, lacking, &Installation::default()).health;
    assert_eq!(rights(true, &[]), Health::Fine);
    assert_eq!(rights(false, &[]), Health::Unknown, "no process uses it");
    assert_eq!(rights(false, &[Default::default()]), Health::Problem);
}

#[test]
fn devices_without_an_answer_and_nodes_without_a_policy_are_reported() {
    let paused = Paused {
        object: "fencepolicy/p".to_owned(),
        reason: "rack moves".to_owned(),
        by: Some("anna".to_owned()),
        since: Some("2026-11-21T08:00:00Z".parse().unwrap()),
        command: String::new(),
    };
    let with_node = || {
        let world = World::listed();
        world.apply(Kind::Nodes, &node("n").ready("True").labels(json!({ "rack": "b" })), at(0));
        world
    };
    assert_eq!(
        health_and_text(&devices_of(&with_node(), &[], &[])),
        [(Health::Attention, "1 node without a FencePolicy: n".to_owned())]
    );
    // The device of a tenant is there before pod-safety watches only its own namespace.
    let world = with_node();
    world.apply(Kind::FencePolicies, &policy(&[&["d"]]), at(0));
    let target = json!([{ "node": "n", "power": "Unknown", "message": "no route" }]);
    let spec = json!({ "driver": "Agent", "agent": "fence_ipmilan" });
    let device = device("d", spec, &[condition("Trusted", "False")], &target);
    world.apply(Kind::FenceDevices, &device, at(0));
    let of_a_tenant = device.in_namespace("tenant").set("/metadata/uid", json!("uid-of-a-tenant"));
    world.apply(Kind::FenceDevices, &of_a_tenant, at(0));
    let symptoms = devices_of(&world, &[], &[paused]);
    assert!(symptoms[2].remedy.ends_with(" --set 'controllers.fencing.namespaces={f,tenant}'"), "{symptoms:?}");
    assert_eq!(
        health_and_text(&symptoms),
        [
            (Health::Problem, "not trusted: evidence from it was contradicted: f/d".to_owned()),
            (Health::Problem, "did not answer at the last check: f/d for n: no route".to_owned()),
            (Health::Attention, "in a namespace that pod-safety does not watch: tenant/d".to_owned()),
            (Health::Attention, "fencepolicy/p is paused: rack moves, by anna 2h00m ago".to_owned()),
            (Health::Problem, "each level of their FencePolicy has a device that does not work for: n".to_owned()),
            (Health::Fine, "every node has its FencePolicy".to_owned()),
        ]
    );
}

/// `all 2 answer and are trusted` was reported for devices that were never contacted, and nothing for a policy without
/// devices.
#[test]
fn bug_devices_that_were_never_contacted_or_do_not_exist_passed_the_check() {
    let world = World::listed();
    world.apply(Kind::FencePolicies, &policy(&[&["new", "pdu-a"]]), at(0));
    let checked = device(
        "new",
        json!({ "driver": "Redfish", "identityCheck": "Required" }),
        &[condition("Ready", "True")],
        &json!([]),
    );
    world.apply(Kind::FenceDevices, &checked.clone().set("/status", json!({})), at(0));
    assert_eq!(
        health_and_text(&devices_of(&world, &[], &[]))[..2],
        [
            (Health::Unknown, "not checked: never contacted since it was created or changed: f/new".to_owned()),
            (Health::Problem, "FenceDevices that do not exist: f/pdu-a (of fencepolicy/p)".to_owned()),
        ]
    );
    let symptoms = devices_of(&world, &[Kind::FenceDevices, Kind::FencePolicies, Kind::Nodes], &[]);
    assert_eq!(symptoms.iter().map(|one| one.health).collect::<Vec<_>>(), [Health::Unknown; 2], "{symptoms:?}");
    world.apply(Kind::FenceDevices, &checked, at(1));
    assert_eq!(devices_of(&world, &[], &[])[0].health, Health::Fine);
}

/// Its plug is that of another machine: `1 device answered at the last check, all trusted` was reported.
#[test]
fn bug_a_device_that_reports_a_running_node_off_passed_the_check() {
    let world = World::listed();
    let targets = json!([{ "node": "n", "power": "Off", "problem": "SaysOff", "message": "m" }]);
    let spec = json!({ "driver": "Agent", "agent": "fence_ipmilan" });
    world.apply(Kind::FenceDevices, &device("d", spec, &[condition("Ready", "False")], &targets), at(0));
    world.apply(Kind::Nodes, &node("n").ready("True"), at(0));
    world.apply(Kind::FencePolicies, &policy(&[&["d"]]), at(0));
    let symptoms = health_and_text(&devices_of(&world, &[], &[]));
    for expected in [
        "reports a node off whose kubelet reports: f/d for n: m",
        "each level of their FencePolicy has a device that does not work for: n",
    ] {
        assert!(symptoms.contains(&(Health::Problem, expected.to_owned())), "{expected}: {symptoms:?}");
    }
}

/// A node without an agent, or with a watchdog without a drill, was reported as a device that did not answer.
#[test]
fn nodes_without_a_valid_watchdog_promise_are_reported_with_the_reason() {
    let world = World::listed();
    let promises = json!({ "driver": "WatchdogLease", "watchdogLease": { "classes": ["Hardware"] } });
    let target = |node: &str, power: &str, message: &str| json!({ "node": node, "power": power, "identity": "Match", "looked": "t", "message": message });
    let targets = json!([
        target("a", "On", ""),
        target("b", "Unknown", "no drill with this kernel"),
        target("c", "Unknown", "there is no Lease"),
    ]);
    world.apply(Kind::FenceDevices, &device("w", promises, &[], &targets), at(0));
    let symptoms = health_and_text(&devices_of(&world, &[], &[]));
    let expected = "agents of nodes promise nothing that counts: f/w for b: no drill with this kernel, f/w for c: there is no Lease";
    assert!(symptoms.contains(&(Health::Problem, expected.to_owned())), "{symptoms:?}");
}

/// A device that can easily be impersonated was not reported.
#[test]
fn bug_a_device_with_insecure_settings_passed_the_check() {
    const INSECURE: &str = "every certificate is accepted: f/d";
    const UNSURE: &str = "identityCheck is BestEffort: f/d";
    const SAME: &str = "the same parameters for several nodes: f/d";
    let with = |more: Value| {
        let mut spec = json!({ "driver": "Redfish", "identityCheck": "Required", "parameters": { "address": "https://{{.Node.Name}}" } });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let world = World::listed();
        world.apply(Kind::FenceDevices, &device("d", spec, &[condition("Ready", "True")], &json!([])), at(0));
        world.apply(Kind::FencePolicies, &policy(&[&["d"]]), at(0));
        for name in ["n", "m"] {
            world.apply(Kind::Nodes, &node(name).ready("True"), at(0));
        }
        let attention = devices_of(&world, &[], &[]).into_iter();
        let attention = attention.filter(|one| one.check == "FenceDevices" && one.health == Health::Attention);
        attention.map(|one| one.what).collect::<Vec<_>>()
    };
    let agent = |parameters: Value| json!({ "driver": "Agent", "agent": "fence_a", "parameters": parameters });
    assert_eq!(with(json!({})), [""; 0]);
    assert_eq!(with(json!({ "identityCheck": "BestEffort" })), [UNSURE]);
    assert_eq!(with(json!({ "nodeParameters": { "n": { "insecure": "true" } } })), [INSECURE]);
    assert_eq!(with(agent(json!({ "ip": "{{.Node.Name}}", "ssl_insecure": "1" }))), [INSECURE]);
    assert_eq!(with(agent(json!({ "ip": "{{.Node.Name}}", "ssl_insecure": "0" }))), [""; 0]);
    assert_eq!(with(agent(json!({ "ip": "192.0.2.1" }))), [SAME]);
}

/// The check passed for each node with a FencePolicy, although no device could work.
#[test]
fn bug_devices_and_policies_without_effect_passed_the_check() {
    let redfish = |name: &str, power: &str| {
        let targets =
            json!([{ "node": "m", "power": "On", "message": "" }, { "node": "n", "power": power, "message": "" }]);
        device(
            name,
            json!({ "driver": "Redfish", "identityCheck": "Required" }),
            &[condition("Ready", "True")],
            &targets,
        )
    };
    let hopeless = "each level of their FencePolicy has a device that does not work for: n";
    for (levels, selected, expected) in [
        (&[&["on"][..]][..], "n", vec!["no FencePolicy names: f/off"]),
        (&[&["on", "off"]], "n", vec![hopeless]),
        (&[&["off"], &["on"]], "n", vec![]),
        (&[&["off"], &["gone", "on"]], "n", vec![hopeless]),
        (&[&["on", "off"]], "other", vec!["no node is selected by: p"]),
    ] {
        let world = World::listed();
        world.apply(Kind::Nodes, &node("n").ready("True").labels(json!({ "name": "n" })), at(0));
        world.apply(Kind::FenceDevices, &redfish("on", "On"), at(0));
        world.apply(Kind::FenceDevices, &redfish("off", "Unknown"), at(0));
        let selector = json!({ "matchLabels": { "name": selected } });
        world.apply(Kind::FencePolicies, &policy(levels).set("/spec/nodeSelector", selector), at(0));
        let texts: Vec<String> = devices_of(&world, &[], &[]).into_iter().map(|one| one.what).collect();
        for all in ["no FencePolicy names: f/off", hopeless, "no node is selected by: p"] {
            assert_eq!(texts.iter().any(|what| what == all), expected.contains(&all), "{levels:?} {all}: {texts:?}");
        }
    }
}

#[test]
fn fence_agents_beside_the_token_or_not_running_are_reported() {
    let world = World::listed();
    let agent = named("d").in_namespace("f").set("/spec", json!({ "driver": "Agent", "agent": "fence_ipmilan" }));
    let pod = |args: &str, state: &str| {
        json!({
            "metadata": { "name": "p" },
            "spec": { "containers": [{ "name": "pod-safety", "args": ["run"] }],
                "initContainers": [{ "name": "agents", "args": [args] }] },
            "status": { "initContainerStatuses": [{ "name": "agents", "state": { state: {} } }],
                "containerStatuses": [{ "name": "pod-safety", "state": { "running": {} } }] },
        })
    };
    let check = |pods: &[Value]| health_and_text(&check_agents(&world.read().view(), pods));
    assert!(check(&[pod("fence-agents", "waiting")]).is_empty(), "no device needs them");
    world.apply(Kind::FenceDevices, &agent, at(0));
    for (pod, health, suffix) in [
        (pod("fence-agents", "running"), Health::Fine, "of their own"),
        (pod("fence-agents", "waiting"), Health::Problem, "is not running in: p"),
        (pod("version", "running"), Health::Problem, "no container runs fence agents in: p"),
    ] {
        let symptoms = check(&[pod]);
        assert!(symptoms.len() == 1 && symptoms[0].0 == health && symptoms[0].1.ends_with(suffix), "{symptoms:?}");
    }
    assert!(check(&[]).is_empty(), "a missing right to list pods is reported elsewhere");
}

#[test]
fn stateful_sets_without_a_grace_period_are_reported() {
    let set = |grace: u32| json!({ "metadata": { "namespace": "shop", "name": "db" }, "spec": { "template": { "spec": { "terminationGracePeriodSeconds": grace } } } });
    assert_eq!(check_grace_periods(&[set(30)]).health, Health::Fine);
    let symptoms = check_grace_periods(&[set(30), set(0)]);
    assert_eq!((symptoms.health, symptoms.what.ends_with(": shop/db")), (Health::Problem, true));
}

#[test]
fn crds_of_another_version_are_a_problem_and_added_defaults_are_not() {
    let expected = pod_safety_shared::api::crds();
    let unread = Installation::default();
    let with = |change: fn(&mut Value)| {
        let mut installed = expected.clone();
        installed.iter_mut().for_each(change);
        let find = |name: &str| Ok(installed.iter().find(|crd| crd["metadata"]["name"] == name).cloned());
        let symptoms = check_crds(&expected, &unread, find);
        symptoms.into_iter().map(|one| one.health).collect::<Vec<_>>()
    };
    assert_eq!(with(|_| {}), [Health::Fine]);
    assert_eq!(
        with(|crd| crd["spec"]["versions"][0]["more"] = json!(1)),
        [Health::Fine],
        "filled in by the API server"
    );
    assert_eq!(with(|crd| crd["spec"]["versions"][0]["name"] = json!("v2")), [Health::Problem]);
    assert_eq!(check_crds(&expected, &unread, |_| Ok(None))[0].health, Health::Problem);
    assert_eq!(check_crds(&expected, &unread, |_| Err("no".to_owned()))[0].health, Health::Unknown);
}

#[test]
fn a_missing_leader_and_a_missing_standby_are_reported() {
    let with = |leader: Option<&str>| Running { leader: leader.map(str::to_owned), ..Running::default() };
    let (leads, stale) = (Some("p_1"), "2026-11-21T09:55:00Z".parse().ok());
    for (running, health, expected) in [
        (Running { standbys: 1, ..with(leads) }, Health::Fine, "p_1 leads, 1 standby"),
        (with(leads), Health::Attention, "no other replica is Ready"),
        (Running { stale, ..with(None) }, Health::Problem, "last renewed 5m00s ago"),
        (Running { lease_unread: true, ..with(None) }, Health::Unknown, "could not be read"),
    ] {
        let symptom = check_leader(&running, wall(), &Installation::default());
        assert!(symptom.health == health && symptom.what.contains(expected), "{running:?}: {symptom:?}");
    }
}

/// A process in the mode observe elects no leader, and one without leader election needs none: both were a problem. Of
/// two replicas, one that could not start was to be replaced by a second one.
#[test]
fn bug_the_check_of_the_leader_did_not_know_how_it_runs() {
    let deployed = |replicas: u32| {
        let labels = json!({ "app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": "s" });
        let deployment =
            json!({ "metadata": { "namespace": "ops", "labels": labels }, "spec": { "replicas": replicas } });
        Installation::from_deployments(&[deployment], None)
    };
    let observe = |standbys| Running { mode: Some(Mode::Observe), standbys, ..Running::default() };
    let leads = |without_election| Running {
        mode: Some(Mode::Guard),
        leader: Some("p".to_owned()),
        without_election,
        ..Running::default()
    };
    for (running, replicas, health, what, remedy) in [
        (observe(2), 2, Health::Fine, "not needed in the mode observe", ""),
        (observe(0), 2, Health::Attention, "observe, and no replica is Ready", "kubectl get pods -A"),
        (leads(true), 1, Health::Attention, "no leader election, one replica", "leaderElection.enabled=true,replicaC"),
        (leads(false), 1, Health::Attention, "no other replica is Ready", " --set replicaCount=2"),
        (leads(false), 2, Health::Attention, "no other replica is Ready", "; kubectl -n ops describe pod NAME"),
    ] {
        let symptom = check_leader(&running, wall(), &deployed(replicas));
        assert!(symptom.health == health && symptom.what.contains(what), "{running:?}: {symptom:?}");
        assert!(symptom.remedy.contains(remedy), "{running:?}: {symptom:?}");
        assert!(replicas == 1 || !symptom.remedy.contains("replicaCount"), "{symptom:?}");
    }
}

/// Each of these commands failed, or made the policies deny on the first day, while nothing ran that releases a pod.
#[test]
fn bug_policies_were_to_deny_at_once_or_in_the_mode_observe() {
    let audit = Policies::Audit { since: None };
    let (absent, installed) = (Installation::from_deployments(&[], None), Installation::default());
    for (policies, mode, installation, expected) in [
        (audit, Mode::Observe, &installed, "values --set mode=guard,admissionPolicies.action=Deny"),
        (audit, Mode::Guard, &installed, "values --set admissionPolicies.action=Deny"),
        (Policies::Absent, Mode::Guard, &installed, "action=Audit; after a week admissionPolicies.action=Deny"),
        (Policies::Absent, Mode::Guard, &absent, "install it first, with policies that warn: helm install pod-safety"),
    ] {
        let symptom = check_admission_policies(policies, Some(mode), wall(), installation);
        assert!(symptom.remedy.contains(expected), "{policies:?} {mode:?}: {symptom:?}");
    }
}

#[test]
fn policies_that_only_warn_are_a_problem_after_a_week() {
    let wall: jiff::Timestamp = "2026-01-09T00:00:00Z".parse().unwrap();
    let audit = |since: &str| Policies::Audit { since: since.parse().ok() };
    for (policies, health, expected) in [
        (Policies::Deny, Health::Fine, "are denied"),
        (audit("2026-01-07T00:00:00Z"), Health::Attention, "for 2d0h now: after a week"),
        (audit("2026-01-02T00:00:01Z"), Health::Attention, "after a week"),
        (audit("2026-01-02T00:00:00Z"), Health::Problem, "(Audit), for 7d0h now"),
        (audit("never"), Health::Problem, "(Audit)"),
        (Policies::Absent, Health::Problem, "no policy denies"),
        (Policies::Unread, Health::Unknown, "could not be listed"),
    ] {
        let symptom = check_admission_policies(policies, None, wall, &Installation::default());
        assert!(symptom.health == health && symptom.what.contains(expected), "{policies:?}: {symptom:?}");
    }
}
