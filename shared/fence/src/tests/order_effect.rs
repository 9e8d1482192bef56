//! Devices that call more than one state off: their word counts of a machine that the order met.

use super::*;

fn there(driver: &str, agent: Option<&str>) -> There {
    let mut spec =
        json!({ "driver": driver, "parameters": { "address": "https://bmc.example", "insecure": "true" } });
    if let Some(agent) = agent {
        spec["agent"] = json!(agent);
    }
    There { device: Some(json!({ "spec": spec })), ..There::default() }
}

/// What two looks prove after an order to a machine that is in this state before, and off afterwards; and in which order all that was.
async fn fenced(
    there: There,
    before: Power,
    order: Result<(), ()>,
    earlier: bool,
) -> (Verified, Vec<String>) {
    let ordered = Mutex::new(false);
    let scene = scene(there, move |act, _| {
        let mut ordered = ordered.lock();
        *ordered |= act == Act::Off;
        match (act, order) {
            (Act::Off, Err(())) => {
                Some(Err(DeviceError::Unreachable { said: "the answer is lost".to_owned() }))
            }
            (Act::Look, _) if !*ordered => answer_with(before),
            _ => answer_with(Power::Off),
        }
    });
    let mut status = tried("off");
    if earlier {
        let first = Attempt { met: vec![bmc()], ..status.attempts[0].clone() };
        status.attempts.insert(0, first);
    }
    scene.ends(Step::Attempt(target(status)), "written").await;
    let log = scene.log();
    let written = scene.written("nodefences")["status"].clone();
    scene.ends(Step::Look(target(serde_json::from_value(written).unwrap())), "written").await;
    let written = scene.written("nodefences")["status"].clone();
    let status: NodeFenceStatus = serde_json::from_value(written).unwrap();
    (status.attempts.last().unwrap().verified.clone().unwrap(), log)
}

/// A machine that was suspended by somebody else was evidence, and continued later.
#[tokio::test(start_paused = true)]
async fn bug_a_machine_that_was_off_for_a_device_in_doubt_before_it_was_ordered_was_proved_off() {
    use Power::{Off, On, Unknown};
    let agent = |name| there("Agent", Some(name));
    let redfish = || there("Redfish", None);
    for (what, there, before, order, proved) in [
        ("switched off", agent("fence_pve"), On, Ok(()), true),
        ("the answer is lost", agent("fence_pve"), On, Err(()), true),
        ("suspended before", agent("fence_pve"), Off, Ok(()), false),
        ("unclear before", agent("fence_virsh"), Unknown, Ok(()), false),
        ("an agent that is not in the table", agent("fence_acme"), Off, Ok(()), false),
        ("the same that is on", agent("fence_acme"), On, Ok(()), true),
        ("a supply that is off", agent("fence_apc"), Off, Ok(()), true),
        ("a controller that was reset takes the order", redfish(), Off, Ok(()), true),
        ("a controller that was reset refuses it", redfish(), Off, Err(()), false),
        ("a controller that loses its answer", redfish(), On, Err(()), true),
    ] {
        let (verified, _) = fenced(there, before, order, false).await;
        assert_eq!(verified.power == Power::Off, proved, "{what}: {verified:?}");
        assert_eq!(verified.message.contains("was not seen on before"), !proved, "{what}: {verified:?}");
    }
    let (verified, _) = fenced(agent("fence_pve"), Off, Ok(()), true).await;
    assert_eq!(verified.power, Power::Off, "an earlier attempt met it: {verified:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_seen_before_stands_in_the_intent_and_only_devices_in_doubt_are_asked_for_it() {
    let (_, log) = fenced(there("Agent", Some("fence_pve")), Power::On, Ok(()), false).await;
    assert_eq!(log, ["device look", STATUS, "device off", STATUS]);
    let (_, log) = fenced(there("Agent", Some("fence_ipmilan")), Power::On, Ok(()), false).await;
    assert_eq!(log, [STATUS, "device off", STATUS]);
}
