//! The cache as the kernel sees it, or as a planted bug shows it.

use jiff::Timestamp;
use pod_safety_model::Mono;
use pod_safety_proof::{Liveness, Renewal, SignOfLife, Witness};

use crate::ours::View;
use crate::search::{Plant, Scope};
use crate::world::World;

pub(crate) fn view<'a>(world: &'a World, scope: &'a Scope) -> Planted<'a> {
    Planted(View::new(&world.ours, scope), scope)
}

/// The cache, or one that lies as the planted bug does.
pub(crate) struct Planted<'a>(View<'a>, &'a Scope);

impl Liveness for Planted<'_> {
    fn is_current(&self, now: Mono) -> bool {
        self.0.is_current(now)
    }
    fn first_read(&self, node: &str) -> Option<&Witness> {
        self.0.first_read(node)
    }
    fn last_sign_of_life(&self, node: &str) -> Option<SignOfLife> {
        self.0.last_sign_of_life(node)
    }
    fn lease(&self, node: &str) -> Option<Option<Timestamp>> {
        self.0.lease(node)
    }
    fn lease_is_gone(&self, node: &str) -> bool {
        self.0.lease_is_gone(node)
    }
    fn renewal(&self, node: &str) -> Option<Renewal> {
        self.0.renewal(node).filter(|_| !self.1.has(Plant::NoLease))
    }
    fn fell_silent_before_its_node_went(&self, node: &str) -> bool {
        self.1.has(Plant::NoSignal) || self.0.fell_silent_before_its_node_went(node)
    }
    fn reports_deletions(&self, node: &str) -> bool {
        self.0.reports_deletions(node)
    }
}
