//! The cache as the kernel sees it, or as a planted bug distorts it.

use jiff::Timestamp;
use pod_safety_model::{Mono, Pod};
use pod_safety_proof::{AbsenceRead, LastHeartbeat, Liveness, Renewal};

use crate::process::View;
use crate::search::{Plant, Scope};
use crate::world::World;

pub(crate) fn view<'a>(world: &'a World, scope: &'a Scope) -> FaultyCache<'a> {
    FaultyCache(View::new(&world.process, scope), scope)
}

/// The cache, distorted by the planted bug if there is one.
pub(crate) struct FaultyCache<'a>(View<'a>, &'a Scope);

impl Liveness for FaultyCache<'_> {
    fn is_current(&self, now: Mono) -> bool {
        self.0.is_current(now)
    }
    fn first_read(&self, node: &str) -> Option<&AbsenceRead> {
        self.0.first_read(node)
    }
    fn last_heartbeat(&self, node: &str) -> Option<LastHeartbeat> {
        self.0.last_heartbeat(node)
    }
    fn lease(&self, node: &str) -> Option<Option<Timestamp>> {
        self.0.lease(node)
    }
    fn lease_is_gone(&self, node: &str) -> bool {
        self.0.lease_is_gone(node)
    }
    fn renewal(&self, node: &str) -> Option<Renewal> {
        self.0.renewal(node).filter(|_| !self.1.has_plant(Plant::NoLease))
    }
    fn unreachable_before_node_deleted(&self, node: &str) -> bool {
        self.1.has_plant(Plant::NoSignal) || self.0.unreachable_before_node_deleted(node)
    }
    fn reports_deletions(&self, node: &str) -> bool {
        self.0.reports_deletions(node)
    }
    fn may_have_just_started(&self, pod: &Pod, node: &str) -> bool {
        !self.1.has_plant(Plant::NeverJustStarted) && self.0.may_have_just_started(pod, node)
    }
}
