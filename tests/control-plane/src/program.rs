//! One child process: started with its own log file, monitored, signalled, and killed when dropped.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::eventually::{Deadline, PATIENCE, PAUSE};
use crate::folder::Folder;
use crate::{Error, spawner, usage};

/// The number of log lines in an error message.
const LOG_LINES: usize = 30;

/// A running child process. Dropping it kills it and its process group, and nothing else.
pub struct Program {
    name: String,
    child: Child,
    group: Pid,
    log: PathBuf,
    ended: Option<ExitStatus>,
    folder: Arc<Folder>,
}

/// Go collects garbage only beyond this much memory: a starting kube-apiserver then takes 1.1 s of CPU time instead of 1.4 s, and 450 MiB
/// instead of 380 MiB. Not used with [`Options::measured`](crate::Options::measured).
pub(crate) const GO_MEMORY: [(&str, &str); 2] = [("GOGC", "off"), ("GOMEMLIMIT", "768MiB")];

impl Program {
    /// Starts `path`, with output appended to `<name>.log`.
    pub(crate) fn start<A, V>(name: &str, path: &Path, args: A, env: V, folder: Arc<Folder>) -> Result<Self, Error>
    where
        A: IntoIterator<Item: AsRef<OsStr>>,
        V: IntoIterator<Item = (String, String)>,
    {
        let log = folder.log(name);
        let file = File::options().create(true).append(true).open(&log).map_err(Error::file("open", &log))?;
        let copy = file.try_clone().map_err(Error::file("open", &log))?;
        let mut command = spawner::command(path);
        if !folder.measured() {
            command.envs(GO_MEMORY);
        }
        command.args(args).envs(env).current_dir(folder.path());
        command.stdin(Stdio::null()).stdout(file).stderr(copy);
        let process = |source| Error::Process { act: "start", program: name.to_owned(), source };
        let child = spawner::spawn(command).map_err(process)?;
        let group = Pid::from_child(&child);
        Ok(Self { name: name.to_owned(), child, group, log, ended: None, folder })
    }

    /// Its name in log files and messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status, or `None` while it runs.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>, Error> {
        if self.ended.is_none() {
            // This does not reap the process: until then its PID cannot be reused, so the rest of its process group can be killed safely.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            let state = waitid(WaitId::Pid(self.group), options).map_err(|error| self.failed("ask about", error))?;
            if state.is_some() {
                self.reap()?;
            }
        }
        Ok(self.ended)
    }

    /// Waits until it exits by itself.
    pub async fn wait_exit(&mut self) -> Result<ExitStatus, Error> {
        let deadline = Deadline::in_duration(PATIENCE);
        while deadline.probe_once(tokio::time::sleep(PAUSE)).await.is_some() {
            if let Some(status) = self.exited()? {
                return Ok(status);
            }
        }
        Err(self.too_slow("end", PATIENCE, "it still runs"))
    }

    /// Waits until `probe` succeeds, and fails immediately if the program exits first.
    pub async fn wait_for(
        &mut self,
        awaited: &'static str,
        probe: impl AsyncFnMut() -> Result<(), String>,
    ) -> Result<(), Error> {
        self.wait_for_within(awaited, PATIENCE, probe).await
    }

    /// The same with a different time limit.
    pub async fn wait_for_within(
        &mut self,
        awaited: &'static str,
        within: Duration,
        mut probe: impl AsyncFnMut() -> Result<(), String>,
    ) -> Result<(), Error> {
        let deadline = Deadline::in_duration(within);
        let mut seen = String::from("nothing");
        while let Some(outcome) = deadline.probe_once(probe()).await {
            match outcome {
                Ok(()) => return Ok(()),
                Err(observation) => seen = observation,
            }
            if let Some(status) = self.exited()? {
                return Err(Error::Ended { program: self.name.clone(), status, awaited, log: self.log_end() });
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(self.too_slow(awaited, within, &seen))
    }

    /// Kills it with SIGKILL, like a crash of its machine, and waits until it is gone.
    pub fn kill_9(&mut self) -> Result<(), Error> {
        if self.ended.is_none() {
            self.reap()?;
        }
        Ok(())
    }

    /// Sends SIGTERM and waits until it has exited.
    pub async fn terminate(&mut self) -> Result<ExitStatus, Error> {
        self.signal(Signal::TERM, "end")?;
        self.wait_exit().await
    }

    /// Sends SIGINT, like Ctrl-C, and waits until it has exited.
    pub async fn interrupt(&mut self) -> Result<ExitStatus, Error> {
        self.signal(Signal::INT, "interrupt")?;
        self.wait_exit().await
    }

    /// Stops it with SIGSTOP: its connections stay open without answers. Returns when all of its threads have stopped, which on a busy machine
    /// takes some time.
    pub fn pause(&mut self) -> Result<(), Error> {
        self.signal(Signal::STOP, "pause")?;
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.group), options).map(drop).map_err(|error| self.failed("pause", error))
    }

    /// Continues it with SIGCONT after [`pause`](Self::pause); it does not notice the time that passed.
    pub fn resume(&mut self) -> Result<(), Error> {
        self.signal(Signal::CONT, "resume")
    }

    /// Its log so far.
    pub fn log_text(&self) -> String {
        // The log may have invalid UTF-8, which must not hide the rest.
        std::fs::read(&self.log)
            .map_or_else(|error| error.to_string(), |log| String::from_utf8_lossy(&log).into_owned())
    }

    /// Its peak resident memory so far.
    pub fn rss_peak_kib(&self) -> Result<u64, Error> {
        usage::memory_kib(self.pid(), "VmHWM").map_err(|error| self.failed("measure", error))
    }

    /// Its current resident memory.
    pub fn rss_kib(&self) -> Result<u64, Error> {
        usage::memory_kib(self.pid(), "VmRSS").map_err(|error| self.failed("measure", error))
    }

    /// The CPU time that it has used so far.
    pub fn cpu_seconds(&self) -> Result<f64, Error> {
        usage::cpu_seconds(self.pid()).map_err(|error| self.failed("measure", error))
    }

    fn signal(&mut self, signal: Signal, act: &'static str) -> Result<(), Error> {
        // A process that has exited is never signalled: its PID may have been reused.
        if self.exited()?.is_some() {
            return Err(self.failed(act, std::io::Error::other("it has ended")));
        }
        kill_process_group(self.group, signal).map_err(|error| self.failed(act, error))
    }

    /// Kills the rest of the process group, then reaps the process. The order matters: see [`exited`](Self::exited).
    fn reap(&mut self) -> Result<(), Error> {
        kill_process_group(self.group, Signal::KILL).map_err(|error| self.failed("kill", error))?;
        let status = self.child.wait().map_err(|error| self.failed("wait for", error))?;
        self.ended = Some(status);
        Ok(())
    }

    fn log_end(&self) -> String {
        let text = self.log_text();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    fn failed(&self, act: &'static str, error: impl Into<std::io::Error>) -> Error {
        Error::Process { act, program: self.name.clone(), source: error.into() }
    }

    fn too_slow(&self, awaited: &'static str, within: Duration, seen: &str) -> Error {
        let (program, seen, log) = (self.name.clone(), seen.to_owned(), self.log_end());
        Error::TooSlow { program, awaited, within, seen, log }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.folder.keep_logs_if_failing();
        // Errors cannot be reported here; if it could not be killed, it dies with the test process.
        let _ = self.kill_9();
    }
}
