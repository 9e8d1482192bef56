//! One run of an agent.
//!
//! Duty: start it with nothing but its stdin, keep a little of what it says, and see that nothing of it is left when
//! its deadline is over, when it has ended, or when nobody waits for it any more.
//!
//! Invariants: no arguments; an environment of three variables; a process group of its own. The deadline is kept by
//! two: by us, and by `timeout` of coreutils (if there is one), which also lives on when this program is killed: an
//! intent that a successor reads is over at its `notAfter`.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pod_safety_clock::{Env, Mono};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionread;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::unix::pipe;
use zeroize::Zeroizing;

use super::leftovers::{LeftoverProcesses, MARK, has_ended};
use super::run_result::{CapturedOutput, RunError, RunResult};

/// Where agents find what they call by name.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// The second keeper of the deadline.
const TIMEOUT_PROGRAMS: [&str; 2] = ["/usr/bin/timeout", "/bin/timeout"];

/// Kept of each of stdout and stderr. The longest metadata of fence-agents 4.12.1 has 11 KiB, the longest help 20.
const MAX_CAPTURE_BYTES: usize = 256 << 10;

/// Between two looks for what is left: a killed process needs some time to be gone.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// So often it is looked: for a second. What is alive then waits for hardware, or belongs to another user.
const MAX_POLLS: u32 = 200;

/// Between two looks whether an agent has read its input.
const INPUT_POLL_INTERVAL: Duration = Duration::from_millis(20);

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// How long a dropped future may hold its thread until the agent is gone. It takes far less than a millisecond.
const DROP_WAITS: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Runs `path` until it ends, at most until `deadline`, and gives it `input`.
pub(super) async fn run(
    env: &Env,
    owner: &str,
    path: &Path,
    input: &[u8],
    deadline: Mono,
) -> Result<RunResult, RunError> {
    let remaining = deadline.since(env.now());
    if remaining.is_zero() {
        return Err(RunError::TimedOut);
    }
    let (mut group, pipes) = ProcessGroup::start(owner, path, remaining)?;
    let result = env.timeout_at(deadline, group.communicate(env, pipes, input)).await;
    match result {
        Some(ended) => ended,
        None => {
            // Not left to the drop: who gets this answer relies on nothing being left. Its end may have come and only
            // the end of its words not, where something out of our reach holds its pipes.
            if !group.reaped {
                group.kill_and_wait(env).await?;
            }
            Err(RunError::TimedOut)
        }
    }
}

/// A started agent. Dropping it kills everything that it started.
struct ProcessGroup {
    child: Child,
    /// Readable when it has ended; it is not reaped by that, so its number stays its own.
    handle: AsyncFd<OwnedFd>,
    leftovers: LeftoverProcesses,
    reaped: bool,
}

struct Pipes {
    stdin: pipe::Sender,
    stdout: pipe::Receiver,
    stderr: pipe::Receiver,
}

impl ProcessGroup {
    fn start(owner: &str, path: &Path, remaining: Duration) -> Result<(Self, Pipes), RunError> {
        let mark = new_mark(owner);
        let mut child = command(path, remaining, &mark).spawn().map_err(RunError::NotStarted)?;
        let pid = Pid::from_child(&child);
        let mut remains = LeftoverProcesses::new(pid, &mark);
        match watch(&mut child, pid) {
            Ok((handle, pipes)) => Ok((Self { child, handle, leftovers: remains, reaped: false }, pipes)),
            Err(error) => {
                remains.kill();
                // Just killed, so this takes no time.
                let _ = child.wait();
                Err(RunError::NotWatched(error))
            }
        }
    }

    /// Feeds it, listens to it, and waits for its end, all at once: each of the pipes can fill up.
    async fn communicate(&mut self, env: &Env, pipes: Pipes, input: &[u8]) -> Result<RunResult, RunError> {
        let Pipes { mut stdin, stdout, stderr } = pipes;
        let began = env.now();
        let feed = async move {
            // An agent that does not read to the end says why itself. Dropping the pipe is the end of file.
            let _ = stdin.write_all(input).await;
            last_unread(env, &stdin, input.len(), began).await
        };
        let end = async {
            drop(self.handle.readable().await.map_err(RunError::NotWatched)?);
            // At once: what it left behind holds the pipes open.
            self.kill_and_wait(env).await
        };
        let (unread_until, stdout, stderr, end) = tokio::join!(feed, capture(stdout), capture(stderr), end);
        let (status, killed) = end?;
        Ok(RunResult {
            code: status.code(),
            signal: status.signal(),
            stdout,
            stderr,
            killed_leftovers: killed,
            input_unread_until: unread_until,
        })
    }

    /// Kills what runs of it and waits until nothing is left. Says how it ended, and how much it had left behind.
    async fn kill_and_wait(&mut self, env: &Env) -> Result<(ExitStatus, usize), RunError> {
        let killed = self.leftovers.kill();
        for _ in 0..MAX_POLLS {
            if let ControlFlow::Break(status) = self.try_reap().map_err(RunError::NotWatched)? {
                return Ok((status, killed));
            }
            env.sleep(POLL_INTERVAL).await;
        }
        Err(RunError::Unkillable(self.leftovers.kill().max(1)))
    }

