//! # Explanations
//!
//! **Duty.** Say why a pod, a node, a StatefulSet, a namespace or a budget is as it is, who may do
//! something, and what a person can do about it. Pure: the same view as decisions
//! have, no client, no clock.
//!
//! **Inputs.** One [`View`](pod_safety_shared::cache::View) of the cluster; for budgets the scales of
//! controllers that it does not follow ([`required_scales`] names them: ask first); for the others
//! a [`ExplainContext`]: settings, Events, attachments, what the admission policies do.
//!
//! **Invariants.** There is no second opinion: `decide` of [`pod_safety_pod_gc`],
//! [`pod_safety_taint_eviction`], [`pod_safety_node_lifecycle`], [`pod_safety_fencing`] and
//! [`pod_safety_disruption`] is called with the settings of the program that runs, and its holds are
//! repeated in their own words. What an eviction is answered follows the API server
//! (`pkg/registry/core/pod/storage/eviction.go`, v1.37.2). What is not known is said to
//! be unknown.
//!
//! | file | subject |
//! |---|---|
//! | `answer` | the one shape of an answer |
//! | `scene` | what answers are made from |
//! | `pod`, `node`, `set`, `namespace`, `volume` | the answers |
//! | `fate` | what becomes of a pod, by the controllers that decide |
//! | `claimed` | a pod that is claimed to have ended, and why its force delete was refused |
//! | `overview`, `day` | the whole cluster, and its last 24 hours |
//! | `plan` | what fencing would do if a person asked for it |
//! | `requested` | evictions that are requested: who holds one up, until when, and who is next |
//! | `soon` | what fencing does about a lost node without a person, and when |
//! | `sure` | how a person makes sure that a machine is off |
//! | `before` | the pods that had a name before |
//! | `timeline` | what happened in the whole cluster, in order |
//! | `pauses` | what is not fenced because somebody asked for it |
//! | `proof`, `signals`, `history`, `actors` | which proof is there and which is missing; what shows that a node lives; how it got here; who may act |
//! | `explained`, `verdict`, `eviction`, `ways` | budgets |

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
    Actor, Answer, Finding, Item, Judgement, Moment, Next, Predecessors, Verdict, elapsed, format_duration,
    pluralize,
};
pub use budget::{explain_budget, owner_of, required_scales};
pub use context::{
    Attachment, EventRecord, ExplainContext, Policies, Running, Settings, object_ref, pod_ref, str_at,
};
pub use eviction::{EvictionAnswer, NotCounted, RefusalCause, Unguarded, predict_eviction};
pub use explanation::{
    Arithmetic, BudgetExplanation, BudgetVerdict, Member, PredictedAllowance, Remediation,
};
pub use last_day::LastDay;
pub use namespace::{Content, Contents, explain_namespace};
pub use node::{explain_node, node_state};
pub use overview::{Blocked, Overall, Overview, Trouble, Zone};
pub use pauses::Paused;
pub use plan::plan_fencing;
pub use pod::explain_pod;
pub use power_check::{ONLY_IF_SEEN, how_to_check_power};
pub use requested::{RequestedEviction, find_abandoned};
pub use set::explain_set;
pub use timeline::timeline;
pub use volume::{Volume, explain_volume};

#[cfg(test)]
mod tests;
