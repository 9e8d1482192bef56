//! The world round the API servers: machines, kubelets, processes, links, and the
//! people and programs that meddle.
//!
//! | file | subject |
//! |---|---|
//! | `host` | clocks, tasks and chance of one process or machine |
//! | `drift` | clocks that run too fast or too slow |
//! | `machines` | power, boots and ailments of machines |
//! | `links` | what becomes of requests on their way |
//! | `ask` | how peers talk to an API server |
//! | `kubelet` | a hollow kubelet: registration, heartbeats, pods, volumes, mirror pods |
//! | `kubelet/worker` | the worker of a pod, which is busy while the runtime starts its containers |
//! | `attach` | kube-controller-manager's attach/detach, six minutes included |
//! | `workloads` | StatefulSet controller, scheduler, garbage collector, as far as needed |
//! | `replica` | one process of what is under test |
//! | `seam` | what lies between its client and the wire |
//! | `planted` | what planted bugs make of requests, answers and watches |
//! | `planted_budgets` | what they make of the numbers of disruption budgets |
//! | `planted_evictions` | what they make of requests to evict pods |
//! | `planted_taints` | what they make of deletions for taints |
//! | `planted_nodes` | what they make of nodes that are lost |
//! | `planted_fencing` | what they make of fencing |
//! | `planted_volumes` | what they make of the owners of volumes |
//! | `strike` | one thing that happens exactly at one call or event of a process |
//! | `baseline` | what people use today |
//! | `kcm` | the baseline: kube-controller-manager's PodGC |
//! | `kcm_nodes` | kube-controller-manager's node lifecycle: the baseline's, and beside ours |
//! | `kcm_taints` | the baseline: kube-controller-manager's taint eviction |
//! | `taints` | who adds and lifts taints, and what pods tolerate |
//! | `switch` | power switches of people, which lie |
//! | `devices` | fence devices, and how processes under test reach them |
//! | `agent` | the agent of a node, and the watchdog behind it |
//! | `provider` | a cloud that switches its instances, and keeps to its documentation |
//! | `projects` | objects of other projects that fence nodes, their controllers, and tenants who write such |
//! | `fencing` | policies and devices of a world, and what goes wrong with them |
//! | `furnished` | objects and kinds that only commands ask for, where they are served |
//! | `guarded` | volumes with objects, claims and owners, and who asks for them |
//! | `kcm_volumes` | what kube-controller-manager does with claims and PersistentVolumes |
//! | `kcm_budgets` | the baseline: kube-controller-manager's disruption controller |
//! | `shops` | workloads with a disruption budget, and their readiness |
//! | `drain` | people who evict |
//! | `evictions` | who uses the Eviction API: clients, responders of applications, the garbage collector |
//! | `script` | the baseline: force delete when NotReady |
//! | `faults` | what a plan can do to all of them |
//! | `volumes` | whoever runs writes to its volume |
//! | `run` | one run of one plan |
//! | `stage` | a run shown live: paced, paused, meddled with |
//! | `snapshot` | what an audience sees |
//! | `settle` | its end: what is owed must come true |
//!
//! Ground truth (which processes run) is told to the checker and to nobody else.

mod agent;
mod attach;
mod baseline;
mod confirm;
mod devices;
mod drain;
mod drift;
mod editors;
mod evictions;
mod faults;
mod fencing;
mod guarded;
mod host;
mod initial_objects;
mod kcm;
mod kcm_budgets;
mod kcm_nodes;
mod kcm_taints;
mod kcm_volumes;
mod kubelet;
mod links;
mod live_run;
mod machines;
mod planted;
mod planted_budgets;
mod planted_evictions;
mod planted_fencing;
mod planted_nodes;
mod planted_taints;
mod planted_volumes;
mod projects;
mod provider;
mod replica;
mod request;
mod run;
mod script;
mod seam;
mod settle;
mod shops;
mod snapshot;
mod strike;
mod switch;
mod taints;
mod volumes;
mod workloads;

use serde_json::Value;

use crate::chance::Chance;

pub use baseline::Baseline;
pub(crate) use evictions::LIFECYCLE;
pub(crate) use fencing::HOSTNAME;
pub(crate) use guarded::claims_of;
pub(crate) use host::{moment, stamp};
pub(crate) use kcm_nodes::ready;
pub use live_run::{Intervention, LiveRun, Pace, TaskSender, WorldTask};
pub use replica::{Launch, Launched, Settings, Shown};
pub use run::{Outcome, Subject, World, recorded, run, run_with_strike};
pub(crate) use shops::{is_called_ready, start_up};
pub use snapshot::{BudgetView, HoldView, Machine, NodeView, PodView, ProcessView, ReplicaView, Snapshot, Stuck};
pub use strike::{Blow, Moment, Occasion, Strike};
pub use taints::TROUBLES;

/// The zones, by the number of a node.
const ZONES: [&str; 3] = ["a", "b", "c"];

/// Where the node of this number stands.
pub(crate) fn zone(node: usize) -> &'static str {
    ZONES.get(node % ZONES.len()).copied().unwrap_or_default()
}

/// The names under which processes under test call.
const REPLICA: &str = "replica-";

/// Whether this caller is what the checker judges.
pub(crate) fn is_under_test(caller: &str) -> bool {
    is_shipped(caller) || matches!(caller, kcm::CALLER | script::CALLER)
}

/// How callers are named that evict with the code that is shipped.
pub(crate) const DRAIN: &str = "pod-safety-drain.";

/// Whether this caller is a process of ours.
pub(crate) fn is_shipped(caller: &str) -> bool {
    caller.starts_with(REPLICA)
}

/// The boot ID of a machine: a UUID, as Linux draws one at each boot.
pub(crate) fn boot_id(node: &str, boot: u32) -> String {
    let chance = Chance::new(u64::from(boot));
    let [high, low] = ["high", "low"].map(|half| chance.draw(node, half, 0));
    format!(
        "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xFFFF,
        high & 0xFFF,
        low >> 52,
        low & 0xFFFF_FFFF_FFFF
    )
}

/// A part of an object. As `Value::pointer`, which makes two strings of every step to undo escapes that there are not
/// in these: a tenth of a campaign's time.
pub(crate) fn value_at<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    pointer.split('/').skip(1).try_fold(object, |within, step| match within {
        Value::Object(fields) => fields.get(step),
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => None,
    })
}

/// A string of an object; empty if it is not there.
pub(crate) fn str_at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    value_at(object, pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A number of an object.
pub(crate) fn number_at(object: &Value, pointer: &str) -> Option<i64> {
    value_at(object, pointer).and_then(Value::as_i64)
}
