//! What is right is read, and each thing that is wrong ends in one line with its place.

use super::{Contender, parse, shipped};
use crate::campaign::{Behavior, Evictions, Fault, Fencing, Keeper, Malfunction, Trouble, Withdrawal};
use crate::checker::Invariant;

const TOP: &str = "nodes: 3\npods: 2\nheal-at: 100s\n";

/// What devices need, people who confirm nodes, and clients that request evictions.
const FENCING: &str = "node-lifecycle: replace\nfencing: {}\nevictions: {}\n";

fn parse_error(text: &str) -> String {
    let said = parse("x.yaml", text).unwrap_err().to_string();
    assert!(!said.contains('\n'), "one line: {said}");
    said
}

fn wrong_fault(fault: &str) -> String {
    parse_error(&format!("{TOP}faults:\n  - {{ {fault} }}\n"))
}

/// A value was repeated with its line breaks and escape sequences.
#[test]
fn bug_a_value_of_two_lines_made_two_lines_of_an_error() {
    assert!(parse_error("nodes: \"3\\n\\e[2J\"\npods: 2\nheal-at: 100s\n").contains(r"value `3\n\u{1b}[2J`"));
    assert!(parse_error("\"a\\nb\": 1\n").contains(r"field `a\nb`: unknown"));
}

#[test]
fn every_field_is_read() {
    let text = "\
name: n\ntitle: t\nabout: a\nseed: 7\napi-servers: 2\nnodes: 3\npods: 2\nreplicas: 3\nlease-collected-after: 1m30s
heal-at: 100s\nsubject: script\nexpect: { broken: 'S1, S4', stuck: 1 }\nfaults:
  - { at: 50s, fault: trouble-replica, replica: 2, trouble: delay 300ms, percent: 40, for: 5s }
  - { at: 20s, fault: power-off, node: 1, back-after: 10s }
  - { at: 30s, fault: cut-server, server: 1, answers-lost: true, for: 0 }
  - { at: 40s, fault: jump-node, node: 0, by: -1h }
";
    let scenario = parse("x.yaml", text).unwrap();
    let plan = &scenario.plan;
    assert_eq!((plan.seed, plan.servers, plan.nodes, plan.pods, plan.replicas), (7, 2, 3, 2, 3));
    assert_eq!((plan.lease_collected_after, plan.heal_at), (90, 100));
    assert_eq!((scenario.name.as_str(), scenario.title.as_str(), scenario.about.as_str()), ("n", "t", "a"));
    assert_eq!(scenario.subject, Contender::Script);
    assert!(scenario.expect.broken.iter().eq([&Invariant::AtMostOne, &Invariant::Identity]));
    assert_eq!(scenario.expect.stuck, Some(1));
    let faults = [
        (20, Fault::PowerOff { node: 1, back: Some(10) }),
        (30, Fault::CutServer { server: 1, answers_lost: true, seconds: 0 }),
        (40, Fault::JumpNode { node: 0, seconds: -3_600 }),
        (50, Fault::TroubleReplica { replica: 2, trouble: Trouble::Delay(300), percent: 40, seconds: 5 }),
    ];
    assert_eq!(plan.faults, faults, "in the order of their times");
}

#[test]
fn taints_and_who_looks_after_nodes_are_read() {
    let faults = "faults:\n  - { at: 1s, fault: add-taint, node: 1, taint: trouble-0 }
  - { at: 2s, fault: add-taint, node: 1, taint: unreachable, stamped: false }
  - { at: 3s, fault: lift-taint, node: 1, taint: trouble-1 }
  - { at: 4s, fault: tolerate, pod: 1, taint: trouble-0, for: 30s }
  - { at: 5s, fault: tolerate, pod: 0, taint: trouble-0 }\n";
    let plan = parse("x.yaml", &format!("{TOP}{faults}")).unwrap().plan;
    let read = [
        (1, Fault::AddTaint { node: 1, key: 0, stamped: true }),
        (2, Fault::AddTaint { node: 1, key: 2, stamped: false }),
        (3, Fault::LiftTaint { node: 1, key: 1 }),
        (4, Fault::Tolerate { pod: 1, key: 0, seconds: Some(30) }),
        (5, Fault::Tolerate { pod: 0, key: 0, seconds: None }),
    ];
    assert_eq!(plan.faults, read);
    assert!(plan.with.taints && plan.with.nodes == Keeper::Theirs);
    let kept = |how: &str| parse("x.yaml", &format!("{TOP}node-lifecycle: {how}\n")).unwrap().plan.with;
    assert_eq!((kept("none").nodes, kept("none").taints), (Keeper::Theirs, false));
    assert_eq!((kept("guard").nodes, kept("guard").taints), (Keeper::Guarded, false));
    assert_eq!((kept("replace").nodes, kept("replace").taints), (Keeper::Ours, true));
    let said = parse_error(&format!("{TOP}node-lifecycle: guard\n{faults}"));
    assert!(said.starts_with("x.yaml:4:17: field `node-lifecycle`: value `guard`, allowed is none"), "{said}");
    let said = wrong_fault("at: 5s, fault: add-taint, node: 1, taint: mine");
    assert!(said.ends_with("allowed is one of: trouble-0, trouble-1, unreachable"), "{said}");
}

