//! One child process: started with a log file of its own, watched, signalled, and gone when dropped.

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

/// How much of a log an error message carries.
const LOG_LINES: usize = 30;

/// A running child process. Dropping it kills it and everything in its process group, and nothing else.
pub struct Program {
    name: String,
    child: Child,
    group: Pid,
    log: PathBuf,
    ended: Option<ExitStatus>,
    folder: Arc<Folder>,
}

/// Go collects garbage only beyond this much memory: a kube-apiserver that starts, which keeps 380 MiB otherwise and 450 so, takes 1.1 s of
/// CPU time in place of 1.4. Not where [`Options::measured`](crate::Options::measured) says so.
pub(crate) const GO_MEMORY: [(&str, &str); 2] = [("GOGC", "off"), ("GOMEMLIMIT", "768MiB")];

impl Program {
    /// Starts `path` and lets it write to `<name>.log`, behind what an earlier program of that name wrote.
    pub(crate) fn start<A, V>(
        name: &str,
        path: &Path,
        args: A,
        env: V,
        folder: Arc<Folder>,
    ) -> Result<Self, Error>
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

    /// What its log file and messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, or `None` while it lives.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>, Error> {
        if self.ended.is_none() {
            // Looking does not reap: until we do, the id cannot become anyone else's, and what is left of
            // the group can be killed without a doubt whose it is.
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            let state =
                waitid(WaitId::Pid(self.group), look).map_err(|error| self.failed("ask about", error))?;
            if state.is_some() {
                self.reap()?;
            }
        }
        Ok(self.ended)
    }

    /// Waits until it ends by itself.
    pub async fn wait_exit(&mut self) -> Result<ExitStatus, Error> {
        let deadline = Deadline::in_duration(PATIENCE);
        while deadline.probe_once(tokio::time::sleep(PAUSE)).await.is_some() {
            if let Some(status) = self.exited()? {
                return Ok(status);
            }
        }
        Err(self.too_slow("end", PATIENCE, "it still runs"))
    }

    /// Waits until `probe` succeeds, and fails at once if the program ends first.
    pub async fn wait_for(
        &mut self,
        awaited: &'static str,
        probe: impl AsyncFnMut() -> Result<(), String>,
    ) -> Result<(), Error> {
        self.wait_for_within(awaited, PATIENCE, probe).await
    }

    /// The same, with a limit of its own.
    pub async fn wait_for_within(
        &mut self,
        awaited: &'static str,
        within: Duration,
        mut probe: impl AsyncFnMut() -> Result<(), String>,
    ) -> Result<(), Error> {
        let deadline = Deadline::in_duration(within);
        let mut seen = String::from("nothing");
        while let Some(look) = deadline.probe_once(probe()).await {
            match look {
                Ok(()) => return Ok(()),
                Err(observation) => seen = observation,
            }
            if let Some(status) = self.exited()? {
                return Err(Error::Ended {
                    program: self.name.clone(),
                    status,
                    awaited,
                    log: self.log_end(),
                });
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(self.too_slow(awaited, within, &seen))
    }

    /// Kills it without warning, as a crash of its machine would, and waits until it is gone.
    pub fn kill_9(&mut self) -> Result<(), Error> {
        if self.ended.is_none() {
            self.reap()?;
        }
        Ok(())
    }

    /// Asks it to end (SIGTERM) and waits until it has.
    pub async fn terminate(&mut self) -> Result<ExitStatus, Error> {
        self.signal(Signal::TERM, "end")?;
        self.wait_exit().await
    }

    /// Asks it to end as Ctrl-C does (SIGINT) and waits until it has.
    pub async fn interrupt(&mut self) -> Result<ExitStatus, Error> {
        self.signal(Signal::INT, "interrupt")?;
        self.wait_exit().await
    }

    /// Stops it where it is (SIGSTOP): its connections stay open and nobody answers. Comes back when all of its
    /// threads stand still, which on a busy machine takes longer than an answer.
    pub fn pause(&mut self) -> Result<(), Error> {
        self.signal(Signal::STOP, "pause")?;
        let look = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.group), look).map(drop).map_err(|error| self.failed("pause", error))
    }

    /// Lets it go on after [`pause`](Self::pause), unaware of the time that passed.
    pub fn resume(&mut self) -> Result<(), Error> {
        self.signal(Signal::CONT, "resume")
    }

    /// All that it wrote so far.
    pub fn log_text(&self) -> String {
        // Its log is bytes from a stranger; a broken character must not hide the rest.
        std::fs::read(&self.log)
            .map_or_else(|error| error.to_string(), |log| String::from_utf8_lossy(&log).into_owned())
    }

    /// The most memory that it had resident so far.
    pub fn rss_peak_kib(&self) -> Result<u64, Error> {
        usage::memory_kib(self.pid(), "VmHWM").map_err(|error| self.failed("measure", error))
    }

    /// The memory that it has resident now.
    pub fn rss_kib(&self) -> Result<u64, Error> {
        usage::memory_kib(self.pid(), "VmRSS").map_err(|error| self.failed("measure", error))
    }

    /// The processor time that it has used so far.
    pub fn cpu_seconds(&self) -> Result<f64, Error> {
        usage::cpu_seconds(self.pid()).map_err(|error| self.failed("measure", error))
    }

    fn signal(&mut self, signal: Signal, act: &'static str) -> Result<(), Error> {
        // An ended program is never signalled: its number may be someone else's by now.
        if self.exited()?.is_some() {
            return Err(self.failed(act, std::io::Error::other("it has ended")));
        }
        kill_process_group(self.group, signal).map_err(|error| self.failed(act, error))
    }

    /// Kills what is left of the group, then takes the exit state. In this order: see
    /// [`exited`](Self::exited).
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
        // Nobody is left to tell; if it could not be killed, it dies with our process.
        let _ = self.kill_9();
    }
}
