//! Devices that call more than one state off: their report counts if the order met a machine that was on.

use super::*;

fn fixture(driver: &str, agent: Option<&str>) -> Fixture {
    let mut spec = json!({ "driver": driver, "parameters": { "address": "https://bmc.example", "insecure": "true" } });
    if let Some(agent) = agent {
        spec["agent"] = json!(agent);
    }
    Fixture { device: Some(json!({ "spec": spec })), ..Fixture::default() }
}

/// What two checks prove after an order to a machine that is in this state before, and off afterwards; and the
/// sequence of calls.
async fn fenced(
    fixture: Fixture,
    before: Power,
    order: Result<(), ()>,
    earlier: Option<DeviceRef>,
) -> (Verified, Vec<String>) {
    let ordered = Mutex::new(false);
    let harness = harness(fixture, move |act, _| {
        let mut ordered = ordered.lock();
        *ordered |= act == Act::Off;
        match (act, order) {
            (Act::Off, Err(())) => Some(Err(DeviceError::Unreachable { said: "the answer is lost".to_owned() })),
            (Act::Look, _) if !*ordered => answer_with(before),
            _ => answer_with(Power::Off),
        }
    });
    let mut status = tried("off");
    if let Some(met) = earlier {
        let first = Attempt { met: vec![met], ..status.attempts[0].clone() };
        status.attempts.insert(0, first);
    }
    harness.assert_outcome(Step::Attempt(target(status)), "written").await;
    let log = harness.log();
    let written = harness.written("nodefences")["status"].clone();
    harness.assert_outcome(Step::Look(target(serde_json::from_value(written).unwrap())), "written").await;
    let written = harness.written("nodefences")["status"].clone();
    let status: NodeFenceStatus = serde_json::from_value(written).unwrap();
    (status.attempts.last().unwrap().verified.clone().unwrap(), log)
}

/// A machine that another client had suspended was evidence, and continued later.
#[tokio::test(start_paused = true)]
async fn bug_an_ambiguous_off_from_before_the_order_proved_off() {
    use Power::{Off, On, Unknown};
    let agent = |name| fixture("Agent", Some(name));
    let redfish = || fixture("Redfish", None);
    for (what, fixture, before, order, proved) in [
        ("switched off", agent("fence_pve"), On, Ok(()), true),
        ("the answer is lost", agent("fence_pve"), On, Err(()), true),
        ("suspended before", agent("fence_pve"), Off, Ok(()), false),
        ("unclear before", agent("fence_virsh"), Unknown, Ok(()), false),
        ("an agent that is not in the table", agent("fence_acme"), Off, Ok(()), false),
        ("the same that is on", agent("fence_acme"), On, Ok(()), true),
        ("a supply that is off", agent("fence_cdu"), Off, Ok(()), true),
        ("a controller that was reset takes the order", redfish(), Off, Ok(()), true),
        ("a controller that was reset refuses it", redfish(), Off, Err(()), false),
        ("a controller that loses its answer", redfish(), On, Err(()), true),
    ] {
        let (verified, _) = fenced(fixture, before, order, None).await;
        assert_eq!(verified.power == Power::Off, proved, "{what}: {verified:?}");
        assert_eq!(verified.message.contains("was not seen on before"), !proved, "{what}: {verified:?}");
    }
    for (device, proved) in [("bmc", true), ("pdu", false)] {
        let met = Some(DeviceRef { name: device.to_owned(), ..bmc() });
        let (verified, _) = fenced(agent("fence_pve"), Off, Ok(()), met).await;
        assert_eq!(verified.power == Power::Off, proved, "an earlier attempt met it by {device}: {verified:?}");
    }
}

/// The machine that was on is another one: that this one is off later may be its state from before the order.
#[tokio::test(start_paused = true)]
async fn an_order_that_meets_another_machine_has_met_none() {
    for (identity, met) in [(Identity::Match, 1), (Identity::Mismatch { found: "uuid-9".to_owned() }, 0)] {
        let harness = harness(fixture("Agent", Some("fence_pve")), move |_, _| {
            Some(Ok(Answer::new(Power::On, identity.clone(), String::new())))
        });
        harness.assert_outcome(Step::Attempt(target(tried("off"))), "written").await;
        let written = harness.written("nodefences")["status"].clone();
        let status: NodeFenceStatus = serde_json::from_value(written).unwrap();
        assert_eq!(status.attempts[0].met.len(), met);
    }
}

#[tokio::test(start_paused = true)]
async fn the_state_before_the_order_is_recorded_for_ambiguous_devices_only() {
    let (_, log) = fenced(fixture("Agent", Some("fence_pve")), Power::On, Ok(()), None).await;
    assert_eq!(log, ["device look", STATUS, "device off", STATUS]);
    let (_, log) = fenced(fixture("Agent", Some("fence_ipmilan")), Power::On, Ok(()), None).await;
    assert_eq!(log, [STATUS, "device off", STATUS]);
}

#[tokio::test(start_paused = true)]
async fn no_order_is_sent_if_the_node_reports_while_its_devices_are_checked() {
    let of_pve = fixture("Agent", Some("fence_pve"));
    let fixture = Fixture { renewed: Arc::new(|number| if number == 0 { 7 } else { 17 }), ..of_pve };
    let harness = harness(fixture, |_, _| answer_with(Power::On));
    harness.run_step(Step::Attempt(target(tried("off")))).await;
    assert_eq!(harness.log(), ["device look"], "neither an intent nor an order");
}