#[test]
fn how_nodes_are_fenced_and_how_devices_fail_is_read() {
    let with = |fencing: &str| {
        parse("x.yaml", &format!("{TOP}node-lifecycle: replace\nfencing: {fencing}\n")).unwrap().plan.with
    };
    let usual = Fencing { tells: true, power_on: true, ..Fencing::default() };
    assert_eq!(with("{}").fencing, Some(usual));
    let other = with("{ when: always, identity: required, backup: true, recovery: hold }");
    let all = Fencing { always: true, tells: true, required: true, backup: true, ..Fencing::default() };
    assert_eq!(other.fencing, Some(all));
    assert_eq!(with("{ identity: none }").fencing, Some(Fencing { tells: false, ..usual }));
    let said = parse_error(&format!("{TOP}node-lifecycle: guard\nfencing: {{}}\n"));
    assert!(said.contains("field `node-lifecycle`: value `guard`, allowed is replace"), "{said}");
    let said = parse_error(&format!("{TOP}fencing: {{}}\n"));
    assert!(said.contains("field `node-lifecycle`: missing, allowed is replace"), "{said}");

    let faults = "faults:\n  - { at: 1s, fault: malfunction, node: 0, how: late-after-failure, late: 2m, for: 9s }
  - { at: 2s, fault: malfunction, node: 0, how: wrong-machine, machine: 2, for: 9s }
  - { at: 3s, fault: malfunction, node: 0, how: stale-off, for: 9s }
  - { at: 4s, fault: malfunction, node: 0, how: dies-with-it, for: 9s }
  - { at: 5s, fault: confirm-down, node: 1, for: 90s }
  - { at: 6s, fault: confirm-down, node: 1, wrong: true, for: 90s }\n";
    let plan = parse("x.yaml", &format!("{TOP}{FENCING}{faults}")).unwrap().plan;
    let fails = |how| Fault::Malfunction { node: 0, how, seconds: 9 };
    let read = [
        (1, fails(Malfunction::LateAfterFailure(120))),
        (2, fails(Malfunction::WrongMachine(2))),
        (3, fails(Malfunction::StaleOff)),
        (4, fails(Malfunction::DiesWithIt)),
        (5, Fault::Confirm { node: 1, wrong: false, valid: 90 }),
        (6, Fault::Confirm { node: 1, wrong: true, valid: 90 }),
    ];
    assert_eq!(plan.faults, read);
    let wrong_device = |fault: &str| parse_error(&format!("{TOP}{FENCING}faults:\n  - {{ {fault} }}\n"));
    let said = wrong_device("at: 1s, fault: malfunction, node: 0, how: wrong-machine, for: 9s");
    assert!(said.contains("field `machine`: missing"), "{said}");
    let said = wrong_device("at: 1s, fault: malfunction, node: 0, how: tired, for: 9s");
    assert!(said.contains("done-but-silent, acknowledges-only"), "{said}");
    let said = wrong_device("at: 1s, fault: confirm-down, node: 0, for: 59s");
    assert!(said.contains("field `for`: value `59s`, allowed is"), "{said}");
    let said = wrong_fault("at: 1s, fault: confirm-down, node: 0, for: 90s");
    assert!(said.contains("allowed only where `fencing` is given"), "{said}");
}

