//! Starts child processes that die with the test process, even if it is killed.
//!
//! Linux can send a process a signal when its parent *thread* dies, and threads of a test runtime come and go. Therefore one thread, which
//! lives as long as the process, starts all children. `setpriv` requests the signal and then executes the program: no unsafe code, and the
//! PID stays the same.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::sync::{OnceLock, mpsc};

type Job = (Command, mpsc::Sender<io::Result<Child>>);

/// A command for `program` that is killed when the test process dies, in its own process group: Ctrl-C in the terminal reaches only the
/// test process, and everything that the program starts can be killed with it.
pub(crate) fn command(program: &std::path::Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program).process_group(0);
    command
}

/// Starts a command made by [`command`].
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    static THREAD: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let thread = THREAD.get_or_init(|| {
        let (jobs, inbox) = mpsc::channel::<Job>();
        std::thread::spawn(move || {
            for (mut command, answer) in inbox {
                // If the requesting thread is gone, the child is killed.
                if let Err(mpsc::SendError(Ok(mut orphan))) = answer.send(command.spawn()) {
                    let _ = orphan.kill();
                    let _ = orphan.wait();
                }
            }
        });
        jobs
    });
    let (answer, started) = mpsc::channel();
    let gone = || io::Error::other("the thread that starts programs has ended");
    thread.send((command, answer)).map_err(|_| gone())?;
    started.recv().map_err(|_| gone())?
}
