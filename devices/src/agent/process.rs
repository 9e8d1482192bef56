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

use super::ended::{Captured, Ended, RunError};
use super::remains::{MARK, Remains, has_ended};

/// Where agents find what they call by name.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// The second keeper of the deadline.
const KEEPERS: [&str; 2] = ["/usr/bin/timeout", "/bin/timeout"];

/// Kept of each of stdout and stderr. The longest metadata of fence-agents 4.12.1 has 11 KiB, the longest help 20.
const KEPT: usize = 256 << 10;

/// Between two looks for what is left: a killed process needs some time to be gone.
const PAUSE: Duration = Duration::from_millis(5);

/// So often it is looked: for a second. What is alive then waits for hardware, or belongs to another user.
const LOOKS: u32 = 200;

/// Between two looks whether an agent has read its input.
const READS: Duration = Duration::from_millis(20);

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
) -> Result<Ended, RunError> {
    let left = deadline.since(env.now());
    if left.is_zero() {
        return Err(RunError::TimedOut);
    }
    let (mut group, pipes) = Group::start(owner, path, left)?;
    let ended = env.until(deadline, group.talk(env, pipes, input)).await;
    match ended {
        Some(ended) => ended,
        None => {
            // Not left to the drop: who gets this answer relies on nothing being left. Its end may have come and only
            // the end of its words not, where something out of our reach holds its pipes.
            if !group.reaped {
                group.end(env).await?;
            }
            Err(RunError::TimedOut)
        }
    }
}

/// A started agent. Dropping it kills everything that it started.
struct Group {
    child: Child,
    /// Readable when it has ended; it is not reaped by that, so its number stays its own.
    handle: AsyncFd<OwnedFd>,
    remains: Remains,
    reaped: bool,
}

struct Pipes {
    stdin: pipe::Sender,
    stdout: pipe::Receiver,
    stderr: pipe::Receiver,
}

impl Group {
    fn start(owner: &str, path: &Path, left: Duration) -> Result<(Self, Pipes), RunError> {
        let mark = mark(owner);
        let mut child = command(path, left, &mark).spawn().map_err(RunError::NotStarted)?;
        let pid = Pid::from_child(&child);
        let mut remains = Remains::new(pid, &mark);
        match watch(&mut child, pid) {
            Ok((handle, pipes)) => Ok((Self { child, handle, remains, reaped: false }, pipes)),
            Err(error) => {
                remains.kill();
                // Just killed, so this takes no time.
                let _ = child.wait();
                Err(RunError::NotWatched(error))
            }
        }
    }

    /// Feeds it, listens to it, and waits for its end, all at once: each of the pipes can fill up.
    async fn talk(&mut self, env: &Env, pipes: Pipes, input: &[u8]) -> Result<Ended, RunError> {
        let Pipes { mut stdin, stdout, stderr } = pipes;
        let began = env.now();
        let feed = async move {
            // An agent that does not read to the end says why itself. Dropping the pipe is the end of file.
            let _ = stdin.write_all(input).await;
            unread_until(env, &stdin, input.len(), began).await
        };
        let end = async {
            drop(self.handle.readable().await.map_err(RunError::NotWatched)?);
            // At once: what it left behind holds the pipes open.
            self.end(env).await
        };
        let (unread_until, stdout, stderr, end) = tokio::join!(feed, capture(stdout), capture(stderr), end);
        let (status, left) = end?;
        Ok(Ended { code: status.code(), signal: status.signal(), stdout, stderr, left, unread_until })
    }

    /// Kills what runs of it and waits until nothing is left. Says how it ended, and how much it had left behind.
    async fn end(&mut self, env: &Env) -> Result<(ExitStatus, usize), RunError> {
        let left = self.remains.kill();
        for _ in 0..LOOKS {
            if let ControlFlow::Break(status) = self.gone().map_err(RunError::NotWatched)? {
                return Ok((status, left));
            }
            env.sleep(PAUSE).await;
        }
        Err(RunError::Survives(self.remains.kill().max(1)))
    }