#[test]
fn responders_and_what_clients_request_are_read() {
    let top = format!("{TOP}evictions: {{ first: crashes, second: stalls, lost-node: true }}\n");
    let faults = "faults:\n  - { at: 1s, fault: request-eviction, pod: 5, client: 2, stale: true }
  - { at: 2s, fault: withdraw-request, client: 2, how: again }
  - { at: 3s, fault: withdraw-request }
  - { at: 4s, fault: switch-gate-off, for: 9s }\n";
    let plan = parse("x.yaml", &format!("{top}{faults}")).unwrap().plan;
    let evictions = Evictions { first: Behavior::Crashes, second: Some(Behavior::Stalls), lost_node: true, skew: 0 };
    assert_eq!(plan.with.evictions, Some(evictions));
    let read = [
        (1, Fault::RequestEviction { pod: 5, requester: 2, stale: true }),
        (2, Fault::WithdrawRequest { requester: 2, how: Withdrawal::Again }),
        (3, Fault::WithdrawRequest { requester: 0, how: Withdrawal::Properly }),
        (4, Fault::SwitchGateOff { seconds: 9 }),
    ];
    assert_eq!(plan.faults, read);
    let wrong_first = parse_error(&format!("{TOP}evictions: {{ first: sleeps }}\n"));
    assert!(wrong_first.contains("allowed is one of: moves, hands-over, declines"), "{wrong_first}");
    let no_api = wrong_fault("at: 1s, fault: request-eviction, pod: 0");
    assert!(no_api.contains("allowed only where `evictions` is given"), "{no_api}");
}

#[test]
fn json_is_yaml() {
    let text = r#"{ "nodes": 1, "pods": 1, "heal-at": "9s", "faults": [{ "at": "1s", "fault": "forget" }] }"#;
    let scenario = parse("dir/some.json", text).unwrap();
    assert_eq!((scenario.name.as_str(), scenario.plan.faults.len()), ("some", 1), "the file gives the name");
}

#[test]
fn an_unknown_field_is_named_with_its_place() {
    let said = parse_error(&format!("{TOP}nodez: 3\n"));
    assert!(said.starts_with("x.yaml:4:1: field `nodez`: unknown here, allowed are name, title,"), "{said}");
    let said = wrong_fault("at: 5s, fault: forget, nod: 3");
    assert!(said.starts_with("x.yaml:5:"), "{said}");
    assert!(said.contains("field `nod`: unknown here, allowed are at, fault, node,"), "{said}");
}

#[test]
fn invalid_yaml_is_reported_with_its_place() {
    let said = parse_error("nodes: [1\npods: 2\n");
    assert!(said.starts_with("x.yaml:") && said.contains(": not a scenario: "), "{said}");
    let said = parse_error("nodes: 3\nnodes: 4\n");
    assert!(said.starts_with("x.yaml:2:1: not a scenario: "), "{said}");
}

#[test]
fn impossible_topologies_are_refused() {
    for (text, expected) in [
        ("nodes: 0\npods: 2\nheal-at: 9s\n", "1:8: field `nodes`: value `0`, allowed is a whole number from 1 to 50"),
        ("nodes: -1\npods: 2\nheal-at: 9s\n", "1:8: field `nodes`: value `-1`, allowed is a whole number from 1 to 50"),
        ("nodes: 2\npods: 0\nheal-at: 9s\n", "2:7: field `pods`: value `0`, allowed is a whole number from 1 to 100"),
        (
            "nodes: 2\npods: 2\nreplicas: 0\nheal-at: 9s\n",
            "3:11: field `replicas`: value `0`, allowed is a whole number from 1 to 9",
        ),
        (
            "nodes: 2\npods: 2\napi-servers: 6\nheal-at: 9s\n",
            "3:14: field `api-servers`: value `6`, allowed is a whole number from 1 to 5",
        ),
        ("pods: 2\nheal-at: 9s\n", "1:1: field `nodes`: missing, allowed is a whole number from 1 to 50"),
        ("nodes: 2\npods: 2\n", "1:1: field `heal-at`: missing, allowed is a time after the last fault, such as 150s"),
    ] {
        assert_eq!(parse_error(text), format!("x.yaml:{expected}"));
    }
}

#[test]
fn faults_on_missing_objects_are_refused() {
    for (fault, expected) in [
        ("at: 5s, fault: reboot, node: 7", "field `node`: value `7`, allowed is 0 to 2: there are 3 nodes"),
        (
            "at: 5s, fault: switch-server, replica: 2",
            "field `replica`: value `2`, allowed is 0 to 1: there are 2 replicas of pod-safety",
        ),
        (
            "at: 5s, fault: restart-server, server: 1",
            "field `server`: value `1`, allowed is 0 to 0: there are 1 API servers",
        ),
        ("at: 5s, fault: evict, pod: 2", "field `pod`: value `2`, allowed is 0 to 1: there are 2 pods"),
    ] {
        let said = wrong_fault(fault);
        assert!(said.starts_with("x.yaml:5:") && said.ends_with(expected), "{said}");
    }
}

