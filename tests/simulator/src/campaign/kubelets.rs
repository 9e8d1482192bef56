//! The part of a drawn plan that is about a kubelet that reports less than others do, and about tenants who change their pods.

use serde::{Deserialize, Serialize};

use super::plan::{Fault, Plan};
use crate::chance::{Chance, Draws};

/// One node whose kubelet is unlike the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OddKubelet {
    /// Which node.
    pub node: usize,
    /// In what it differs.
    pub lacks: Lack,
}

/// What a kubelet does not report as others do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Lack {
    /// It counts the boots of its machine, as on Windows: machines of one image have equal numbers.
    BootUuid,
    /// It reports no boot ID.
    BootId,
    /// It renews no Lease, and reports the status of its node every ten seconds, as some virtual kubelets do.
    Lease,
}

/// What whoever may edit the pods of a namespace does to one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Edit {
    /// Changes the image of a container: its kubelet restarts it.
    Image,
    /// Adds a finalizer, and removes it after so many seconds.
    Finalizer(u64),
    /// Deletes it with a grace period of one second.
    ShortGrace,
}

/// So many of a hundred seeds have an odd kubelet.
const ODD: u64 = 15;
/// So many of a hundred seeds have a tenant who edits pods.
const EDITED: u64 = 20;
/// When the first pod may be changed: the pods run.
const BEGIN: u64 = 28;
/// So long before the healing nothing begins any more.
const SPARE: u64 = 5;
/// A finalizer stays no longer.
const KEPT: u64 = 90;

/// Adds both to the plan of some seeds. Drawn from a chance of their own: the rest of the plan is what it was.
pub(super) fn add(plan: &mut Plan) {
    let mut draws = Draws::new(Chance::new(plan.seed).part("odd kubelet", 0));
    if draws.percent(ODD) {
        let node = usize::try_from(draws.below(plan.nodes as u64)).unwrap_or(0);
        let lacks = [Lack::BootUuid, Lack::BootId, Lack::Lease];
        plan.with.odd_kubelet = draws.choose(&lacks).map(|lacks| OddKubelet { node, lacks: *lacks });
    }
    let mut draws = Draws::new(Chance::new(plan.seed).part("edits", 0));
    if draws.percent(EDITED) {
        for _ in 0..1 + draws.below(4) {
            let at = BEGIN + draws.below(plan.heal_at - BEGIN - SPARE);
            let pod = usize::try_from(draws.below(plan.pods as u64)).unwrap_or(0);
            let how = match draws.below(4) {
                0 | 1 => Edit::Image,
                2 => Edit::Finalizer((1 + draws.below(KEPT)).min(plan.heal_at - at)),
                _ => Edit::ShortGrace,
            };
            plan.faults.push((at, Fault::EditPod { pod, how }));
        }
        plan.faults.sort_by_key(|(at, _)| *at);
    }
}
