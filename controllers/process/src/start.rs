//! A controller whose type of key is not named, and its start.

use std::sync::Arc;

use pod_safety_shared::controller_loop::{
    Controller, ControllerContext, ControllerLoop, HoldReason as _, LoopHeartbeats,
};
use pod_safety_shared::lease::Leadership;
use tokio::sync::watch;

#[cfg(test)]
use pod_safety_shared::{
    cache::{Change, View},
    clock::Mono,
    controller_loop::Decision,
};

/// What all loops have.
pub(crate) struct Loops {
    pub context: ControllerContext,
    pub heartbeats: LoopHeartbeats,
    pub leadership: Arc<Leadership>,
    pub stop: watch::Receiver<bool>,
}

/// Any controller.
pub(crate) trait Start {
    /// Starts its loop.
    fn start(self: Box<Self>, loops: &Loops);

    /// The decisions about all keys, and about those that the changes enqueue.
    #[cfg(test)]
    fn decide_all(&self, view: &View<'_>, now: Mono, changes: &[Change<'_>]) -> Vec<Decision<String>>;
}

impl<C: Controller> Start for C {
    fn start(self: Box<Self>, loops: &Loops) {
        let Loops { context, heartbeats, leadership, stop } = loops;
        context.holds.register(C::NAME, &C::Hold::reason_names());
        let heartbeat = heartbeats.register(C::NAME, context.env.now());
        let controller_loop = ControllerLoop::new(*self, context.clone());
        let running = controller_loop.run(heartbeat, leadership.subscribe(), stop.clone());
        context.env.spawner.spawn(C::NAME, Box::pin(running));
    }

    #[cfg(test)]
    fn decide_all(&self, view: &View<'_>, now: Mono, changes: &[Change<'_>]) -> Vec<Decision<String>> {
        let mut keys = std::collections::BTreeSet::new();
        let mut enqueue = |key| {
            keys.insert(key);
        };
        self.list_keys(view, &mut enqueue);
        changes.iter().for_each(|change| self.keys_for(change, &mut enqueue));
        keys.iter().map(|key| self.decide(key, view, now).map(|hold| hold.to_string())).collect()
    }
}
