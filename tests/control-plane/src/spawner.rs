//! Starts child processes that die with us, even if we are killed.
//!
//! Linux can send a process a signal when its parent dies, but it means the parent *thread*, and threads of a
//! test runtime come and go. One thread of ours, which lives as long as the process, therefore starts all
//! children. `setpriv` asks for the signal and becomes the program: no unsafe code, and the same process id.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::sync::{OnceLock, mpsc};

type Job = (Command, mpsc::Sender<io::Result<Child>>);

/// A command for `program` that is killed when we die, in a process group of its own so that the terminal's
/// Ctrl-C reaches only us and whatever it starts can be killed with it.
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
                // Nobody waits for the answer only if the asking thread is gone; then the child goes too.
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
