//! Devices that call more than one state off: their report counts if the order met a machine that was on.

use super::*;

fn fixture(driver: &str, agent: Option<&str>) -> Fixture {
    let mut spec = json!({ "driver": driver, "parameters": { "address": "https://bmc.example", "insecure": "true" } });
    if let Some(agent) = agent {
        spec["agent"] = json!(agent);
    }
    Fixture { device: Some(json!({ "spec": spec })), ..Fixture::default() }
}

fn agent(name: &str) -> Fixture {
    fixture("Agent", Some(name))
}

fn redfish() -> Fixture {
    fixture("Redfish", None)
}

/// How a device answers the order.
#[derive(Clone, Copy, Debug)]
enum Reply {
    Done,
    /// The agent considers the machine off, and sends nothing.
    NotSent,
    /// The answer is lost.
    Lost,
    /// The device reports a failure: it refuses the order, and its chassis is on.
    Denied,
}

/// What two checks prove after an order to a machine that is in this state before, and reported off afterwards; and the
/// sequence of calls. `earlier`: the device met it on at an earlier attempt.
async fn fenced(fixture: Fixture, before: Power, reply: Reply, earlier: Option<DeviceRef>) -> (Verified, Vec<String>) {
    let ordered = Mutex::new(false);
    let is_agent = fixture.device.as_ref().is_some_and(|device| device["spec"]["driver"] == "Agent");
    let harness = harness(fixture, move |act, _| {
        let mut ordered = ordered.lock();
        *ordered |= act == Act::Off;
        match (act, reply) {
            (Act::Off, Reply::Lost) => Some(Err(DeviceError::TimedOut { after: Duration::from_secs(1) })),
            (Act::Off, Reply::Denied) => Some(Err(DeviceError::Failed { said: "the chassis is on".to_owned() })),
            // A client of a controller reports what it reads afterwards, an agent no state.
            (Act::Off, Reply::Done) if is_agent => answer_with(Power::Unknown),
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
    use Reply::{Denied, Done, Lost, NotSent};
    for (what, fixture, before, order, proved) in [
        ("switched off", agent("fence_pve"), On, Done, true),
        ("the answer is lost", agent("fence_pve"), On, Lost, true),
        ("a failure is reported", agent("fence_pve"), On, Denied, true),
        ("suspended before", agent("fence_pve"), Off, Done, false),
        ("unclear before", agent("fence_virsh"), Unknown, Done, false),
        ("an agent that is not in the table", agent("fence_acme"), Off, Done, false),
        ("the same that is on", agent("fence_acme"), On, Done, true),
        ("a supply that is off", agent("fence_cdu"), Off, Done, true),
        ("a controller that was reset takes the order", redfish(), Off, Done, true),
        ("a controller that was reset refuses it", redfish(), Off, Denied, false),
        ("a controller that was reset loses its answer", redfish(), Off, Lost, false),
        ("a controller that loses its answer, as it is reset meanwhile", redfish(), On, Lost, false),
        ("the same, through its agent", agent("fence_redfish"), On, Lost, false),
        ("it is reset before its agent reads the state", agent("fence_redfish"), On, NotSent, false),
        ("its agent sends the order", agent("fence_redfish"), On, Done, true),
        ("suspended while its agent starts", agent("fence_pve"), On, NotSent, false),
        ("a controller that is reset meanwhile refuses the order", redfish(), On, Denied, false),
        ("the same, through its agent", agent("fence_redfish"), On, Denied, false),
    ] {
        let (verified, _) = fenced(fixture, before, order, None).await;
        assert_eq!(verified.power == Power::Off, proved, "{what}: {verified:?}");
        assert_eq!(verified.message.contains("was not seen on before"), !proved, "{what}: {verified:?}");
    }
    for (device, proved) in [("bmc", true), ("pdu", false)] {
        let met = Some(DeviceRef { name: device.to_owned(), ..bmc() });
        let (verified, _) = fenced(agent("fence_pve"), Off, Done, met).await;
        assert_eq!(verified.power == Power::Off, proved, "an earlier attempt met it by {device}: {verified:?}");
    }
}

/// The controller lost its answer to the first order because it was reset, and reported off from then on. That the
/// first attempt had met the machine on proved it off.
#[tokio::test(start_paused = true)]
async fn bug_an_earlier_attempt_outweighed_a_reset_of_the_controller() {
    for (what, fixture, reply, proved) in [
        ("its chassis is on", redfish(), Reply::Denied, false),
        ("its answer is lost again", redfish(), Reply::Lost, false),
        ("it takes the order, or its chassis is off", redfish(), Reply::Done, true),
        ("its agent sends nothing to a machine that it considers off", agent("fence_redfish"), Reply::NotSent, false),
        ("a hypervisor is not reset", agent("fence_vmware_rest"), Reply::Denied, true),
    ] {
        let (verified, _) = fenced(fixture, Power::Off, reply, Some(bmc())).await;
        assert_eq!(verified.power == Power::Off, proved, "{what}: {verified:?}");
    }
    let same = crate::transport::off_ambiguity(&Driver::Agent("fence_redfish".into()));
    assert_eq!(same, crate::transport::off_ambiguity(&Driver::Redfish), "the table has one row for both");
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
    let (_, log) = fenced(agent("fence_pve"), Power::On, Reply::Done, None).await;
    assert_eq!(log, ["device look", STATUS, "device off", STATUS]);
    let (_, log) = fenced(agent("fence_ipmilan"), Power::On, Reply::Done, None).await;
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
