//! Events about a device: one for each change of one of its conditions, when it was written.

use std::sync::Arc;

use super::StepContext;
use crate::api::{Condition, DeviceRef, PROBLEM_REASONS};
use crate::events::{Event, EventType, InvolvedObject, ReportingController};
use crate::model::{DeviceKey, Uid};

/// The reasons for a device that answers: for the first time, and after it did not.
const ANSWERS: &str = "AllTargetsReachable";
const ANSWERS_AGAIN: &str = "DeviceReachable";

/// The other reasons of a condition that is False.
const OTHER_REASONS: [&str; 3] = ["NoNodes", "LookFailed", "EvidenceContradicted"];

/// The Event for a change of a condition. Its reason is that of the condition, which is also in the status, in
/// metrics and in the docs.
fn change_event(before: &[Condition], after: &Condition) -> Option<(EventType, &'static str)> {
    let before = before.iter().find(|one| one.r#type == after.r#type);
    if before.is_some_and(|before| (&before.status, &before.reason) == (&after.status, &after.reason)) {
        return None;
    }
    match (&*after.r#type, &*after.status) {
        ("Ready", "True") if before.is_some() => Some((EventType::Normal, ANSWERS_AGAIN)),
        ("Ready", "True") => Some((EventType::Normal, ANSWERS)),
        // That no evidence was contradicted is no change worth an Event.
        (_, "True") => None,
        _ => {
            let mut reasons = PROBLEM_REASONS.into_iter().chain(OTHER_REASONS);
            reasons.find(|reason| *reason == after.reason).map(|reason| (EventType::Warning, reason))
        }
    }
}

impl StepContext<'_> {
    /// Records an Event for each of these conditions of a device that changed.
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
        let text = str::to_owned;
        Condition {
            r#type: text(kind),
            status: text(status),
            reason: text(reason),
            message: text("m"),
            ..Condition::default()
        }
    }

    #[test]
    fn an_event_has_the_reason_of_the_condition_that_changed() {
        let ready = condition("Ready", "True", "AllTargetsReachable");
        let trusted = condition("Trusted", "True", "NeverContradicted");
        let reason = |before: &[Condition], after: &Condition| change_event(before, after).map(|(_, reason)| reason);
        assert_eq!(reason(&[], &ready), Some("AllTargetsReachable"));
        assert_eq!(reason(&[], &trusted), None);
        for problem in PROBLEM_REASONS.into_iter().chain(["NoNodes", "LookFailed"]) {
            let failing = condition("Ready", "False", problem);
            let event = Some((EventType::Warning, problem));
            assert_eq!(change_event(std::slice::from_ref(&ready), &failing), event);
            assert_eq!(reason(std::slice::from_ref(&failing), &failing), None, "it was recorded before");
            assert_eq!(reason(&[failing], &ready), Some("DeviceReachable"));
        }
        assert_eq!(reason(std::slice::from_ref(&ready), &ready), None);
        let other = condition("Ready", "False", "Unreachable");
        assert_eq!(reason(&[condition("Ready", "False", "LoginDenied")], &other), Some("Unreachable"));
        let contradicted = condition("Trusted", "False", "EvidenceContradicted");
        assert_eq!(reason(&[ready, trusted], &contradicted), Some("EvidenceContradicted"));
    }
}
