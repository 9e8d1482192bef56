//! The table: what goes wrong, when, and what must come of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cluster::Way;
use crate::fault::Fault::{self, *};
use crate::machine::Service::{Containerd, Kubelet};

/// What is to be expected of an incident, by the end of which there may have been a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// No identity goes without its pod for longer than a look.
    Undisturbed,
    /// Every identity is served again before anybody repairs anything.
    Recovers,
    /// Not before a person acts: repairs what broke, or says what is so.
    Waits,
    /// Two copies ran, or wrote.
    Unsafe,
}

impl Outcome {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Undisturbed => "undisturbed",
            Self::Recovers => "recovers",
            Self::Waits => "waits",
            Self::Unsafe => "UNSAFE",
        }
    }
}

/// A line of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Whose question it is: a line of the proposal's section on testing, or a complaint of users.
    pub(crate) of: &'static str,
    /// What happens, and how many seconds after the first.
    pub(crate) faults: &'static [(u64, Fault)],
    /// After how many seconds somebody comes and repairs everything.
    pub(crate) repaired_after: u64,
    /// What is promised: plain, guard, replace. Several where either is right.
    pub(crate) outcomes: [&'static [Outcome]; 3],
    /// In which ways the short set has it.
    pub(crate) short: &'static [Way],
}

impl Scenario {
    pub(crate) fn lasts(&self) -> Duration {
        Duration::from_secs(self.repaired_after)
    }
}

use Outcome::{Recovers, Undisturbed, Unsafe, Waits};

const ANY_SAFE: &[Outcome] = &[Undisturbed, Recovers, Waits];
const QUIET: &[Outcome] = &[Undisturbed];
const BACK: &[Outcome] = &[Undisturbed, Recovers];
const STUCK: &[Outcome] = &[Waits];
const RECOVERS: &[Outcome] = &[Recovers];
const BROKEN: &[Outcome] = &[Unsafe];

const PARTITION: &str = "proposal: master and node";
const KUBELET: &str = "proposal: kubelet failures";
const CONTROLLER: &str = "proposal: controller failures";

