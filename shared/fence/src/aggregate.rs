//! What status checks prove. Pure.

use crate::api::{IdentityCheck, IdentityMatch, Sample, Verified};
use crate::transport::{Act, Power};

/// One device, with the samples of its status checks.
#[derive(Clone, Debug)]
pub(super) struct DeviceSamples {
    pub(super) check: IdentityCheck,
    pub(super) samples: Vec<Sample>,
}

/// Aggregates the samples of all devices. For `off`, two of each are needed.
pub(super) fn aggregate_samples(act: Act, devices: &[DeviceSamples], lease_renewed: Option<String>) -> Verified {
    let needed = if act == Act::Off { 2 } else { 1 };
    let mut message = None;
    let mut complain = |problem: String| message.get_or_insert(problem).clone();
    let mut all = !devices.is_empty();
    let mut any_on = false;
    let expected = if act == Act::Off { Power::Off } else { Power::On };
    for one in devices {
        any_on |= one.samples.iter().any(|sample| sample.power == Power::On);
        if one.samples.len() < needed {
            all = false;
            complain("not every device was checked".to_owned());
        }
        for sample in &one.samples {
            if let Some(problem) = find_problem(sample, one.check, expected) {
                all = false;
                complain(problem);
            }
        }
    }
    let power = match (all, any_on) {
        (true, _) => expected,
        (false, true) => Power::On,
        (false, false) => Power::Unknown,
    };
    let samples = devices.iter().flat_map(|one| one.samples.iter().cloned()).collect();
    let message = message.unwrap_or_default();
    Verified { power, message, samples, corroborated: Vec::new(), lease_renewed }
}

fn find_problem(sample: &Sample, check: IdentityCheck, expected: Power) -> Option<String> {
    let Sample { device, power, identity, said, .. } = sample;
    if *identity == IdentityMatch::Mismatch {
        return Some(format!("{device} reaches a machine other than the node's: {said}"));
    }
    if *identity != IdentityMatch::Match && check == IdentityCheck::Required {
        return Some(format!("{device} does not report which machine it reaches, and identityCheck is Required"));
    }
    let is_as_expected = if expected == Power::Off { power.is_off() } else { *power == expected };
    (!is_as_expected).then(|| match said.is_empty() {
        true => format!("{device} says {power}"),
        false => format!("{device} says {power}: {said}"),
    })
}

#[cfg(test)]
mod supplies;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::DeviceRef;

    fn sample(device: &str, power: &str, identity: &str) -> Sample {
        let device = DeviceRef { namespace: "fencing".to_owned(), name: device.to_owned() };
        Sample { device, power: power.parse().unwrap(), identity: identity.parse().unwrap(), ..Sample::default() }
    }

    fn seen(check: IdentityCheck, samples: &[(&str, &str)]) -> DeviceSamples {
        let samples = samples.iter().map(|(power, identity)| sample("d", power, identity)).collect();
        DeviceSamples { check, samples }
    }

    #[test]
    fn off_requires_two_status_checks_of_each_device() {
        use IdentityCheck::{BestEffort, Required};
        for (check, samples, expected) in [
            (BestEffort, &[("Off", "Unknown"), ("Off", "Unknown")][..], "Off"),
            (Required, &[("Off", "Match"), ("Off", "Match")], "Off"),
            (Required, &[("Off", "Match"), ("Off", "Unknown")], "Unknown"),
            (BestEffort, &[("Off", "Match"), ("Off", "Mismatch")], "Unknown"),
            (BestEffort, &[("Off", "Match")], "Unknown"),
            (BestEffort, &[("Off", "Match"), ("On", "Match")], "On"),
            (BestEffort, &[("Unknown", "Match"), ("Off", "Match")], "Unknown"),
            (BestEffort, &[], "Unknown"),
        ] {
            let verified = aggregate_samples(Act::Off, &[seen(check, samples)], None);
            assert_eq!(verified.power.name(), expected, "{check:?} {samples:?}");
            assert_eq!(verified.message.is_empty(), expected == "Off", "{samples:?}: {}", verified.message);
        }
        assert_eq!(aggregate_samples(Act::Off, &[], None).power, Power::Unknown, "no device proves nothing");
    }

    #[test]
    fn one_supply_that_is_on_keeps_the_machine_on() {
        let off = seen(IdentityCheck::BestEffort, &[("Off", "Unknown"), ("Off", "Unknown")]);
        let on = seen(IdentityCheck::BestEffort, &[("On", "Unknown"), ("On", "Unknown")]);
        assert_eq!(aggregate_samples(Act::Off, &[off.clone(), on.clone()], None).power, Power::On);
        assert_eq!(aggregate_samples(Act::Off, &[off.clone(), off.clone()], None).power, Power::Off);
        assert_eq!(aggregate_samples(Act::On, &[on.clone(), on], None).power, Power::On);
        assert_eq!(aggregate_samples(Act::On, &[off], None).power, Power::Unknown, "off is not on");
    }
}
