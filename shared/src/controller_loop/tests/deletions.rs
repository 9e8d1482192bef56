//! Graceful deletions: recorded only, if the controller does not write; decided again before they are executed, if it does.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::authority::{DeleteCause, GracefulDeleteRequest};

fn deletion() -> Decision<Hold> {
    let force = pod("a").force(Claim::NeverScheduled);
    let cause = DeleteCause::Taint { node: "n".into(), taint: "k:NoExecute".into() };
    let delete = GracefulDeleteRequest {
        pod: force.pod,
        rv: force.rv,
        generation: 1,
        disrupted_since: None,
        cause,
        due: Mono::default(),
    };
    Decision { intents: vec![Intent::Delete(delete)], ..Decision::default() }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_the_mode_forbids_is_recorded_once() {
    let fixture = start(World::listed(), Mode::Observe, Leadership::none(), |_, _| deletion());
    for version in [10, 11, 12] {
        fixture.apply(&pod("a").rv(version).phase(if version == 11 { "Running" } else { "Pending" }));
        advance(2.0).await;
    }
    assert_eq!(fixture.written(), [(Action::WouldDelete, "ObserveMode")]);
    assert!(fixture.api.requests().is_empty());
}

/// The queue may be long: the loss of a zone fills it, and the zone may be back before it is empty.
#[tokio::test(start_paused = true)]
async fn a_queued_deletion_is_decided_again_before_it_is_sent() {
    let decided = AtomicUsize::new(0);
    let fixture = guarding(move |_, _| match decided.fetch_add(1, Ordering::SeqCst) {
        0 => deletion(),
        _ => Decision::default(),
    });
    fixture.apply(&pod("a"));
    advance(2.0).await;
    assert!(fixture.api.requests().is_empty(), "{:?}", fixture.api.requests());
    assert_eq!(fixture.metrics.authority.outcomes.with_label_values(&["withdrawn"]).get(), 1);
    assert_eq!(fixture.written(), [(Action::Dropped, "Withdrawn")]);
}
