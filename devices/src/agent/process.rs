//! One run of an agent.
//!
//! Duty: start it with nothing but its stdin, keep the beginning of its output, and make sure that no process of it
//! is left when its deadline is over, when it has ended, or when its future is dropped.
//!
//! Invariants: no arguments; an environment of four variables; a process group of its own. The deadline is enforced
//! twice: by this process, and by `timeout` of coreutils (if it is installed), which continues when this process is
//! killed: the next leader counts on an order being over at its `notAfter`.

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

/// Where agents find the programs that they call by name.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// The second enforcement of the deadline.
const TIMEOUT_PROGRAMS: [&str; 2] = ["/usr/bin/timeout", "/bin/timeout"];

/// How much of each of stdout and stderr is kept. The longest metadata of fence-agents 4.12.1 has 11 KiB, the longest
/// help 20.
const MAX_CAPTURE_BYTES: usize = 256 << 10;

/// Between two scans for leftover processes: a killed process needs some time to be gone.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The number of scans, over one second. A process that is alive then waits for hardware, or belongs to another user.
const MAX_POLLS: u32 = 200;

/// Between two checks whether an agent has read its input.
const INPUT_POLL_INTERVAL: Duration = Duration::from_millis(20);

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// How long a dropped future may block its thread until the agent is gone. It takes far less than a millisecond.
const DROP_WAITS: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Runs `path` with `input` until it ends, at most until `deadline`.
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
            // Not left to the drop: the caller relies on no process being left. The agent itself may have ended, with
            // only its output open, where a process that cannot be killed holds its pipes.
            if !group.reaped {
                group.kill_and_wait(env).await?;
            }
            Err(RunError::TimedOut)
        }
    }
}

/// A started agent. Dropping it kills all processes that it started.
struct ProcessGroup {
    child: Child,
    /// Readable when the agent has ended; it is not reaped by that, so its PID is not reused.
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
                // It was just killed, so this takes no time.
                let _ = child.wait();
                Err(RunError::NotWatched(error))
            }
        }
    }

    /// Writes its input, reads its output, and waits for its end, all at once: each of the pipes can fill up.
    async fn communicate(&mut self, env: &Env, pipes: Pipes, input: &[u8]) -> Result<RunResult, RunError> {
        let Pipes { mut stdin, stdout, stderr } = pipes;
        let began = env.now();
        let feed = async move {
            // An agent that does not read to the end reports why itself. Dropping the pipe is the end of file.
            let _ = stdin.write_all(input).await;
            last_unread(env, &stdin, input.len(), began).await
        };
        let end = async {
            drop(self.handle.readable().await.map_err(RunError::NotWatched)?);
            // At once: leftover processes hold the pipes open.
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

    /// Kills all processes of the run and waits until none is left. Returns the exit status, and how many were left
    /// behind.
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

    /// Checks once whether no process with the mark is left and the agent itself has ended.
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
        // Until no process is found any more, or one cannot be killed.
        while self.leftovers.kill() > 0 && self.leftovers.all_ended(DROP_WAITS) {}
        if has_ended(self.handle.get_ref(), DROP_WAITS) {
            // No caller is left for an error.
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
    let timeout_program = TIMEOUT_PROGRAMS.into_iter().find(|program| Path::new(program).is_file());
    let mut command = match timeout_program {
        Some(program) => {
            let mut command = Command::new(program);
            // Whole seconds, rounded up: not every `timeout` accepts fractions, and our own deadline comes first.
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

/// Unique on the host, and no prefix of another mark. A restarted process may get the same id: [`end_earlier`].
fn new_mark(owner: &str) -> String {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    format!("{owner}{}-{};", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed))
}

/// Kills the runs of `owner`. Their orders reap them.
pub(super) fn kill(owner: &str) {
    LeftoverProcesses::for_owner(owner).kill();
}

/// Kills the runs of an earlier process with this owner, waits for their end, and reaps them. `Err`: the number of
/// survivors. Danger note: only before this process has runs of that owner, for a reaped PID can become another
/// process's.
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

/// The last time when nothing of an input of this length had been read. A Python agent takes a second to start, on a
/// busy machine many, and queries no device before it has read its input. Returns when the agent has read something,
/// or cannot read any more.
async fn last_unread(env: &Env, stdin: &pipe::Sender, length: usize, began: Mono) -> Mono {
    let mut unread = began;
    loop {
        let now = env.now();
        // A longer input than a pipe holds was read in part while it was written.
        let all = ioctl_fionread(stdin).is_ok_and(|unread_bytes| usize::try_from(unread_bytes) == Ok(length));
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

/// Reads to the end, so that the writer never blocks; keeps the beginning.
async fn capture(mut pipe: pipe::Receiver) -> CapturedOutput {
    let mut captured = CapturedOutput::default();
    // The whole capacity at once: a vector that grows leaves its old content in memory.
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
