//! # Explanations
//!
//! **Duty.** Say why a pod, a node, a StatefulSet, a namespace or a budget is as it is, who may do
//! something, and what a person can do about it. Pure: the same view as decisions
//! have, no client, no clock.
//!
//! **Inputs.** One [`View`](pod_safety_shared::cache::View) of the cluster; for budgets the scales of
//! controllers that it does not follow ([`asks`] names them: ask first); for the others
//! a [`Scene`]: settings, Events, attachments, what the admission policies do.
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
mod before;
mod claimed;
mod day;
mod eviction;
mod explained;
mod fate;
mod history;
mod namespace;
mod node;
mod overview;
mod pauses;
mod plan;
mod pod;
mod proof;
mod requested;
mod scene;
mod set;
mod signals;
mod soon;
#[cfg(any(test, feature = "testing"))]
pub mod staged;
mod sure;
mod timeline;
mod verdict;
mod volume;
mod ways;

pub use answer::{
    Actor, Answer, Before, Finding, Item, Judgement, Moment, Next, Standing, plural, since, span,
};
pub use day::LastDay;
pub use eviction::{NotCounted, RefusedBy, Unguarded, Would, would};
pub use explained::{Arithmetic, Explained, Member, Promise, Verdict, Way};
pub use namespace::{Content, Contents, explain_namespace};
pub use node::{explain_node, state};
pub use overview::{Blocked, Overall, Overview, Trouble, Zone};
pub use pauses::Paused;
pub use plan::plan_of;
pub use pod::explain_pod;
pub use requested::{Requested, left_behind};
pub use scene::{Attachment, Policies, Running, Said, Scene, Settings, object, pod_object, text};
pub use set::explain_set;
pub use sure::{ONLY_IF_SEEN, how};
pub use timeline::timeline;
pub use verdict::{asks, explain, owner_of};
pub use volume::{Volume, explain_volume};

#[cfg(test)]
mod tests;
