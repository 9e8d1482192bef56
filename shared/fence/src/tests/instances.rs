//! Instances of a provider: what is known of them, when, and by which name.

use super::*;
use crate::api::{FenceEvidenceKind, IdentityCheck, Sample, evidence_kind_of};

const ID: &str = "i-0123456789abcdef0";

/// A node of EC2, and fence_aws with this plug.
fn there(plug: &str) -> There {
    let mut node = machine();
    node["spec"]["providerID"] = json!(format!("aws:///eu-central-1a/{ID}"));
    let device = json!({ "spec": { "driver": "Agent", "agent": "fence_aws",
        "parameters": { "region": "{{.Instance.Region}}", "plug": plug } } });
    There { node, device: Some(device), ..There::default() }
}

async fn check_power(
    plug: &str,
    says: impl Fn(usize) -> Power + Send + Sync + 'static,
) -> (Verified, Duration) {
    check_power_after(Duration::ZERO, plug, says).await
}

/// The same, of a node that has been silent for so long.
async fn check_power_after(
    silent: Duration,
    plug: &str,
    says: impl Fn(usize) -> Power + Send + Sync + 'static,
) -> (Verified, Duration) {
    let scene = scene(there(plug), move |_, number| {
        let said = "as its provider says".to_owned();
        Some(Ok(Answer::new(says(number), Identity::Unknown, said)))
    });
    advance(silent.as_secs_f64()).await;
    let begun = scene.env.now();
    scene.ends(Step::Look(target(tried("off"))), "written").await;
    (serde_json::from_value(scene.verified()).unwrap(), scene.env.now().since(begun))
}

#[tokio::test(start_paused = true)]
async fn two_looks_at_an_instance_by_its_provider_id_say_that_it_is_stopped_or_gone() {
    use Power::{Gone, Off, On, Unknown};
    for (first, second, power, kind) in [
        (Off, Off, "Off", FenceEvidenceKind::InstanceStopped),
        (Off, Gone, "Off", FenceEvidenceKind::InstanceStopped),
        (Gone, Gone, "Off", FenceEvidenceKind::InstanceGone),
        (Gone, On, "On", FenceEvidenceKind::InstanceStopped),
        (Gone, Unknown, "Unknown", FenceEvidenceKind::InstanceStopped),
    ] {
        let says = move |number| if number == 0 { first } else { second };
        let (verified, took) = check_power("{{.Instance.ID}}", says).await;
        assert_eq!(
            (verified.power.name(), evidence_kind_of(&verified.samples)),
            (power, kind),
            "{first:?} {second:?}"
        );
        assert!(verified.samples.iter().all(|sample| sample.instance == ID), "{verified:?}");
        assert!(took >= Verified::MIN_INSTANCE_INTERVAL, "its provider may be behind: {took:?}");
    }
}

/// A node that was silent for long is listened to for less.
#[tokio::test(start_paused = true)]
async fn two_looks_at_an_instance_are_as_far_apart_however_long_its_node_was_silent() {
    let (verified, took) =
        check_power_after(Duration::from_secs(600), "{{.Instance.ID}}", |_| Power::Off).await;
    assert_eq!(verified.power, Power::Off);
    assert!(took >= Verified::MIN_INSTANCE_INTERVAL, "its provider may be behind: {took:?}");
}

/// The machine that had the name of the node before may be the one that is terminated.
#[tokio::test(start_paused = true)]
async fn attack_a_plug_by_hand_that_names_a_terminated_instance_proves_nothing() {
    let (verified, _) = check_power(ID, |_| Power::Gone).await;
    assert_eq!(verified.power, Power::Unknown);
    assert!(
        verified.message.contains("counts only where the parameters name it by .Instance.ID"),
        "{verified:?}"
    );
    let (stopped, _) = check_power(ID, |_| Power::Off).await;
    assert_eq!(
        evidence_kind_of(&stopped.samples),
        FenceEvidenceKind::PowerOff,
        "a plug that a person names is switched off"
    );
}

#[test]
fn with_a_supply_beside_it_an_instance_is_no_more_than_off() {
    let sample = |instance: &str, power: &str| Sample {
        driver: Some(crate::api::DeviceDriver::Agent),
        instance: instance.to_owned(),
        power: power.parse().unwrap(),
        ..Sample::default()
    };
    let seen = |samples: Vec<Sample>| super::super::aggregate::DeviceSamples {
        check: IdentityCheck::BestEffort,
        samples,
    };
    let gone = || seen(vec![sample(ID, "Gone"), sample(ID, "Gone")]);
    let verified = super::super::aggregate::aggregate_samples(
        Act::Off,
        &[gone(), seen(vec![sample("", "Off"), sample("", "Off")])],
        None,
    );
    assert_eq!(
        (verified.power, evidence_kind_of(&verified.samples)),
        (Power::Off, FenceEvidenceKind::PowerOff)
    );
    let verified = super::super::aggregate::aggregate_samples(Act::On, &[gone()], None);
    assert_eq!(verified.power, Power::Unknown, "what is gone is not on");
}
