//! The worlds that are searched: each gives the adversary other powers, and `docs/kernel-search.md` says which.

use crate::search::{Begin, Scope};
use crate::world::{AdversaryBudget, Released};

/// No powers.
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

/// Ten seconds a tick, and two renewals in the duration of a Lease.
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

/// A Node is deleted while its kubelet runs. The watches are behind.
pub const SIGNAL: Scope = Scope {
    horizon: 3,
    budget: AdversaryBudget { node_deletions: 1, pod_deletions: 1, outages: 1, lag: true, ..NONE },
    ..GONE
};

/// The kubelet's worker for the pod is busy when the Node is deleted.
pub const BUSY: Scope = Scope { begins: &[Begin::Busy], ..SIGNAL };

/// The same with a kubelet before Kubernetes 1.34, which does not report what it observed.
pub const OLD_KUBELET: Scope = Scope {
    reports_observed_generation: false,
    horizon: 4,
    budget: AdversaryBudget { node_deletions: 1, pod_deletions: 1, outages: 1, restarts: 1, ..NONE },
    ..GONE
};

/// The kubelet restarts, registers its Node anew, and loses it again.
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

/// A machine is cut off, or dies and boots again; its Node is deleted meanwhile.
pub const UNREACHABLE: Scope = Scope {
    horizon: 5,
    budget: AdversaryBudget { cuts: 1, node_deletions: 1, outages: 1, boots: 1, ..NONE },
    ..GONE
};

/// A pod that nobody runs any more, or never ran. Requests arrive late; our process restarts, or another leads.
pub const OWN_DELETION: Scope = Scope {
    horizon: 2,
    begins: &[Begin::Running, Begin::Bound, Begin::Unbound, Begin::CalledFailed],
    releases: &[Released::KubeletTerminated, Released::NeverScheduled],
    budget: AdversaryBudget { pod_deletions: 1, cuts: 1, restarts: 1, sent: 2, lag: true, ..NONE },
    ..GONE
};

/// Five seconds a tick, and Kubernetes' own durations.
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

/// The same with an instance, which may be terminated after it was proved to be stopped, or after it was started again.
pub const INSTANCE: Scope = Scope {
    of_provider: true,
    begins: &[Begin::Running],
    budget: AdversaryBudget { pod_deletions: 1, cuts: 1, outages: 2, boots: 1, evidence: 1, ..NONE },
    ..POWER
};

/// The same with a person's confirmation.
pub const CONFIRMED: Scope =
    Scope { by_person: true, releases: &[Released::Confirmed], begins: &[Begin::Running], ..POWER };

/// The same, and requests arrive after the machine has booted again.
pub const LATE: Scope = Scope {
    begins: &[Begin::Running, Begin::Bound],
    budget: AdversaryBudget { pod_deletions: 1, outages: 1, boots: 1, evidence: 1, sent: 2, ..NONE },
    ..POWER
};
