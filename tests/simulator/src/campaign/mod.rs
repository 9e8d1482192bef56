//! Campaigns: plans drawn from seeds, run, judged and counted.
//!
//! | file | subject |
//! |---|---|
//! | `plan` | what happens in a run, as data |
//! | `told` | a fault in words |
//! | `draw` | a plan from a seed |
//! | `budgets` | the part of a drawn plan that is about disruption budgets |
//! | `taints` | the part that is about taints |
//! | `nodes` | the part that is about nodes that are lost |
//! | `sick` | the part that is about nodes that are not ready, and are heard |
//! | `wires` | the part that is about single watches, and answers that break off |
//! | `fencing` | the part that is about fencing, and devices that lie |
//! | `provider` | the part that is about a cloud that switches its instances |
//! | `agents` | the part that is about agents with watchdogs |
//! | `objects` | the part that is about objects of other projects by which nodes are fenced |
//! | `volumes` | the part that is about exclusive volumes |
//! | `evictions` | the part that is about requests to evict pods |
//! | `workers` | the part that is about kubelets whose pod workers are busy |
//! | `kubelets` | the part that is about a kubelet that reports less, and tenants who change their pods |
//! | `tenants` | the part that is about tenants who report in place of kubelets, and whose pods do not end |
//! | `pauses` | the part that is about people who pause fencing meanwhile |
//! | `many` | many seeds on all cores, and what they came to |
//! | `twins` | plans whose worlds look the same |
//! | `plant` | bugs that can be planted into what is under test |
//! | `minimise` | the smallest plan that still breaks the same rule |
//! | `corpus` | plans that are run for ever, and runs on a page |
//! | `scenarios`, `perturb` | one strike at every call and every event of every scenario |
//!
//! A plan is drawn before its run, and everything in the run draws by keys: taking
//! one fault out of a plan changes nothing else.

mod agents;
mod budgets;
mod confirmations;
mod corpus;
mod describe;
mod draw;
mod evictions;
mod fencing;
mod kubelets;
mod many;
mod minimise;
mod nodes;
mod objects;
mod pauses;
mod perturb;
mod plan;
mod plant;
mod provider;
mod scenarios;
mod sick;
mod taints;
mod tenants;
mod twins;
mod volumes;
mod wires;
mod workers;

pub use corpus::{Entry, page, subject};
pub use draw::draw;
pub use evictions::{Behavior, Evictions, Withdrawal};
pub use fencing::{Agents, Fencing, Malfunction};
pub use kubelets::{Edit, Lack, OddKubelet};
pub use many::{Tally, campaign, campaign_while, first_seed_that_breaks, report, same_twice, threads};
pub use minimise::{Smallest, minimise};
pub use objects::{Objects, Project};
pub use perturb::{Broken, Perturbed, perturb, perturb_writes};
pub use plan::{Ailment, Extras, Fault, Keeper, Limit, Manner, Plan, Restart, Trouble};
pub use plant::Plant;
pub use scenarios::{Scenario, fenced, guarded, scenarios};
pub use twins::twin_plans;
pub use volumes::Guarding;