    /// One look: whether nothing with the mark is left and the agent itself has ended.
    fn gone(&mut self) -> std::io::Result<ControlFlow<ExitStatus>> {
        let left = self.remains.kill();
        if left > 0 || !self.remains.ended(AT_ONCE) || !has_ended(self.handle.get_ref(), AT_ONCE) {
            return Ok(ControlFlow::Continue(()));
        }
        let status = self.child.wait()?;
        self.reaped = true;
        self.remains.reap();
        Ok(ControlFlow::Break(status))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        // Until nobody is found any more, or one will not die, which nothing of ours can change.
        while self.remains.kill() > 0 && self.remains.ended(DROP_WAITS) {}
        if has_ended(self.handle.get_ref(), DROP_WAITS) {
            // Nobody is left to tell.
            let _ = self.child.wait();
        }
        self.remains.reap();
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

pub(super) fn command(path: &Path, left: Duration, mark: &str) -> Command {
    let keeper = KEEPERS.into_iter().find(|keeper| Path::new(keeper).is_file());
    let mut command = match keeper {
        Some(keeper) => {
            let mut command = Command::new(keeper);
            // Whole seconds, rounded up: not every `timeout` knows parts, and ours comes first.
            let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
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
fn mark(owner: &str) -> String {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    format!("{owner}{}-{};", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed))
}

/// Kills the runs of `owner`. They are reaped by their orders.
pub(super) fn kill(owner: &str) {
    Remains::of_owner(owner).kill();
}

/// Kills the runs of an earlier process with this owner, waits for their end, and reaps them. `Err`: so many survive. Danger
/// note: only before this process has runs of that owner, for a reaped process id can become another process's.
pub(super) async fn end_earlier(env: &Env, owner: &str) -> Result<(), usize> {
    let mut earlier = Remains::of_owner(owner);
    for _ in 0..LOOKS {
        if earlier.kill() == 0 && earlier.ended(AT_ONCE) {
            earlier.reap();
            return Ok(());
        }
        env.sleep(PAUSE).await;
    }
    Err(earlier.kill().max(1))
}

/// The last time when nothing of an input of this length had been read. An agent that is Python starts for a second, on a busy
/// machine for many, and asks no device before it has read which. Comes back when it has read something, or reads no more.
async fn unread_until(env: &Env, stdin: &pipe::Sender, length: usize, began: Mono) -> Mono {
    let mut unread = began;
    loop {
        let now = env.now();
        // A longer input than a pipe holds was read in part while it was written.
        let all = ioctl_fionread(stdin).is_ok_and(|left| usize::try_from(left) == Ok(length));
        if !all || has_no_reader(stdin) {
            return unread;
        }
        unread = now;
        env.sleep(READS).await;
    }
}

fn has_no_reader(stdin: &pipe::Sender) -> bool {
    let mut ends = [PollFd::new(stdin, PollFlags::empty())];
    poll(&mut ends, Some(&AT_ONCE)).is_err() || ends[0].revents().contains(PollFlags::ERR)
}

/// Reads to the end, so that the writer never waits for us; keeps the beginning.
async fn capture(mut pipe: pipe::Receiver) -> Captured {
    let mut captured = Captured::default();
    // All of it at once: a vector that grows leaves its old content behind.
    captured.text.reserve_exact(KEPT);
    let mut piece = Zeroizing::new([0_u8; 8 << 10]);
    loop {
        match pipe.read(&mut *piece).await {
            // A pipe does not fail; if it did, there would be nothing more to read.
            Ok(0) | Err(_) => return captured,
            Ok(length) => {
                let room = KEPT - captured.text.len();
                captured.text.extend_from_slice(&piece[..length.min(room)]);
                captured.cut |= length > room;
            }
        }
    }
}
