//! Which holds have an Event, and what the metrics count.

use pod_safety_shared::authority::{RequestError, UpdateOutcome};
use pod_safety_shared::controller_loop::Controller as _;
use pod_safety_shared::events::EventType::Warning;
use pod_safety_shared::testing::{assert_events, metrics_text};

use super::*;

#[test]
fn holds_that_do_not_pass_by_themselves_have_an_event() {
    let text = || "w".to_owned();
    let held = Some((Warning, "EvictionHeld"));
    let rows = vec![
        (Hold::AnotherController, Some((Warning, "AnotherEvictionController"))),
        (Hold::PodUnreadable { why: text() }, held),
        (Hold::RequestsUnreadable, held),
        (Hold::EvictionsUnreadable, held),
        (Hold::UnknownState, held),
        (Hold::ResponderPrefilled { responder: text() }, Some((Warning, "EvictionResponderPrefilled"))),
        (Hold::NoFurtherResponder { tries: 3 }, Some((Warning, "EvictionBacksOff"))),
        (Hold::EvictionRefused { attempts: 3, message: text() }, None),
    ];
    assert_events(rows, &[]);
}

#[test]
fn ended_evictions_are_counted_by_reason_once_they_are_written() {
    let registry = prometheus::Registry::new();
    let controller = EvictionController::new(&registry).unwrap();
    let world = world(&[
        request_object(),
        (Kind::Evictions, active_eviction(&[(APP, 10_000, "Active"), (EVICTOR, 100, "Inactive")])),
    ]);
    for intent in decide_at(&world, 9).intents {
        let Intent::Update(update) = intent else { panic!("{intent:?}") };
        for outcome in [UpdateOutcome::Error(RequestError::Changed), UpdateOutcome::Written] {
            controller.update_completed(&update, &outcome, Mono::default());
        }
    }
    let page = metrics_text(&registry);
    for line in [
        r#"pod_safety_evictions_ended_total{reason="PodDeleted"} 1"#,
        r#"pod_safety_evictions_ended_total{reason="NoFurtherResponder"} 0"#,
        r#"pod_safety_eviction_writes_total{change="status",outcome="changed"} 1"#,
        r#"pod_safety_eviction_writes_total{change="evict",outcome="written"} 0"#,
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
}
