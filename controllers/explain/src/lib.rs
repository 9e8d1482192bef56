//! # Explanations
//!
//! **Duty.** Explain the state of a pod, a node, a StatefulSet, a namespace or a budget, which actors may act, and what
//! an operator can do about it. Pure: it reads the same view as decisions do, and has no client and no clock.
//!
//! **Inputs.** One [`View`](pod_safety_shared::cache::View) of the cluster. For budgets, also the scales of controllers
//! that the view does not have ([`required_scales`] names them: read them first). For everything else an
//! [`ExplainContext`]: settings, Events, VolumeAttachments, what the admission policies do.
//!
//! **Invariants.** No decision is implemented twice: `decide` of [`pod_safety_pod_gc`], [`pod_safety_taint_eviction`],
//! [`pod_safety_node_lifecycle`], [`pod_safety_fencing`] and [`pod_safety_disruption`] is called with the settings of
//! the program that runs, and its holds are repeated verbatim. The predicted answer to an eviction follows the API
//! server (`pkg/registry/core/pod/storage/eviction.go`, v1.37.2). What is not known is reported as unknown.
//!
//! | file | subject |
//! |---|---|
//! | `answer` | the type of every answer |
//! | `context` | the input of an answer |
//! | `pod`, `node`, `set`, `namespace`, `volume` | the answers |
//! | `disposition` | what happens to a pod, by the controllers that decide |
//! | `claimed` | a pod whose processes are claimed to have ended, and why its force delete was refused |
//! | `overview`, `last_day` | the whole cluster, and its last 24 hours |
//! | `plan` | what fencing would do if an operator requested it |
//! | `requested` | requested evictions: which responder is active, until when, and which is next |
//! | `fencing_step` | what fencing does about a lost node without an operator, and when |
//! | `power_check` | how an operator checks that a machine is off |
//! | `predecessors` | earlier pods of the same name |
//! | `timeline` | what happened in the whole cluster, in order |
//! | `pauses` | what is not fenced because an operator paused it |
//! | `installation` | how pod-safety was installed, for the commands in advice |
//! | `evidence`, `signals`, `history`, `actors` | which evidence exists and which is missing; signs that a node runs; what happened; which actors may act |
//! | `explanation`, `budget`, `eviction`, `remediation` | PodDisruptionBudgets |

mod actors;
mod answer;
mod budget;
mod claimed;
mod context;
mod disposition;
mod eviction;
mod evidence;
mod explanation;
mod fencing_step;
#[cfg(any(test, feature = "testing"))]
pub mod fixture;
mod history;
mod installation;
mod last_day;
mod namespace;
mod node;
mod overview;
mod pauses;
mod plan;
mod pod;
mod power_check;
mod predecessors;
mod remediation;
mod requested;
mod set;
mod signals;
mod timeline;
mod volume;

pub use answer::{
    Actor, Answer, Finding, Item, Judgement, Moment, Next, Predecessors, Verdict, elapsed, format_duration, pluralize,
};
pub use budget::{explain_budget, owner_of, required_scales};
pub use context::{Attachment, EventRecord, ExplainContext, Policies, Running, Settings, object_ref, pod_ref, str_at};
pub use eviction::{EvictionAnswer, NotCounted, RefusalCause, Unguarded, predict_eviction};
pub use explanation::{Arithmetic, BudgetExplanation, BudgetVerdict, Member, PredictedAllowance, Remediation};
pub use installation::Installation;
pub use last_day::LastDay;
pub use namespace::{Content, Contents, explain_namespace};
pub use node::{explain_node, node_state};
pub use overview::{Blocked, Overall, Overview, Trouble, Zone};
pub use pauses::Paused;
pub use plan::plan_fencing;
pub use pod::explain_pod;
pub use power_check::{ONLY_IF_SEEN, asks_a_person, how_to_check_power};
pub use requested::{RequestedEviction, find_abandoned};
pub use set::explain_set;
pub use timeline::timeline;
pub use volume::{Volume, explain_volume};

#[cfg(test)]
mod tests;
