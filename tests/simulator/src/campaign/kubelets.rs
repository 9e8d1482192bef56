//! The part of a drawn plan that concerns a kubelet that reports less than others do, and tenants who change their
//! pods.

use serde::{Deserialize, Serialize};

use super::plan::{BEGIN, Fault, Plan, SPARE};
use crate::chance::{Chance, Draws};

/// One node whose kubelet differs from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OddKubelet {
    /// Which node.
    pub node: usize,
    /// In what it differs.
    pub lacks: Lack,
}

/// A report that this kubelet does not make as others do.
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

/// A change of a pod by someone who may edit the pods of its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Edit {
    /// Changes the image of a container: its kubelet restarts it.
    Image,
    /// Adds a finalizer, and removes it after so many seconds.
    Finalizer(u64),
    /// Deletes it with a grace period of one second.
    ShortGrace,
    /// Reports in turns that it is not ready and that it is, to the end of the run.
    Report,
}

/// The share of seeds with such a kubelet, in percent.
const ODD: u64 = 15;
/// The share of seeds with a tenant who edits pods, in percent.
const EDITED: u64 = 20;
/// The longest time that a finalizer stays.
const KEPT: u64 = 90;

/// Adds both to the plan of some seeds. Uses random numbers of its own: the rest of the plan stays as it was.
pub(super) fn add(plan: &mut Plan) {
    let mut draws = Draws::new(Chance::new(plan.seed).part("odd kubelet", 0));
    if draws.percent(ODD) {
        let node = draws.index(plan.nodes);
        let lacks = [Lack::BootUuid, Lack::BootId, Lack::Lease];
        plan.with.odd_kubelet = draws.choose(&lacks).map(|lacks| OddKubelet { node, lacks: *lacks });
    }
    let mut draws = Draws::new(Chance::new(plan.seed).part("edits", 0));
    if draws.percent(EDITED) {
        for _ in 0..1 + draws.below(4) {
            let at = BEGIN + draws.below(plan.heal_at - BEGIN - SPARE);
            let pod = draws.index(plan.pods);
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
