//! What is said of fence devices: the same word for each reader.

use pod_safety_shared::testing::objects::{named, uid};

use super::*;

/// A device of which the last status check found this, of the spec of that generation.
fn state(conditions: &[(&str, &str)], checked: i64) -> &'static str {
    let world = World::listed();
    let condition = |(kind, status): &(&str, &str)| json!({ "type": kind, "status": status, "reason": "Test", "message": "", "lastTransitionTime": "2026-11-21T10:22:50Z" });
    let conditions: Vec<_> = conditions.iter().map(condition).collect();
    let device = named("bmc")
        .in_namespace("fence")
        .set("/metadata/generation", json!(2))
        .set("/spec", json!({ "driver": "Agent", "agent": "fence_ipmilan", "nodeSelector": {} }))
        .set("/status", json!({ "observedGeneration": checked, "conditions": conditions }));
    world.apply(Kind::FenceDevices, &device, at(0));
    let guard = world.read();
    let view = guard.view();
    assert_eq!(view.devices().map(|device| &device.uid).collect::<Vec<_>>(), [&uid("uid-bmc")]);
    view.devices().next().unwrap().state().name()
}

#[test]
fn a_device_that_is_not_trusted_counts_as_that_whatever_it_answers() {
    assert_eq!(state(&[], 0), "Unseen");
    assert_eq!(state(&[("Ready", "True"), ("Trusted", "True")], 2), "Ready");
    assert_eq!(state(&[("Ready", "False"), ("Trusted", "True")], 2), "NotReady");
    assert_eq!(state(&[("Ready", "True"), ("Trusted", "False")], 2), "NotTrusted");
    assert_eq!(state(&[("Ready", "True"), ("Trusted", "False")], 1), "NotTrusted");
}

/// To the dashboard a device was ready by what its former spec came to, and `doctor` called it "not checked".
#[test]
fn bug_a_device_that_was_changed_counted_as_ready() {
    assert_eq!(state(&[("Ready", "True"), ("Trusted", "True")], 1), "Unseen");
}
