//! The memory of the process contains the token of its ServiceAccount, or passwords of fence devices. It is excluded
//! from core dumps, and other processes of the same user cannot read it: fence agents may run as that user.

use std::io;

use rustix::process::{Resource, Rlimit, setrlimit};

/// Keeps the memory of this process private. Programs that it starts inherit the limit of core dumps.
///
/// # Errors
/// The kernel refused it.
pub(crate) fn keep_private() -> io::Result<()> {
    // If the core pattern pipes to a program, the limit is ignored, so both are needed.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::process::{DumpableBehavior, dumpable_behavior, getrlimit};

    use super::*;

    /// A core dump on the node contained the token and passwords, and agents could read `/proc/1/mem`.
    #[test]
    fn attack_the_memory_of_the_process_is_in_no_core_dump_and_not_readable_by_agents() {
        keep_private().unwrap();
        assert_eq!(getrlimit(Resource::Core).current, Some(0));
        assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
    }
}