    /// One look: whether nothing with the mark is left and the agent itself has ended.
    fn try_reap(&mut self) -> std::io::Result<ControlFlow<ExitStatus>> {
        let remaining = self.leftovers.kill();
        if remaining > 0 || !self.leftovers.all_ended(AT_ONCE) || !has_ended(self.handle.get_ref(), AT_ONCE) {
            return Ok(ControlFlow::Continue(()));
        }
        let status = self.child.wait()?;
        self.reaped = true;
        self.leftovers.reap();
        Ok(ControlFlow::Break(status))
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        // Until nobody is found any more, or one will not die, which nothing of ours can change.
        while self.leftovers.kill() > 0 && self.leftovers.all_ended(DROP_WAITS) {}
        if has_ended(self.handle.get_ref(), DROP_WAITS) {
            // Nobody is left to tell.
            let _ = self.child.wait();
        }
        self.leftovers.reap();
    }
}

#[expect(
    deprecated,
    reason = "unsound only for types that change their descriptor, which OwnedFd does not; its successor is unsafe code"
)]
fn handle(process: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(process, Interest::READABLE)
}

fn watch(child: &mut Child, pid: Pid) -> std::io::Result<(AsyncFd<OwnedFd>, Pipes)> {
    let missing = || std::io::Error::other("a pipe is missing");
    let handle = handle(pidfd_open(pid, PidfdFlags::empty())?)?;
    let stdin = OwnedFd::from(child.stdin.take().ok_or_else(missing)?);
    let stdout = OwnedFd::from(child.stdout.take().ok_or_else(missing)?);
    let stderr = OwnedFd::from(child.stderr.take().ok_or_else(missing)?);
    let pipes = Pipes {
        stdin: pipe::Sender::from_owned_fd(stdin)?,
        stdout: pipe::Receiver::from_owned_fd(stdout)?,
        stderr: pipe::Receiver::from_owned_fd(stderr)?,
    };
    Ok((handle, pipes))
}

pub(super) fn command(path: &Path, remaining: Duration, mark: &str) -> Command {
    let timeout_program = TIMEOUT_PROGRAMS.into_iter().find(|keeper| Path::new(keeper).is_file());
    let mut command = match timeout_program {
        Some(keeper) => {
            let mut command = Command::new(keeper);
            // Whole seconds, rounded up: not every `timeout` knows parts, and ours comes first.
            let seconds = remaining.as_secs() + u64::from(remaining.subsec_nanos() > 0);
            command.args(["-s", "KILL", &seconds.to_string()]).arg(path);
            command
        }
        None => Command::new(path),
    };
    command.env_clear().env("PATH", PATH).env("LC_ALL", "C").env("PYTHONWARNINGS", "ignore").env(MARK, mark);
    command.current_dir("/").process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Unique on the host, and not the beginning of another mark. A restarted process may get the same id: [`end_earlier`].
fn new_mark(owner: &str) -> String {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    format!("{owner}{}-{};", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed))
}

/// Kills the runs of `owner`. They are reaped by their orders.
pub(super) fn kill(owner: &str) {
    LeftoverProcesses::for_owner(owner).kill();
}

/// Kills the runs of an earlier process with this owner, waits for their end, and reaps them. `Err`: so many survive. Danger
/// note: only before this process has runs of that owner, for a reaped process id can become another process's.
pub(super) async fn end_earlier(env: &Env, owner: &str) -> Result<(), usize> {
    let mut earlier = LeftoverProcesses::for_owner(owner);
    for _ in 0..MAX_POLLS {
        if earlier.kill() == 0 && earlier.all_ended(AT_ONCE) {
            earlier.reap();
            return Ok(());
        }
        env.sleep(POLL_INTERVAL).await;
    }
    Err(earlier.kill().max(1))
}

/// The last time when nothing of an input of this length had been read. An agent that is Python starts for a second, on a busy
/// machine for many, and asks no device before it has read which. Comes back when it has read something, or reads no more.
async fn last_unread(env: &Env, stdin: &pipe::Sender, length: usize, began: Mono) -> Mono {
    let mut unread = began;
    loop {
        let now = env.now();
        // A longer input than a pipe holds was read in part while it was written.
        let all = ioctl_fionread(stdin).is_ok_and(|left| usize::try_from(left) == Ok(length));
        if !all || has_no_reader(stdin) {
            return unread;
        }
        unread = now;
        env.sleep(INPUT_POLL_INTERVAL).await;
    }
}

fn has_no_reader(stdin: &pipe::Sender) -> bool {
    let mut ends = [PollFd::new(stdin, PollFlags::empty())];
    poll(&mut ends, Some(&AT_ONCE)).is_err() || ends[0].revents().contains(PollFlags::ERR)
}

/// Reads to the end, so that the writer never waits for us; keeps the beginning.
async fn capture(mut pipe: pipe::Receiver) -> CapturedOutput {
    let mut captured = CapturedOutput::default();
    // All of it at once: a vector that grows leaves its old content behind.
    captured.text.reserve_exact(MAX_CAPTURE_BYTES);
    let mut piece = Zeroizing::new([0_u8; 8 << 10]);
    loop {
        match pipe.read(&mut *piece).await {
            // A pipe does not fail; if it did, there would be nothing more to read.
            Ok(0) | Err(_) => return captured,
            Ok(length) => {
                let room = MAX_CAPTURE_BYTES - captured.text.len();
                captured.text.extend_from_slice(&piece[..length.min(room)]);
                captured.is_truncated |= length > room;
            }
        }
    }
}
