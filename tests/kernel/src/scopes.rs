//! The worlds that are searched. Each gives the adversary other powers; `docs/kernel-search.md` lists them.

use crate::search::{Begin, Scope};
use crate::world::{AdversaryBudget, Released};

/// The adversary may do nothing.
const NONE: AdversaryBudget = AdversaryBudget {
    cuts: 0,
    node_deletions: 0,
    pod_deletions: 0,
    outages: 0,
    boots: 0,
    restarts: 0,
    kubelet_restarts: 0,
    evidence: 0,
    sent: 1,
    lag: false,
};

/// Ten seconds per tick, and two renewals per `leaseDurationSeconds`.
const GONE: Scope = Scope {
    tick: 10,
    lease_seconds: 10,
    renews_every: 1,
    quarantine: 1,
    grace: 1,
    horizon: 3,
    reports_observed_generation: true,
    budget: NONE,
    by_person: false,
    of_provider: false,
    begins: &[Begin::Running],
    releases: &[Released::NodeGone],
    broken: None,
    plant: None,
};

/// A Node is deleted while its kubelet runs. The watches lag.
pub const SIGNAL: Scope = Scope {
    horizon: 3,
    budget: AdversaryBudget { node_deletions: 1, pod_deletions: 1, outages: 1, lag: true, ..NONE },
    ..GONE
};

/// The kubelet's worker for the pod is busy when the Node is deleted.
pub const BUSY: Scope = Scope { begins: &[Begin::Busy], ..SIGNAL };

/// The same with a kubelet older than Kubernetes 1.34, which does not report `observedGeneration`.
pub const OLD_KUBELET: Scope = Scope {
    reports_observed_generation: false,
    horizon: 4,
    budget: AdversaryBudget { node_deletions: 1, pod_deletions: 1, outages: 1, restarts: 1, ..NONE },
    ..GONE
};

/// The kubelet restarts and registers its Node again; the Node is then deleted again.
pub const RESTARTS: Scope = Scope {
    horizon: 3,
    budget: AdversaryBudget {
        node_deletions: 2,
        pod_deletions: 1,
        kubelet_restarts: 1,
        outages: 1,
        restarts: 1,
        ..NONE
    },
    ..GONE
};

/// A machine is isolated, or dies and boots again; its Node is deleted meanwhile.
pub const UNREACHABLE: Scope =
    Scope { horizon: 5, budget: AdversaryBudget { cuts: 1, node_deletions: 1, outages: 1, boots: 1, ..NONE }, ..GONE };

/// A pod that no longer runs, or never ran. Requests arrive late; the process restarts, or another replica leads.
pub const OWN_DELETION: Scope = Scope {
    horizon: 2,
    begins: &[Begin::Running, Begin::Bound, Begin::Unbound, Begin::CalledFailed],
    releases: &[Released::KubeletTerminated, Released::NeverScheduled],
    budget: AdversaryBudget { pod_deletions: 1, cuts: 1, restarts: 1, sent: 2, lag: true, ..NONE },
    ..GONE
};

/// Five seconds per tick, and the default durations of Kubernetes.
pub const POWER: Scope = Scope {
    tick: 5,
    lease_seconds: 40,
    renews_every: 2,
    quarantine: 8,
    grace: 6,
    horizon: 6,
    budget: AdversaryBudget { pod_deletions: 1, cuts: 1, outages: 1, boots: 1, evidence: 1, ..NONE },
    begins: &[Begin::Running, Begin::Misnamed],
    releases: &[Released::PowerOff],
    ..GONE
};

/// The same with a cloud instance, which may be terminated after it was proved stopped, or after it was started again.
pub const INSTANCE: Scope = Scope {
    of_provider: true,
    begins: &[Begin::Running],
    budget: AdversaryBudget { pod_deletions: 1, cuts: 1, outages: 2, boots: 1, evidence: 1, ..NONE },
    ..POWER
};

/// The same with an operator's confirmation.
pub const CONFIRMED: Scope =
    Scope { by_person: true, releases: &[Released::Confirmed], begins: &[Begin::Running], ..POWER };

/// The same; requests arrive after the machine has booted again.
pub const LATE: Scope = Scope {
    begins: &[Begin::Running, Begin::Bound],
    budget: AdversaryBudget { pod_deletions: 1, outages: 1, boots: 1, evidence: 1, sent: 2, ..NONE },
    ..POWER
};
