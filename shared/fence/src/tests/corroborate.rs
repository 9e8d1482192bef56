//! A second fact beside what devices report: it refutes, and proves nothing.

use super::*;
use crate::api::{Corroborated, Corroboration};

const OWN: &str = "10.0.0.1:10250";
const OTHER: &str = "10.0.0.2:10250";

fn addressed(mut node: Value, address: &str) -> Value {
    node["status"]["addresses"] = json!([{ "type": "InternalIP", "address": address }]);
    node
}

/// Node `n`, and node `m`, which is well.
fn lies_off() -> Scene {
    let other = addressed(node("m").ready("True").0, "10.0.0.2");
    let first: First = Arc::new(move |asked| (asked.path == "/api/v1/nodes/m").then(|| Says::json(&other)));
    let there = There { node: addressed(machine(), "10.0.0.1"), first, ..There::default() };
    let scene = scene(there, |_, _| answer_with(Power::Off));
    scene.world.apply(Kind::Nodes, &node("m").ready("True").0, scene.env.now());
    scene
}

async fn check_power(scene: &Scene, wanted: Vec<Corroboration>) -> Verified {
    let mut status = tried("off");
    status.attempts[0].corroborate = wanted;
    scene.ends(Step::Look(target(status)), "written").await;
    serde_json::from_value(scene.verified()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_switch_that_lies_is_refuted_by_a_machine_that_answers_and_by_what_is_not_known() {
    for (what, open, power, says) in [
        ("silence", Some(vec![OTHER]), "Off", ""),
        (
            "it answers",
            Some(vec![OWN, OTHER]),
            "Unknown",
            "something answers at the kubelet's port of node n (10.0.0.1:10250)",
        ),
        ("no node answers", Some(vec![]), "Unknown", "neither do those of other nodes"),
        (
            "no packet leaves",
            None,
            "Unknown",
            "cannot be tried: the device cannot be reached: permission denied",
        ),
    ] {
        let scene = lies_off();
        *scene.devices.open.lock() = open;
        let verified = check_power(&scene, vec![Corroboration::KubeletPort]).await;
        assert_eq!(verified.power.name(), power, "{what}");
        assert!(verified.message.contains(says), "{what}: {verified:?}");
        let found: Vec<_> = verified.corroborated.iter().map(|fact| fact.address.as_str()).collect();
        assert_eq!(found, if power == "Off" { vec![OWN] } else { Vec::new() }, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_another_ready_node_silence_says_nothing() {
    let scene = lies_off();
    scene.world.apply(Kind::Nodes, &node("m").ready("False").rv(99).0, scene.env.now());
    *scene.devices.open.lock() = Some(vec![]);
    let verified = check_power(&scene, vec![Corroboration::KubeletPort]).await;
    assert_eq!((verified.power, verified.corroborated.len()), (Power::Unknown, 0), "{verified:?}");
}

#[tokio::test(start_paused = true)]
async fn without_the_wish_nothing_is_tried() {
    let scene = lies_off();
    *scene.devices.open.lock() = Some(vec![OWN, OTHER]);
    let verified = check_power(&scene, Vec::new()).await;
    assert_eq!((verified.power, verified.corroborated.len()), (Power::Off, 0));
}

#[tokio::test(start_paused = true)]
async fn a_second_fact_alone_proves_nothing() {
    let scene = lies_off();
    *scene.devices.open.lock() = Some(vec![OTHER]);
    let mut status = tried("off");
    status.attempts[0].corroborate = vec![Corroboration::KubeletPort];
    status.attempts[0].devices = Vec::new();
    scene.ends(Step::Look(target(status)), "written").await;
    assert_eq!(scene.verified()["power"], "Unknown");
}

#[tokio::test(start_paused = true)]
async fn at_the_release_it_is_asked_once_more_where_it_was_found() {
    let scene = lies_off();
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
        *scene.devices.open.lock() = Some(open);
        let connection = scene.api.connection();
        let looker = scene.acting(&connection).checker;
        let shown = looker.confirm_all_off(&incarnation(), std::slice::from_ref(&sample), &facts).await;
        assert_eq!(shown.is_ok(), is_off, "{what}: {shown:?}");
    }
}
