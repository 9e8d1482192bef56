//! What happened in the whole cluster, in order.

use jiff::Timestamp;

use super::answer::Moment;
use super::context::{ExplainContext, object_ref, pod_ref};
use super::history::{HELD, REQUESTED, deletion_moments, event_moments, holds_by_node, node_moments};
use super::pauses::Paused;
use super::predecessors;

/// What happened to the whole cluster since then: to nodes, to pods whose deletion was requested, and all warnings.
#[must_use]
pub fn timeline(since: Timestamp, ctx: &ExplainContext<'_>) -> Vec<Moment> {
    let mut moments = Vec::new();
    for node in ctx.view.nodes() {
        let object = object_ref("node", "", &node.name);
        moments.extend(node_moments(node, ctx).into_iter().map(|moment| moment.about_object(&object)));
    }
    for pod in ctx.view.all_pods() {
        let object = pod_ref(pod);
        moments.extend(deletion_moments(pod, ctx).into_iter().map(|moment| moment.about_object(&object)));
        let before = predecessors::find_predecessors(pod, ctx);
        let requested = before.iter().flat_map(|one| &one.history).filter(|one| one.what == REQUESTED).cloned();
        let back = predecessors::recovery_moments(pod, before.as_ref(), ctx);
        moments.extend(requested.chain(back).map(|moment| moment.about_object(&object)));
    }
    moments.extend(holds_by_node(ctx));
    for pause in Paused::list(ctx) {
        moments.extend(pause.to_moment().map(|moment| moment.about_object(&pause.object)));
    }
    let mut objects: Vec<&str> = ctx.events.iter().map(|one| one.object.as_str()).collect();
    objects.sort_unstable();
    objects.dedup();
    for object in objects {
        let moments_of_object = event_moments(object, ctx).into_iter().filter(|one| !one.what.starts_with(HELD));
        moments.extend(moments_of_object.map(|moment| moment.about_object(object)));
    }
    moments.retain(|moment| moment.at >= since && moment.at <= ctx.wall);
    // Entries of the same second stay in the order in which they were recorded.
    moments.sort_by_key(|moment| moment.at);
    moments
}
