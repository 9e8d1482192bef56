//! The state of a fence device: the same word on every page.

use pod_safety_shared::testing::objects::{named, uid};

use super::*;

/// A device with these conditions, whose last status check was of the spec of that generation.
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
fn an_untrusted_device_is_not_trusted_whether_ready_or_not() {
    assert_eq!(state(&[], 0), "Unseen");
    assert_eq!(state(&[("Ready", "True"), ("Trusted", "True")], 2), "Ready");
    assert_eq!(state(&[("Ready", "False"), ("Trusted", "True")], 2), "NotReady");
    assert_eq!(state(&[("Ready", "True"), ("Trusted", "False")], 2), "NotTrusted");
    assert_eq!(state(&[("Ready", "True"), ("Trusted", "False")], 1), "NotTrusted");
}

/// The dashboard showed a device as ready by the check of its former spec, while `doctor` showed "not checked".
#[test]
fn bug_a_device_that_was_changed_counted_as_ready() {
    assert_eq!(state(&[("Ready", "True"), ("Trusted", "True")], 1), "Unseen");
}