#[test]
fn impossible_times_are_refused() {
    let said = wrong_fault("at: -5s, fault: forget");
    let allowed = "allowed is 0s to 3600s in whole seconds, such as 45s or 1m30s";
    assert_eq!(said, format!("x.yaml:5:11: field `at`: value `-5s`, {allowed}"));
    let said = wrong_fault("at: 2h, fault: forget");
    assert!(said.contains("field `at`: value `2h`, allowed is 0s to 3600s"), "{said}");
    let said = wrong_fault("at: 1.5s, fault: forget");
    assert!(said.contains("field `at`: value `1.5s`, allowed is 0s to 3600s in whole seconds"), "{said}");
    let said = wrong_fault("at: 100s, fault: forget");
    assert!(said.ends_with("field `at`: value `100s`, allowed is a time before `heal-at`, which is 100s"), "{said}");
    let said = parse_error("nodes: 1\npods: 1\nheal-at: soon\n");
    assert!(said.starts_with("x.yaml:3:10: field `heal-at`: value `soon`, allowed is 0s to 3600s"), "{said}");
}

#[test]
fn impossible_faults_are_refused() {
    for (fault, expected) in [
        ("at: 5s, fault: explode", "field `fault`: value `explode`, allowed is one of: cut-node,"),
        ("at: 5s", "field `fault`: missing, allowed is one of: cut-node,"),
        ("fault: forget", "field `at`: missing, allowed is a time such as 45s"),
        ("at: 5s, fault: freeze, node: 1", "field `for`: missing, `freeze` needs it"),
        ("at: 5s, fault: reboot, node: 1, percent: 3", "field `percent`: value `3`, allowed with `reboot` are node"),
        (
            "at: 5s, fault: trouble-node, node: 1, trouble: drop-request, percent: 101, for: 1s",
            "field `percent`: value `101`, allowed is a whole number from 1 to 100",
        ),
        (
            "at: 5s, fault: trouble-node, node: 1, trouble: error 200, for: 1s",
            "field `trouble`: value `error 200`, allowed is lose-answer, cut-answer, drop-request, error 400 to error 599,",
        ),
        (
            "at: 5s, fault: cut-server, server: 0, answers-lost: maybe, for: 1s",
            "field `answers-lost`: value `maybe`, allowed is one of: true, false",
        ),
    ] {
        let said = wrong_fault(fault);
        assert!(said.starts_with("x.yaml:5:") && said.contains(expected), "{said}");
    }
}

#[test]
fn an_unknown_subject_or_rule_is_refused() {
    let said = parse_error(&format!("{TOP}subject: kcm\n"));
    let allowed = "allowed is one of: pod-safety, kube-controller-manager, script";
    assert_eq!(said, format!("x.yaml:4:10: field `subject`: value `kcm`, {allowed}"));
    let said = parse_error(&format!("{TOP}expect: {{ broken: S3 }}\n"));
    assert!(said.starts_with("x.yaml:4:") && said.contains("`expect.broken`: value `S3`, allowed is none,"), "{said}");
}

#[test]
fn each_listed_kind_can_be_parsed() {
    let all = "node: 0 replica: 0 server: 0 for: 60s ailment: runtime pod: 0 workload: 0 replicas: 2 min-available: 50% clients: 2 by: 1s trouble: lose-answer taint: trouble-1 how: flaps";
    let fields: Vec<&str> = all.split_inclusive(' ').collect();
    let pairs: Vec<String> = fields.chunks(2).map(|pair| pair.concat().trim().to_owned()).collect();
    let mut kinds = std::collections::BTreeSet::new();
    for kind in super::fault::KINDS {
        // Fields are added until it has all that it needs.
        let read = (0_u32..1 << pairs.len()).find_map(|bits| {
            let chosen = pairs.iter().enumerate().filter(|(at, _)| bits & (1 << at) != 0);
            let chosen: Vec<_> = chosen.map(|(_, pair)| pair.as_str()).collect();
            let entry = [&[&format!("at: 1s, fault: {kind}") as &str], chosen.as_slice()].concat().join(", ");
            parse("x.yaml", &format!("{TOP}{FENCING}faults:\n  - {{ {entry} }}\n")).ok()
        });
        let read = read.unwrap_or_else(|| panic!("{kind} cannot be written"));
        kinds.insert(read.plan.faults[0].1.kind());
    }
    assert_eq!(kinds.len(), super::fault::KINDS.len(), "each word is a fault of its own: {kinds:?}");
}

#[test]
fn the_shipped_scenarios_can_be_run_and_are_all_there() {
    let shipped = shipped().unwrap();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scenarios");
    let mut files: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    let mut names: Vec<String> = shipped.iter().map(|scenario| format!("{}.yaml", scenario.name)).collect();
    files.sort();
    names.sort();
    assert_eq!(names, files, "a file is not offered, or is named otherwise than its scenario");
    assert!(shipped.iter().all(|scenario| !scenario.title.is_empty() && !scenario.about.is_empty()));
}
