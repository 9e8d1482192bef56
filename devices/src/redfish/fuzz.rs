//! Fuzz targets: the answers of a Redfish service.

use pod_safety_fuzz::{Draw, fuzz, json};
use pod_safety_transport::{Identity, Machine, Power};
use serde_json::{Value, json};

use super::refusal::Refusal;
use super::service;
use super::system::{Collection, System};
use super::tests::{SYSTEM, UUID, system};

const WORDS: &[&str] = &[
    "@odata.id",
    "@odata.type",
    "PowerState",
    "On",
    "Off",
    "on",
    "OFF",
    "PoweringOff",
    "UUID",
    "SerialNumber",
    "Members",
    UUID,
    "Members@odata.count",
    "error",
    "message",
    "@Message.ExtendedInfo",
    "Message",
    SYSTEM,
    "/redfish/v1/",
    "/api",
    "VMware-",
    "00000000-0000-0000-0000-000000000000",
    "#ComputerSystem.",
    "Actions",
    "target",
    "4C4C4544",
    "-",
    " ",
];

fn answered<T: serde::de::DeserializeOwned>(draw: &mut Draw<'_>, mut answer: Value) -> Option<(T, Value)> {
    json::vary(draw, &mut answer, WORDS);
    Some((service::object(answer.to_string().as_bytes()).ok()?, answer))
}

/// The digits of a UUID, in both byte orders; `None`: it is none, or a placeholder.
fn digits(text: &str) -> Option<[String; 2]> {
    let text = text.trim();
    let digits = text.strip_prefix("VMware-").unwrap_or(text).to_lowercase();
    let digits: String = digits.chars().filter(|letter| !"- ".contains(*letter)).collect();
    let all_same = digits.chars().all(|digit| digit == '0') || digits.chars().all(|digit| digit == 'f');
    if digits.chars().count() != 32 || all_same || !digits.chars().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let byte = |at: usize| &digits[2 * at..2 * at + 2];
    let turned = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15].map(byte).concat();
    Some([digits, turned])
}

/// A power state is one of two exact values; a machine is the node's only by its UUID.
#[test]
fn power_and_identity_of_a_service_are_compared_exactly() {
    fuzz!(4_000, |draw| {
        let state = draw.word(&["Off", "On"]);
        let Some((system, answer)) = answered::<System>(draw, system(state)) else { return };
        let expected = match answer.get("PowerState").and_then(Value::as_str) {
            Some("On") => Power::On,
            Some("Off") => Power::Off,
            _ => Power::Unknown,
        };
        assert_eq!(system.power(), expected, "{answer}");
        let other = draw.text(WORDS);
        let node = if draw.once_in(3) { other.as_str() } else { UUID };
        let machine = Machine { system_uuid: node.into(), ..Machine::default() };
        let of = |field: &str| answer.get(field).and_then(Value::as_str).and_then(digits);
        let [uuid, serial] = ["UUID", "SerialNumber"].map(of);
        let own = digits(node);
        let same = |found: &Option<[String; 2]>| {
            found.as_ref().zip(own.as_ref()).is_some_and(|(found, own)| found.contains(&own[0]))
        };
        match system.identity(&machine) {
            Identity::Match => assert!(same(&uuid) || same(&serial), "{node:?} {answer}"),
            Identity::Mismatch { .. } => {
                assert!(own.is_some() && uuid.is_some() && !same(&uuid), "{node:?} {answer}")
            }
            Identity::Unknown => assert!(!same(&uuid) && !same(&serial), "{node:?} {answer}"),
        }
    });
}

/// If a service has several machines, none is chosen.
#[test]
fn a_system_is_chosen_only_if_it_is_the_only_one() {
    fuzz!(2_000, |draw| {
        let collection = json!({ "Members": [{ "@odata.id": SYSTEM }], "Members@odata.count": 1 });
        let Some((collection, answer)) = answered::<Collection>(draw, collection) else { return };
        let Ok(path) = collection.single_member() else { return };
        let members = answer["Members"].as_array().unwrap();
        let links: Vec<_> = members.iter().filter_map(|one| one["@odata.id"].as_str()).collect();
        let same = |link: &&str| link.trim_end_matches('/') == path.trim_end_matches('/');
        assert!(!links.is_empty() && links.iter().all(same), "{answer}");
        let count = answer.get("Members@odata.count").and_then(Value::as_u64);
        assert!(count.is_none_or(|count| count == members.len() as u64), "{answer}");
    });
}

/// A refusal is decoded, or ignored.
#[test]
fn a_refusal_is_decoded_or_ignored() {
    fuzz!(1_000, |draw| {
        let more = json!([{ "Message": "Login denied" }, { "MessageId": "x" }]);
        let refusal = json!({ "error": { "message": "See below.", "@Message.ExtendedInfo": more } });
        let Some((refusal, answer)) = answered::<Refusal>(draw, refusal) else { return };
        let text = refusal.text();
        assert!(text.len() <= answer.to_string().len(), "{answer}");
    });
}
