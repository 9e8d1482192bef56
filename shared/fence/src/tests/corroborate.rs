//! A second fact besides what devices report: it refutes, and proves nothing.

use super::*;
use crate::api::{Corroborated, Corroboration};

const OWN: &str = "10.0.0.1:10250";
const OTHER: &str = "10.0.0.2:10250";

fn addressed(mut node: Value, address: &str) -> Value {
    node["status"]["addresses"] = json!([{ "type": "InternalIP", "address": address }]);
    node
}

/// Node `n`, and node `m`, which is Ready.
fn lies_off() -> Harness {
    answers_with(|_, _| answer_with(Power::Off))
}

fn answers_with(script: impl Fn(Act, usize) -> Option<Result<Answer, DeviceError>> + Send + Sync + 'static) -> Harness {
    let other = addressed(node("m").ready("True").0, "10.0.0.2");
    let first: First = Arc::new(move |request| (request.path == "/api/v1/nodes/m").then(|| ApiAnswer::json(&other)));
    let fixture = Fixture { node: addressed(machine(), "10.0.0.1"), first, ..Fixture::default() };
    let harness = harness(fixture, script);
    harness.world.apply(Kind::Nodes, &node("m").ready("True").0, harness.env.now());
    harness
}

async fn check_power(harness: &Harness, required: Vec<Corroboration>) -> Verified {
    let mut status = tried("off");
    status.attempts[0].corroborate = required;
    harness.assert_outcome(Step::Look(target(status)), "written").await;
    serde_json::from_value(harness.verified()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn off_is_refuted_by_an_answering_kubelet_port_and_by_an_unreadable_fact() {
    for (what, open, power, expected) in [
        ("silence", Some(vec![OTHER]), "Off", ""),
        (
            "it answers",
            Some(vec![OWN, OTHER]),
            "Unknown",
            "something answers at the kubelet's port of node n (10.0.0.1:10250)",
        ),
        ("no node answers", Some(vec![]), "Unknown", "neither do those of other nodes"),
        ("no packet leaves", None, "Unknown", "cannot be tried: the device cannot be reached: permission denied"),
    ] {
        let harness = lies_off();
        *harness.devices.open.lock() = open;
        let verified = check_power(&harness, vec![Corroboration::KubeletPort]).await;
        assert_eq!(verified.power.name(), power, "{what}");
        assert!(verified.message.contains(expected), "{what}: {verified:?}");
        let addresses: Vec<_> = verified.corroborated.iter().map(|fact| fact.address.as_str()).collect();
        assert_eq!(addresses, if power == "Off" { vec![OWN] } else { Vec::new() }, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_probe_is_no_fact_without_another_ready_node() {
    let harness = lies_off();
    harness.world.apply(Kind::Nodes, &node("m").ready("False").rv(99).0, harness.env.now());
    *harness.devices.open.lock() = Some(vec![OTHER]);
    let verified = check_power(&harness, vec![Corroboration::KubeletPort]).await;
    assert_eq!((verified.power, verified.corroborated.len()), (Power::Unknown, 0), "{verified:?}");
}

#[tokio::test(start_paused = true)]
async fn without_a_required_fact_no_port_is_probed() {
    let harness = lies_off();
    *harness.devices.open.lock() = Some(vec![OWN, OTHER]);
    let verified = check_power(&harness, Vec::new()).await;
    assert_eq!((verified.power, verified.corroborated.len()), (Power::Off, 0));
}

#[tokio::test(start_paused = true)]
async fn a_second_fact_without_off_devices_proves_nothing() {
    let harness = lies_off();
    *harness.devices.open.lock() = Some(vec![OTHER]);
    let mut status = tried("off");
    status.attempts[0].corroborate = vec![Corroboration::KubeletPort];
    status.attempts[0].devices = Vec::new();
    harness.assert_outcome(Step::Look(target(status)), "written").await;
    assert_eq!(harness.verified()["power"], "Unknown");
}

#[tokio::test(start_paused = true)]
async fn before_a_force_delete_the_fact_is_read_again_at_the_recorded_address() {
    let harness = lies_off();
    let fact = |address: &str| {
        let (fact, at) = (Corroboration::KubeletPort, String::new());
        [Corroborated { fact, address: address.to_owned(), at }]
    };
    let sample = crate::api::Sample { device: bmc(), ..Default::default() };
    for (what, open, facts, is_off) in [
        ("silence", vec![OTHER], fact(OWN), true),
        ("it answers", vec![OWN, OTHER], fact(OWN), false),
        ("another address than it has now", vec!["10.0.0.9:10250", OTHER], fact("10.0.0.9:10250"), false),
        ("no address", vec![OTHER], fact("w1"), false),
        ("no node answers", vec![], fact(OWN), false),
    ] {
        *harness.devices.open.lock() = Some(open);
        let connection = harness.api.connection();
        let looker = harness.step_context(&connection).checker;
        let shown = looker.confirm_all_off(&incarnation(), std::slice::from_ref(&sample), &facts).await;
        assert_eq!(shown.is_ok(), is_off, "{what}: {shown:?}");
    }
}

/// The second fact is read when the check begins, so evidence that rests on it is as old as that.
#[tokio::test(start_paused = true)]
async fn evidence_with_a_second_fact_is_as_old_as_the_begin_of_the_check() {
    const LATER: Duration = Duration::from_secs(3);
    let facts = [Corroborated { fact: Corroboration::KubeletPort, address: OWN.to_owned(), at: String::new() }];
    let sample = crate::api::Sample { device: bmc(), ..Default::default() };
    for (facts, after) in [(&facts[..], Duration::ZERO), (&[], LATER)] {
        let answer = || Answer::new(Power::Off, Identity::Match, "off".to_owned());
        let harness = answers_with(move |_, _| Some(Ok(Answer { asked_after: LATER, ..answer() })));
        *harness.devices.open.lock() = Some(vec![OTHER]);
        let connection = harness.api.connection();
        let checker = harness.step_context(&connection).checker;
        let began = harness.env.now();
        let confirmed = checker.confirm_all_off(&incarnation(), std::slice::from_ref(&sample), facts).await;
        let (_, requested_at) = confirmed.unwrap();
        assert_eq!(requested_at.since(began), after, "{facts:?}");
    }
}
