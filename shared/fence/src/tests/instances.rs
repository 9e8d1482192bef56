//! Instances of a provider: how they are identified, and when their state is evidence.

use super::*;
use crate::api::{FenceEvidenceKind, IdentityCheck, Sample, evidence_kind_of};

const ID: &str = "i-0123456789abcdef0";

/// A node of EC2, and fence_aws with this plug.
fn fixture(plug: &str) -> Fixture {
    let mut node = machine();
    node["spec"]["providerID"] = json!(format!("aws:///eu-central-1a/{ID}"));
    let device = json!({ "spec": { "driver": "Agent", "agent": "fence_aws",
        "parameters": { "region": "{{.Instance.Region}}", "plug": plug } } });
    Fixture { node, device: Some(device), ..Fixture::default() }
}

async fn check_power(plug: &str, power_at: impl Fn(usize) -> Power + Send + Sync + 'static) -> (Verified, Duration) {
    check_power_after(Duration::ZERO, plug, power_at).await
}

/// As [`check_power`], for a node that has not reported for this time.
async fn check_power_after(
    unreachable_for: Duration,
    plug: &str,
    power_at: impl Fn(usize) -> Power + Send + Sync + 'static,
) -> (Verified, Duration) {
    let harness = harness(fixture(plug), move |_, number| {
        let message = "as its provider says".to_owned();
        Some(Ok(Answer::new(power_at(number), Identity::Unknown, message)))
    });
    advance(unreachable_for.as_secs_f64()).await;
    let begun = harness.env.now();
    harness.assert_outcome(Step::Look(target(tried("off"))), "written").await;
    (serde_json::from_value(harness.verified()).unwrap(), harness.env.now().since(begun))
}

#[tokio::test(start_paused = true)]
async fn two_checks_of_an_instance_by_its_provider_id_verify_stopped_or_gone() {
    use Power::{Gone, Off, On, Unknown};
    for (first, second, power, kind) in [
        (Off, Off, "Off", FenceEvidenceKind::InstanceStopped),
        (Off, Gone, "Off", FenceEvidenceKind::InstanceStopped),
        (Gone, Gone, "Off", FenceEvidenceKind::InstanceGone),
        (Gone, On, "On", FenceEvidenceKind::InstanceStopped),
        (Gone, Unknown, "Unknown", FenceEvidenceKind::InstanceStopped),
    ] {
        let power_at = move |number| if number == 0 { first } else { second };
        let (verified, took) = check_power("{{.Instance.ID}}", power_at).await;
        assert_eq!((verified.power.name(), evidence_kind_of(&verified.samples)), (power, kind), "{first:?} {second:?}");
        assert!(verified.samples.iter().all(|sample| sample.instance == ID), "{verified:?}");
        assert!(took >= Verified::MIN_INSTANCE_INTERVAL, "its provider may be behind: {took:?}");
    }
}

/// For a node whose Lease expired before, the interval is shorter.
#[tokio::test(start_paused = true)]
async fn the_interval_for_an_instance_does_not_shrink_with_the_age_of_the_lease() {
    let (verified, took) = check_power_after(Duration::from_secs(600), "{{.Instance.ID}}", |_| Power::Off).await;
    assert_eq!(verified.power, Power::Off);
    assert!(took >= Verified::MIN_INSTANCE_INTERVAL, "its provider may be behind: {took:?}");
}

/// The machine that had the name of the node before may be the one that is terminated.
#[tokio::test(start_paused = true)]
async fn attack_a_literal_plug_of_a_terminated_instance_proves_nothing() {
    let (verified, _) = check_power(ID, |_| Power::Gone).await;
    assert_eq!(verified.power, Power::Unknown);
    assert!(verified.message.contains("counts only where the parameters name it by .Instance.ID"), "{verified:?}");
    let (stopped, _) = check_power(ID, |_| Power::Off).await;
    assert_eq!(evidence_kind_of(&stopped.samples), FenceEvidenceKind::PowerOff, "a plug that a person names");
}

#[test]
fn evidence_of_an_instance_and_a_power_supply_is_of_kind_power_off() {
    let sample = |instance: &str, power: &str| Sample {
        driver: Some(crate::api::DeviceDriver::Agent),
        instance: instance.to_owned(),
        power: power.parse().unwrap(),
        ..Sample::default()
    };
    let seen =
        |samples: Vec<Sample>| super::super::aggregate::DeviceSamples { check: IdentityCheck::BestEffort, samples };
    let gone = || seen(vec![sample(ID, "Gone"), sample(ID, "Gone")]);
    let verified = super::super::aggregate::aggregate_samples(
        Act::Off,
        &[gone(), seen(vec![sample("", "Off"), sample("", "Off")])],
        None,
    );
    assert_eq!((verified.power, evidence_kind_of(&verified.samples)), (Power::Off, FenceEvidenceKind::PowerOff));
    let verified = super::super::aggregate::aggregate_samples(Act::On, &[gone()], None);
    assert_eq!(verified.power, Power::Unknown, "what is gone is not on");
}
