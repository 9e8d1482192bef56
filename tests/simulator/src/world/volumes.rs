//! The volumes of the StatefulSet's pods, at the storage: every process that runs writes.

use std::sync::Arc;
use std::time::Duration;

use super::host::Host;
use super::run::World;

/// How often a process writes.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// Lets every process with a volume write to it.
pub(crate) fn start(world: &Arc<World>, host: &Arc<Host>) {
    let (world, env) = (Arc::clone(world), host.env());
    host.start_task("volumes", async move {
        loop {
            env.sleep(WRITE_INTERVAL).await;
            world.checker.volumes_are_written(|node| world.is_frozen(node));
            world.checker.copies_are_counted(|node| world.is_frozen(node), |node| world.is_cut(node));
        }
    });
}
