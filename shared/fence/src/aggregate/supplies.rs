//! Two devices that report or do not: the two power supplies of one machine.

use super::*;
use crate::api::DeviceRef;

/// Power, identity, and the device's message.
type SampleRow = (&'static str, &'static str, &'static str);

fn device_samples(device: &str, check: IdentityCheck, looks: &[SampleRow]) -> DeviceSamples {
    let device = DeviceRef { namespace: "fencing".to_owned(), name: device.to_owned() };
    let sample = |(power, identity, said): &SampleRow| Sample {
        device: device.clone(),
        power: power.parse().unwrap(),
        identity: identity.parse().unwrap(),
        said: (*said).to_owned(),
        ..Sample::default()
    };
    DeviceSamples { check, samples: looks.iter().map(sample).collect() }
}

const OFF: SampleRow = ("Off", "Match", "");
const ON: SampleRow = ("On", "Match", "");
/// A power supply reports no identity.
const BARE: SampleRow = ("Off", "Unknown", "");
const SILENT: SampleRow = ("Unknown", "Unknown", "timed out after 20 s");
const OTHER: SampleRow = ("Off", "Mismatch", "its serial number is 7");

#[test]
fn a_machine_with_two_supplies_is_off_when_both_report_off_twice_without_an_identity_mismatch() {
    use IdentityCheck::{BestEffort, Required};
    type Row = (IdentityCheck, &'static [SampleRow], &'static [SampleRow], &'static str, &'static str);
    let rows: [Row; 13] = [
        (BestEffort, &[OFF, OFF], &[OFF, OFF], "Off", ""),
        (BestEffort, &[OFF, OFF], &[BARE, BARE], "Off", ""),
        (BestEffort, &[OFF, OFF, OFF], &[OFF, OFF], "Off", ""),
        (BestEffort, &[OFF, OFF], &[ON, ON], "On", "fencing/right says On"),
        (BestEffort, &[OFF, OFF], &[OFF, ON], "On", "fencing/right says On"),
        (BestEffort, &[OFF, OFF], &[ON, OFF], "On", "fencing/right says On"),
        (BestEffort, &[OFF, OFF], &[SILENT, SILENT], "Unknown", "fencing/right says Unknown: timed out after 20 s"),
        (BestEffort, &[OFF, OFF], &[OFF, SILENT], "Unknown", "fencing/right says Unknown: timed out after 20 s"),
        (BestEffort, &[OFF, OFF], &[OFF], "Unknown", "not every device was checked"),
        (BestEffort, &[OFF, OFF], &[], "Unknown", "not every device was checked"),
        (
            BestEffort,
            &[OFF, OFF],
            &[OFF, OTHER],
            "Unknown",
            "fencing/right reaches a machine other than the node's: its serial number is 7",
        ),
        (
            Required,
            &[OFF, OFF],
            &[OFF, BARE],
            "Unknown",
            "fencing/right does not report which machine it reaches, and identityCheck is Required",
        ),
        (Required, &[ON, ON], &[SILENT, SILENT], "On", "fencing/left says On"),
    ];
    for (check, left, right, power, message) in rows {
        let (left, right) = (device_samples("left", check, left), device_samples("right", check, right));
        let verified = aggregate_samples(Act::Off, &[left.clone(), right.clone()], None);
        assert_eq!((verified.power.name(), &*verified.message), (power, message), "{left:?} {right:?}");
        assert_eq!(aggregate_samples(Act::Off, &[right, left], None).power.name(), power, "in whichever order");
    }
}

#[test]
fn identity_check_is_required_of_each_device_on_its_own() {
    let strict = |looks: &[SampleRow]| device_samples("strict", IdentityCheck::Required, looks);
    let lax = |looks: &[SampleRow]| device_samples("lax", IdentityCheck::BestEffort, looks);
    assert_eq!(aggregate_samples(Act::Off, &[strict(&[OFF, OFF]), lax(&[BARE, BARE])], None).power, Power::Off);
    assert_eq!(aggregate_samples(Act::Off, &[strict(&[BARE, BARE]), lax(&[OFF, OFF])], None).power, Power::Unknown);
}

#[test]
fn a_machine_is_on_when_one_supply_is_on_and_the_message_names_the_other() {
    let aggregate = |left: &[SampleRow], right: &[SampleRow]| {
        let check = IdentityCheck::BestEffort;
        let verified = aggregate_samples(
            Act::On,
            &[device_samples("left", check, left), device_samples("right", check, right)],
            None,
        );
        (verified.power.to_string(), verified.message)
    };
    let says = |power: &str, message: &str| (power.to_owned(), message.to_owned());
    assert_eq!(aggregate(&[ON], &[ON]), says("On", ""), "one look is enough");
    assert_eq!(aggregate(&[ON], &[OFF]), says("On", "fencing/right says Off"));
    assert_eq!(aggregate(&[SILENT], &[ON]), says("On", "fencing/left says Unknown: timed out after 20 s"));
    assert_eq!(
        aggregate(&[OFF], &[OFF]),
        says("Unknown", "fencing/left says Off"),
        "that it is off is proved by two looks"
    );
    assert_eq!(aggregate(&[ON], &[]), says("On", "not every device was checked"));
}

#[test]
fn samples_are_returned_unchanged_in_the_order_of_the_devices() {
    let check = IdentityCheck::BestEffort;
    let renewed = Some("2026-01-01T00:00:00Z".to_owned());
    let verified = aggregate_samples(
        Act::Off,
        &[device_samples("left", check, &[OFF, ON]), device_samples("right", check, &[SILENT])],
        renewed.clone(),
    );
    assert_eq!(verified.lease_renewed, renewed);
    let samples: Vec<_> = verified
        .samples
        .iter()
        .map(|sample| (sample.device.name.as_str(), sample.power.name(), sample.said.as_str()))
        .collect();
    assert_eq!(samples, [("left", "Off", ""), ("left", "On", ""), ("right", "Unknown", "timed out after 20 s")]);
}
