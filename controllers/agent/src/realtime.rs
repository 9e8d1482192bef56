//! Best effort: a high priority, and memory that is never swapped. What is refused is logged, and prevents nothing:
//! the bound holds without them, only a late pet resets the machine.

use rustix::mm::{MlockAllFlags, mlockall};
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadPriorityValue, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// Above every process without a real-time priority, and below the threads of the kernel's interrupts (50).
const PRIORITY: u8 = 10;

/// Requests both, and returns what was refused.
#[must_use]
pub fn request_realtime() -> Vec<String> {
    let mut refused = Vec::new();
    let fifo = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    let set = ThreadPriorityValue::try_from(PRIORITY).map_err(|error| error.to_string()).and_then(|priority| {
        let priority = ThreadPriority::Crossplatform(priority);
        set_thread_priority_and_policy(thread_native_id(), priority, fifo).map_err(|error| error.to_string())
    });
    if let Err(error) = set {
        refused.push(format!(
            "no real-time priority: {error}: this container needs CAP_SYS_NICE, and its cgroup real-time time"
        ));
    }
    if let Err(error) = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE) {
        refused.push(format!("memory is not locked: {error}: this container needs CAP_IPC_LOCK"));
    }
    refused
}
