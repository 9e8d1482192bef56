//! The table: what goes wrong, when, and what must come of it.

mod of_all;
mod of_parts;

use std::sync::LazyLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cluster::Mode;
use crate::fault::Fault;
use crate::objects::{ALONE, IDENTITIES};

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
    /// Whose question it is: a complaint of users, with its number, or a part of the cluster that fails.
    pub(crate) of: &'static str,
    /// Whose machine has the fault.
    pub(crate) identity: &'static str,
    /// What happens, and how many seconds after the first.
    pub(crate) faults: &'static [(u64, Fault)],
    /// After how many seconds somebody comes and repairs everything; later, where what is promised is not yet so.
    pub(crate) repaired_after: u64,
    /// What is promised: plain, guard, replace. Several where either is right.
    pub(crate) outcomes: [&'static [Outcome]; 3],
    /// In which ways the short set has it.
    pub(crate) short: &'static [Mode],
}

/// What goes wrong, of which nothing is promised yet.
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

    /// After how many seconds it is repaired, and what is promised. Unless more is said, the fault is of the machine of
    /// `SHARED`, and the short set does not have it.
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

/// In the order in which they are run.
pub(crate) static ALL: LazyLock<Vec<Scenario>> = LazyLock::new(|| [of_all::ALL, of_parts::ALL].concat());

use Outcome::{Recovers, Undisturbed, Unsafe, Waits};

const ANY_SAFE: &[Outcome] = &[Undisturbed, Recovers, Waits];
const QUIET: &[Outcome] = &[Undisturbed];
const BACK: &[Outcome] = &[Undisturbed, Recovers];
const STUCK: &[Outcome] = &[Waits];
const RECOVERS: &[Outcome] = &[Recovers];
const BROKEN: &[Outcome] = &[Unsafe];
/// The pod is removed by force, and its kubelet may end it before its successor runs.
const A_RACE: &[Outcome] = &[Recovers, Unsafe];

const SHARED: &str = IDENTITIES[0];

const PARTITION: &str = "proposal: master and node";
const KUBELET: &str = "proposal: kubelet failures";
const CONTROLLER: &str = "proposal: controller failures";
const ETCD: &str = "proposal: master and etcd";
const NO_BMC: &str = "self-node-remediation: nodes without a BMC";