/// In the order in which they are run.
pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: "cable pulled",
        of: PARTITION,
        faults: &[(0, CablePulled)],
        repaired_after: 50,
        outcomes: [STUCK, RECOVERS, RECOVERS],
        short: &Way::ALL,
    },
    Scenario {
        name: "cable pulled, a script deletes by force",
        of: "kubernetes#55713",
        faults: &[(0, CablePulled), (1, ForcedByScript)],
        repaired_after: 50,
        outcomes: [BROKEN, RECOVERS, RECOVERS],
        short: &[Way::Plain, Way::Replace],
    },
    Scenario {
        name: "power lost",
        of: "kubernetes#74689",
        faults: &[(0, PowerLost)],
        repaired_after: 60,
        outcomes: [STUCK, RECOVERS, RECOVERS],
        short: &[Way::Guard],
    },
    Scenario {
        name: "power lost, no switch answers, a person confirms",
        of: "kubernetes#55713",
        faults: &[(0, SwitchSilent), (0, PowerLost), (1, Confirmed)],
        repaired_after: 60,
        outcomes: [STUCK, BACK, BACK],
        short: &[],
    },
    Scenario {
        name: "cable pulled, the power switch does not answer",
        of: "medik8s/self-node-remediation#258",
        faults: &[(0, SwitchSilent), (0, CablePulled)],
        repaired_after: 50,
        outcomes: [STUCK, STUCK, STUCK],
        short: &[Way::Replace],
    },
    Scenario {
        name: "cable pulled, the switch is another machine's",
        of: "rook#14832",
        faults: &[(0, SwitchOfAnother), (3, CablePulled)],
        repaired_after: 50,
        outcomes: [STUCK, STUCK, STUCK],
        short: &[],
    },
    Scenario {
        name: "cable pulled, the switch says off and has not switched",
        of: "medik8s/self-node-remediation#261",
        faults: &[(0, SwitchLies), (0, CablePulled)],
        repaired_after: 60,
        outcomes: [STUCK, BROKEN, BROKEN],
        short: &[],
    },
    Scenario {
        name: "frozen, thawed after its pod was removed by force",
        of: "k9s#2819",
        faults: &[(0, Frozen), (1, ForcedByScript), (30, Thawed)],
        repaired_after: 60,
        outcomes: [BROKEN, RECOVERS, RECOVERS],
        short: &[],
    },
    Scenario {
        name: "frozen and thawed",
        of: "medik8s/self-node-remediation#258",
        faults: &[(0, Frozen)],
        repaired_after: 60,
        outcomes: [STUCK, RECOVERS, RECOVERS],
        short: &[],
    },
    Scenario {
        name: "cable pulled, tainted out-of-service by hand",
        of: "medik8s/fence-agents-remediation#92",
        faults: &[(0, CablePulled), (1, TaintedByHand)],
        repaired_after: 60,
        outcomes: [BROKEN, RECOVERS, RECOVERS],
        short: &[],
    },
    Scenario {
        name: "cable pulled, the Node deleted by hand",
        of: "kubernetes#23375",
        faults: &[(0, CablePulled), (1, NodeDeleted)],
        repaired_after: 60,
        outcomes: [BROKEN, RECOVERS, RECOVERS],
        short: &[],
    },
    Scenario {
        name: "one way: it is not heard",
        of: PARTITION,
        faults: &[(0, NotHeard)],
        repaired_after: 60,
        outcomes: [STUCK, RECOVERS, RECOVERS],
        short: &[Way::Guard],
    },
    Scenario {
        name: "one way: it does not hear",
        of: PARTITION,
        faults: &[(0, Deaf)],
        repaired_after: 60,
        outcomes: [STUCK, RECOVERS, RECOVERS],
        short: &[],
    },
    Scenario {
        name: "half of its packets lost for 30 s",
        of: PARTITION,
        faults: &[(0, Lossy(50)), (30, NothingLost)],
        repaired_after: 60,
        outcomes: [ANY_SAFE, BACK, BACK],
        short: &[],
    },
    Scenario {
        name: "cable flaps: 5 s out, 5 s in, four times",
        of: "kubernetes#111385",
        faults: &[
            (0, CablePulled),
            (5, CablePlugged),
            (10, CablePulled),
            (15, CablePlugged),
            (20, CablePulled),
            (25, CablePlugged),
            (30, CablePulled),
            (35, CablePlugged),
        ],
        repaired_after: 60,
        outcomes: [BACK, BACK, BACK],
        short: &[],
    },
    Scenario {
        name: "its connections reset",
        of: PARTITION,
        faults: &[(0, Reset), (2, Reset), (4, Reset)],
        repaired_after: 20,
        outcomes: [QUIET, QUIET, QUIET],
        short: &[],
    },
    Scenario {
        name: "machines do not hear each other",
        of: "proposal: node and node",
        faults: &[(0, PeersLost)],
        repaired_after: 20,
        outcomes: [QUIET, QUIET, QUIET],
        short: &[],
    },
    Scenario {
        name: "two of three cables pulled",
        of: "gardener/machine-controller-manager#760",
        faults: &[(0, CablePulled), (0, AnotherCablePulled)],
        repaired_after: 45,
        outcomes: [STUCK, STUCK, STUCK],
        short: &[],
    },
    Scenario {
        name: "kubelet killed, its pods go on",
        of: KUBELET,
        faults: &[(0, Killed(Kubelet))],
        repaired_after: 60,
        outcomes: [STUCK, RECOVERS, RECOVERS],
        short: &[Way::Replace],
    },
    Scenario {
        name: "kubelet stopped for 30 s",
        of: KUBELET,
        faults: &[(0, Stopped(Kubelet)), (30, GoesOn(Kubelet))],
        repaired_after: 70,
        outcomes: [BACK, RECOVERS, RECOVERS],
        short: &[],
    },
    Scenario {
        name: "kubelet restarted",
        of: KUBELET,
        faults: &[(0, Killed(Kubelet)), (1, Started(Kubelet))],
        repaired_after: 20,
        outcomes: [BACK, BACK, BACK],
        short: &[],
    },
    Scenario {
        name: "containerd killed",
        of: KUBELET,
        faults: &[(0, Killed(Containerd))],
        repaired_after: 60,
        outcomes: [STUCK, ANY_SAFE, ANY_SAFE],
        short: &[],
    },
    Scenario {
        name: "rebooted",
        of: "medik8s/self-node-remediation#16",
        faults: &[(0, Rebooted)],
        repaired_after: 40,
        outcomes: [BACK, BACK, BACK],
        short: &[],
    },
    Scenario {
        name: "API server killed, back after 20 s",
        of: "proposal: master and etcd",
        faults: &[(0, ApiServerKilled), (20, ApiServerStarted)],
        repaired_after: 100,
        outcomes: [BACK, BACK, BACK],
        short: &[],
    },
    Scenario {
        name: "etcd stands still for 20 s",
        of: "proposal: master and etcd",
        faults: &[(0, EtcdPaused), (20, EtcdResumed)],
        repaired_after: 100,
        outcomes: [BACK, BACK, BACK],
        short: &[],
    },
    Scenario {
        name: "cable pulled, kube-controller-manager killed, back after 15 s",
        of: CONTROLLER,
        faults: &[(0, CablePulled), (1, KcmKilled), (16, KcmStarted)],
        repaired_after: 70,
        outcomes: [STUCK, RECOVERS, RECOVERS],
        short: &[],
    },
    Scenario {
        name: "cable pulled, our leader killed while it fences",
        of: CONTROLLER,
        faults: &[(0, CablePulled), (14, OursKilled), (16, OursStarted)],
        repaired_after: 80,
        outcomes: [STUCK, RECOVERS, RECOVERS],
        short: &[],
    },
    Scenario {
        name: "cable pulled, our leader stands still for 10 s and goes on",
        of: "proposal: concurrent controllers",
        faults: &[(0, CablePulled), (14, OursPaused), (24, OursResumed)],
        repaired_after: 80,
        outcomes: [STUCK, RECOVERS, RECOVERS],
        short: &[],
    },
    Scenario {
        name: "cable pulled, its pod deleted, plugged in after 30 s",
        of: "kubernetes#107543",
        faults: &[(0, CablePulled), (1, PodDeleted), (30, CablePlugged)],
        repaired_after: 110,
        outcomes: [RECOVERS, RECOVERS, RECOVERS],
        short: &[],
    },
];
