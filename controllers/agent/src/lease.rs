//! The Lease as JSON.

use std::collections::BTreeMap;

use pod_safety_watchdog::record::{BootSurvival, ObservedLease, PREFIX, PodReport, Record, Version, lease_name};
use serde_json::{Value, json};

/// Decodes the API server's answer.
///
/// # Errors
/// It is no Lease.
pub fn parse(body: &[u8]) -> Result<ObservedLease, String> {
    let lease: Value = serde_json::from_slice(body).map_err(|error| format!("the answer is no JSON: {error}"))?;
    let version = lease["metadata"]["resourceVersion"].as_str().filter(|version| !version.is_empty());
    let version: Version = version.ok_or("the answer has no resourceVersion")?.into();
    let annotations = lease["metadata"]["annotations"].as_object().into_iter().flatten();
    let texts = annotations.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    let annotations: BTreeMap<String, String> = texts.filter(|(name, _)| name.starts_with(PREFIX)).collect();
    Ok(ObservedLease { version, record: Record::from_annotations(&annotations).ok() })
}

/// The whole object, to be written at that resourceVersion. The agent owns every field of it.
#[must_use]
pub fn encode(
    (namespace, node): (&str, &str),
    record: &Record,
    survived: Option<&BootSurvival>,
    pods: Option<&PodReport>,
    over: Option<&Version>,
) -> Vec<u8> {
    let mut annotations = record.to_annotations();
    annotations.extend(survived.into_iter().flat_map(BootSurvival::to_annotations));
    annotations.extend(pods.into_iter().flat_map(PodReport::to_annotations));
    let mut metadata = json!({
        "namespace": namespace,
        "name": lease_name(node),
        "labels": { "app.kubernetes.io/name": "pod-safety", "app.kubernetes.io/component": "agent" },
        "annotations": annotations,
    });
    if let Some(version) = over {
        metadata["resourceVersion"] = json!(&**version);
    }
    let mut spec = json!({ "holderIdentity": record.epoch.to_string() });
    if let Some(device) = &record.device {
        spec["leaseDurationSeconds"] = json!(device.timeout.as_secs());
    }
    let lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec });
    lease.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pod_safety_watchdog::record::{Boot, Epoch, State};

    #[test]
    fn a_record_is_decoded_as_it_was_encoded() {
        let boot = Boot { node: "7a1c".into(), id: "c3d0".into() };
        let record =
            Record { state: State::Unarmed, epoch: Epoch { process: 5, count: 0 }, round: 0, boot, device: None };
        let bytes = encode(("safe", "a"), &record, None, None, Some(&"17".into()));
        let seen = parse(&bytes).unwrap();
        assert_eq!((&*seen.version, seen.record), ("17", Some(record.clone())));
        let new = encode(("safe", "a"), &record, None, None, None);
        assert!(parse(&new).unwrap_err().contains("resourceVersion"), "a new object has none");
        assert!(String::from_utf8(new).unwrap().contains("watchdog.a"));
    }

    #[test]
    fn attack_an_invalid_lease_is_unknown_and_not_absent() {
        let body = br#"{"metadata":{"resourceVersion":"9","annotations":{"watchdog.pod-safety.dev/state":"Armed"}}}"#;
        assert_eq!(parse(body).unwrap(), ObservedLease { version: "9".into(), record: None });
        assert!(parse(b"<html>").is_err() && parse(b"{}").is_err());
    }
}
