//! The table of scenarios: the faults, their times, and the permitted outcomes.

mod of_all;
mod of_parts;

use std::sync::LazyLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cluster::Mode;
use crate::fault::Fault;
use crate::objects::{ALONE, IDENTITIES};

/// The expected outcome of an incident, by the end of which there may have been a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// No identity is without its pod for longer than the interval between two samples.
    Undisturbed,
    /// Every identity is served again before any repair.
    Recovers,
    /// Identities are served again only after a person acts: repairs the fault, or confirms the state.
    Waits,
    /// Two copies ran, or wrote.
    Unsafe,
}

impl Outcome {
    pub(crate) const ALL: [Self; 4] = [Self::Undisturbed, Self::Recovers, Self::Waits, Self::Unsafe];

    pub(crate) fn as_str(self) -> &'static str {
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
    /// The origin of the question: a complaint of users, with its number, or a part of the cluster that fails.
    pub(crate) of: &'static str,
    /// The identity whose machine has the fault.
    pub(crate) identity: &'static str,
    /// The faults, with the seconds after the first one.
    pub(crate) faults: &'static [(u64, Fault)],
    /// The seconds after which a person repairs everything; later, where the promised outcome has not been reached.
    pub(crate) repaired_after: u64,
    /// The promised outcomes: plain, guard, replace. Several where each of them is right.
    pub(crate) outcomes: [&'static [Outcome]; 3],
    /// The modes in which the short set runs it.
    pub(crate) short: &'static [Mode],
}

/// Faults without a promised outcome yet.
struct Case {
    name: &'static str,
    of: &'static str,
    faults: &'static [(u64, Fault)],
}

const fn case(name: &'static str, of: &'static str) -> Case {
    Case { name, of, faults: &[] }
}

impl Case {
    const fn faults(self, faults: &'static [(u64, Fault)]) -> Self {
        Self { faults, ..self }
    }

    /// Sets the seconds until the repair, and the promised outcomes. Unless changed, the fault hits the machine of
    /// `SHARED`, and the short set does not run the scenario.
    const fn ends(self, repaired_after: u64, outcomes: [&'static [Outcome]; 3]) -> Scenario {
        let Self { name, of, faults } = self;
        assert!(!faults.is_empty(), "nothing happens");
        Scenario { name, of, identity: SHARED, faults, repaired_after, outcomes, short: &[] }
    }
}

impl Scenario {
    const fn alone(self) -> Self {
        Self { identity: ALONE, ..self }
    }

    const fn short(self, short: &'static [Mode]) -> Self {
        Self { short, ..self }
    }

    pub(crate) fn lasts(&self) -> Duration {
        Duration::from_secs(self.repaired_after)
    }
}

/// All scenarios, in the order in which they run.
pub(crate) static ALL: LazyLock<Vec<Scenario>> = LazyLock::new(|| [of_all::ALL, of_parts::ALL].concat());

use Outcome::{Recovers, Undisturbed, Unsafe, Waits};

const ANY_SAFE: &[Outcome] = &[Undisturbed, Recovers, Waits];
const QUIET: &[Outcome] = &[Undisturbed];
const BACK: &[Outcome] = &[Undisturbed, Recovers];
const STUCK: &[Outcome] = &[Waits];
const RECOVERS: &[Outcome] = &[Recovers];
const BROKEN: &[Outcome] = &[Unsafe];
/// The pod is force deleted, and its kubelet may or may not end it before its successor runs.
const A_RACE: &[Outcome] = &[Recovers, Unsafe];

const SHARED: &str = IDENTITIES[0];

const PARTITION: &str = "proposal: master and node";
const KUBELET: &str = "proposal: kubelet failures";
const CONTROLLER: &str = "proposal: controller failures";
const ETCD: &str = "proposal: master and etcd";
const NO_BMC: &str = "self-node-remediation: nodes without a BMC";
