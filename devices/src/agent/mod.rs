//! # Fence agents
//!
//! **Duty.** Run executables of the fence-agents project: one process per act, told by stdin, understood by its exit
//! code and its words, ended with everything that it started.
//!
//! **Inputs.** An [`Order`]; the agent's own metadata, read once per version of its file.
//!
//! | file | subject |
//! |---|---|
//! | [`find`] | from a name to an executable: never a path |
//! | [`metadata`] | what the agent says of itself, and whether it can be used at all |
//! | [`traps`] | agents and parameters that turn "I do not know" into "off", or run other programs |
//! | [`parameters`] | which strings agents may be given: what is not known to be safe is refused |
//! | [`input`] | parameters as lines of stdin |
//! | [`process`], [`ended`], [`remains`] | a run, how it ended, and what is left of it; on Linux only (`unsupported`) |
//! | [`verdict`] | exit code and words as an answer |
//! | [`terminated`] | the second question: is this very instance terminated |
//!
//! **Invariants.** No argument is ever given: with one, agents ignore stdin and reboot their default device. What a
//! run of `off` returns is a hint, and says nothing of power; only `status` does.

mod ended;
mod find;
mod input;
mod metadata;
mod parameters;
#[cfg(target_os = "linux")]
mod process;
#[cfg(not(target_os = "linux"))]
#[path = "unsupported.rs"]
mod process;
#[cfg(target_os = "linux")]
mod remains;
mod terminated;
mod traps;
mod verdict;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pod_safety_clock::{Env, Mono};
use pod_safety_transport::{Answer, DeviceError, Order, Value};

use crate::AgentOptions;
use crate::said::Redactor;
use ended::{Ended, RunError};
use find::Found;
use metadata::{Known, Metadata};

/// Agents are Python: most say what they are in 0.2 s, those with a cloud's library in some seconds on a busy node.
pub(crate) const METADATA_WITHIN: Duration = Duration::from_secs(20);

/// The agents of this machine.
pub(crate) struct Agents {
    env: Env,
    options: AgentOptions,
    /// The marks of its runs begin with this.
    owner: String,
    known: Known,
}

impl std::fmt::Debug for Agents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agents").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Agents {
    /// `owner` tells their runs from those of other processes on this host.
    pub(crate) fn of(env: Env, options: AgentOptions, owner: &str) -> Self {
        Self { env, options, owner: owner.to_owned(), known: Known::default() }
    }

    /// Kills the runs of an earlier process with the same owner, and waits for their end. `Err`: so many survive.
    pub(crate) async fn end_earlier(&self) -> Result<(), usize> {
        process::end_earlier(&self.env, &self.owner).await
    }

    /// Kills all running agents. Their orders fail.
    pub(crate) fn kill(&self) {
        process::kill(&self.owner);
    }

    /// See [`FenceTransport::check`](pod_safety_transport::FenceTransport::check).
    pub(crate) async fn check(
        &self,
        name: &str,
        parameters: &BTreeMap<String, Value>,
    ) -> Result<(), DeviceError> {
        let found = find::agent(name, &self.options.directories)?;
        let metadata = self.metadata(&found, self.env.now() + METADATA_WITHIN).await?;
        input::check(&found.name, &metadata, parameters)
    }

    /// See [`FenceTransport::carry_out`](pod_safety_transport::FenceTransport::carry_out).
    pub(crate) async fn carry_out(&self, name: &str, order: &Order) -> Result<Answer, DeviceError> {
        let began = self.env.now();
        let deadline = began + order.within;
        let found = find::agent(name, &self.options.directories)?;
        let metadata = self.metadata(&found, deadline).await?;
        let input = input::lines(&found.name, &metadata, order)?;
        let redactor = Redactor::new(&order.parameters);
        let ended = process::run(&self.env, &self.owner, &found.path, &input, deadline).await;
        let ended = ended.map_err(|error| refused(&error, order.within, &redactor))?;
        let answer = verdict::answer(order.act, &ended, &redactor);
        let (answer, unread_until) = match (answer, terminated::question(&found.name, order)) {
            (Err(DeviceError::Failed { said }), Some(question)) if terminated::is_in_doubt(&said) => {
                let answer = self.is_terminated(&found, &metadata, order, &question, deadline).await;
                answer.ok_or(DeviceError::Failed { said })?
            }
            (answer, _) => (answer?, ended.unread_until),
        };
        Ok(Answer { asked_after: unread_until.since(began), ..answer })
    }

    /// The second question, and until when it had not been asked. `None`: it does not say so.
    async fn is_terminated(
        &self,
        found: &Found,
        metadata: &Metadata,
        order: &Order,
        question: &terminated::Question<'_>,
        deadline: Mono,
    ) -> Option<(Answer, Mono)> {
        let input = input::list(&found.name, metadata, order, question.filter).ok()?;
        let ended = process::run(&self.env, &self.owner, &found.path, &input, deadline).await.ok()?;
        Some((question.answer(&ended)?, ended.unread_until))
    }

    /// What the agent says of itself; asked anew when its file has changed.
    async fn metadata(&self, found: &Found, deadline: Mono) -> Result<Arc<Metadata>, DeviceError> {
        if let Some(metadata) = self.known.get(found) {
            return Ok(metadata);
        }
        let bad = |why: String| DeviceError::Metadata { agent: found.name.clone(), why };
        if found.name == traps::FOR_TESTS && !self.options.fence_dummy {
            return Err(bad(traps::FOR_TESTS_ALONE.to_owned()));
        }
        let deadline = deadline.min(self.env.now() + METADATA_WITHIN);
        let ended = process::run(&self.env, &self.owner, &found.path, b"action=metadata\n", deadline).await;
        let Ended { code, stdout, stderr, .. } = ended.map_err(|error| {
            bad(format!(
                "asked for its metadata: {error}; try it by hand: `echo action=metadata | {}`",
                found.name
            ))
        })?;
        if code != Some(0) {
            let said = Redactor::new(&BTreeMap::new()).clean(&stderr.text, stderr.cut);
            return Err(bad(format!(
                "does not print its metadata ({said}); check that the libraries that it needs are installed"
            )));
        }
        let text = String::from_utf8_lossy(&stdout.text);
        let metadata = Arc::new(Metadata::read(&text).map_err(bad)?);
        metadata.usable(&found.name).map_err(bad)?;
        self.known.put(found, Arc::clone(&metadata));
        Ok(metadata)
    }
}

fn refused(error: &RunError, within: Duration, redactor: &Redactor) -> DeviceError {
    match error {
        RunError::TimedOut => DeviceError::TimedOut { after: within },
        RunError::NotStarted(_) | RunError::NotWatched(_) | RunError::Survives(_) => {
            DeviceError::Failed { said: redactor.clean(error.to_string().as_bytes(), false) }
        }
    }
}
