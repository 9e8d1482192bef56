//! What is said of a device as an Event: each change of one of its conditions, when it was written.

use std::sync::Arc;

use super::StepContext;
use crate::api::{Condition, DeviceRef, PROBLEM_REASONS};
use crate::events::{Event, EventType, InvolvedObject, ReportingController};
use crate::model::{DeviceKey, Uid};

/// What is said of a device that answers: for the first time, and when it did not before.
const ANSWERS: &str = "AllTargetsReachable";
const ANSWERS_AGAIN: &str = "DeviceReachable";

/// What else may be the reason of a condition that is False.
const OTHER_REASONS: [&str; 3] = ["NoNodes", "LookFailed", "EvidenceContradicted"];

/// A change of a condition, in the words of the condition: those are in its status, in metrics and in the docs.
fn change_event(before: &[Condition], after: &Condition) -> Option<(EventType, &'static str)> {
    let before = before.iter().find(|one| one.r#type == after.r#type);
    if before.is_some_and(|before| (&before.status, &before.reason) == (&after.status, &after.reason)) {
        return None;
    }
    match (&*after.r#type, &*after.status) {
        ("Ready", "True") if before.is_some() => Some((EventType::Normal, ANSWERS_AGAIN)),
        ("Ready", "True") => Some((EventType::Normal, ANSWERS)),
        // That nothing was contradicted is no news.
        (_, "True") => None,
        _ => {
            let mut reasons = PROBLEM_REASONS.into_iter().chain(OTHER_REASONS);
            reasons.find(|word| *word == after.reason).map(|word| (EventType::Warning, word))
        }
    }
}

impl StepContext<'_> {
    /// Says what changed with these conditions of a device.
    pub(super) fn record_changes(
        &self,
        device: &DeviceRef,
        uid: Option<&str>,
        before: &[Condition],
        after: &[Condition],
    ) {
        let Some(uid) = uid.and_then(Uid::new) else { return };
        for condition in after {
            let Some((kind, reason)) = change_event(before, condition) else { continue };
            let key = DeviceKey {
                namespace: Arc::from(&*device.namespace),
                name: Arc::from(&*device.name),
                uid: uid.clone(),
            };
            let message = condition.message.clone();
            self.events.record(Event::new(
                ReportingController::Own,
                InvolvedObject::Device(key),
                kind,
                reason,
                message,
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(kind: &str, status: &str, reason: &str) -> Condition {
        let word = str::to_owned;
        Condition {
            r#type: word(kind),
            status: word(status),
            reason: word(reason),
            message: word("m"),
            ..Condition::default()
        }
    }

    #[test]
    fn a_change_is_said_in_the_conditions_own_word_and_what_stays_is_not() {
        let well = condition("Ready", "True", "AllTargetsReachable");
        let trusted = condition("Trusted", "True", "NeverContradicted");
        let is =
            |before: &[Condition], after: &Condition| change_event(before, after).map(|(_, reason)| reason);
        assert_eq!(is(&[], &well), Some("AllTargetsReachable"));
        assert_eq!(is(&[], &trusted), None);
        for problem in PROBLEM_REASONS.into_iter().chain(["NoNodes", "LookFailed"]) {
            let ill = condition("Ready", "False", problem);
            let said = Some((EventType::Warning, problem));
            assert_eq!(change_event(std::slice::from_ref(&well), &ill), said);
            assert_eq!(is(std::slice::from_ref(&ill), &ill), None, "it was said");
            assert_eq!(is(&[ill], &well), Some("DeviceReachable"));
        }
        assert_eq!(is(std::slice::from_ref(&well), &well), None);
        let other = condition("Ready", "False", "Unreachable");
        assert_eq!(is(&[condition("Ready", "False", "LoginDenied")], &other), Some("Unreachable"));
        let untrue = condition("Trusted", "False", "EvidenceContradicted");
        assert_eq!(is(&[well, trusted], &untrue), Some("EvidenceContradicted"));
    }
}
