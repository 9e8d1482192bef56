//! What happened in the whole cluster, in order.

use jiff::Timestamp;

use super::answer::Moment;
use super::before;
use super::history::{HELD, REQUESTED, ending, held_by_node, said, stamps};
use super::pauses::Paused;
use super::scene::{Scene, object, pod_object};

/// What happened to the whole cluster since then: to nodes, to pods that were asked to end, and all warnings.
#[must_use]
pub fn timeline(since: Timestamp, scene: &Scene<'_>) -> Vec<Moment> {
    let mut moments = Vec::new();
    for node in scene.view.nodes() {
        let object = object("node", "", &node.name);
        moments.extend(stamps(node, scene).into_iter().map(|moment| moment.to(&object)));
    }
    for pod in scene.view.all_pods() {
        let object = pod_object(pod);
        moments.extend(ending(pod, scene).into_iter().map(|moment| moment.to(&object)));
        let before = before::of_pod(pod, scene);
        let requested =
            before.iter().flat_map(|one| &one.history).filter(|one| one.what == REQUESTED).cloned();
        let back = before::back(pod, before.as_ref(), scene);
        moments.extend(requested.chain(back).map(|moment| moment.to(&object)));
    }
    moments.extend(held_by_node(scene));
    for pause in Paused::all(scene) {
        moments.extend(pause.moment().map(|moment| moment.to(&pause.object)));
    }
    let mut objects: Vec<&str> = scene.said.iter().map(|one| one.object.as_str()).collect();
    objects.sort_unstable();
    objects.dedup();
    for object in objects {
        let said = said(object, scene).into_iter().filter(|one| !one.what.starts_with(HELD));
        moments.extend(said.map(|moment| moment.to(object)));
    }
    moments.retain(|moment| moment.at >= since && moment.at <= scene.wall);
    // What happened in one second stays in the order in which it was told.
    moments.sort_by_key(|moment| moment.at);
    moments
}
