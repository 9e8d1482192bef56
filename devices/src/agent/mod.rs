//! # Fence agents
//!
//! **Duty.** Run executables of the fence-agents project: one process per order, controlled by stdin, interpreted by
//! its exit code and its output, killed with all processes that it started.
//!
//! **Inputs.** An [`Order`]; the agent's own metadata, read once per version of its file.
//!
//! | file | subject |
//! |---|---|
//! | [`find`] | from a name to an executable: never a path |
//! | | [`metadata`] | the agent's parameters and actions, and whether it can be used at all |
//! | | [`traps`] | agents and parameters that report an unknown state as "off", or run other programs |
//! | | [`parameters`] | which strings agents may get: all that are not known to be safe are refused |
//! | [`input`] | parameters as lines of stdin |
//! | | [`process`], [`run_result`], [`leftovers`] | a run, its result, and the processes that it leaves behind; on Linux only (`unsupported`) |
//! | | [`verdict`] | exit code and output as an answer |
//! | | [`terminated`] | the second query: whether this instance is terminated |
//!
//! **Invariants.** No command line argument is ever given: with one, agents ignore stdin and reboot their default
//! device. The result of `off` is a hint, and shows nothing about power; only `status` does.

mod find;
mod input;
#[cfg(target_os = "linux")]
mod leftovers;
mod metadata;
mod parameters;
#[cfg(target_os = "linux")]
mod process;
#[cfg(not(target_os = "linux"))]
#[path = "unsupported.rs"]
mod process;
mod run_result;
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
use crate::redact::Redactor;
use find::InstalledAgent;
use metadata::{Metadata, MetadataCache};
use run_result::{RunError, RunResult};

/// Agents are Python programs: most print their metadata in 0.2 s, those with a cloud's library in some seconds on a
/// busy node.
pub(crate) const METADATA_WITHIN: Duration = Duration::from_secs(20);

/// The agents of this machine.
pub(crate) struct Agents {
    env: Env,
    options: AgentOptions,
    /// The prefix of the marks of its runs.
    owner: String,
    metadata_cache: MetadataCache,
}

impl std::fmt::Debug for Agents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agents").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Agents {
    /// `owner` distinguishes its runs from those of other processes on this host.
    pub(crate) fn new(env: Env, options: AgentOptions, owner: &str) -> Self {
        Self { env, options, owner: owner.to_owned(), metadata_cache: MetadataCache::default() }
    }

    /// Kills the runs of an earlier process with the same owner, and waits for their end. `Err`: the number of
    /// survivors.
    pub(crate) async fn end_earlier(&self) -> Result<(), usize> {
        process::end_earlier(&self.env, &self.owner).await
    }

    /// Kills all running agents. Their orders fail.
    pub(crate) fn kill(&self) {
        process::kill(&self.owner);
    }

    /// See [`FenceTransport::check`](pod_safety_transport::FenceTransport::check).
    pub(crate) async fn check(&self, name: &str, parameters: &BTreeMap<String, Value>) -> Result<(), DeviceError> {
        let agent = find::find_agent(name, &self.options.directories)?;
        let metadata = self.metadata(&agent, self.env.now() + METADATA_WITHIN).await?;
        input::check(&agent.name, &metadata, parameters)
    }

    /// See [`FenceTransport::carry_out`](pod_safety_transport::FenceTransport::carry_out).
    pub(crate) async fn carry_out(&self, name: &str, order: &Order) -> Result<Answer, DeviceError> {
        let began = self.env.now();
        let deadline = began + order.within;
        let agent = find::find_agent(name, &self.options.directories)?;
        let metadata = self.metadata(&agent, deadline).await?;
        let input = input::order_input(&agent.name, &metadata, order)?;
        let redactor = Redactor::new(&order.parameters);
        let result = process::run(&self.env, &self.owner, &agent.path, &input, deadline).await;
        let ended = result.map_err(|error| run_error(&error, order.within, &redactor))?;
        let answer = verdict::interpret(order.act, &ended, &redactor);
        let (answer, unread_until) = match (answer, terminated::list_query(&agent.name, order)) {
            (Err(DeviceError::Failed { said }), Some(question)) if terminated::may_be_terminated(&said) => {
                let answer = self.is_terminated(&agent, &metadata, order, &question, deadline).await;
                answer.ok_or(DeviceError::Failed { said })?
            }
            (answer, _) => (answer?, ended.input_unread_until),
        };
        Ok(Answer { asked_after: unread_until.since(began), ..answer })
    }

    /// The second query, and until when its input had not been read. `None`: the instance is not listed as
    /// terminated.
    async fn is_terminated(
        &self,
        agent: &InstalledAgent,
        metadata: &Metadata,
        order: &Order,
        question: &terminated::ListQuery<'_>,
        deadline: Mono,
    ) -> Option<(Answer, Mono)> {
        let input = input::list_input(&agent.name, metadata, order, question.filter).ok()?;
        let ended = process::run(&self.env, &self.owner, &agent.path, &input, deadline).await.ok()?;
        Some((question.find_in_list(&ended)?, ended.input_unread_until))
    }

    /// The agent's metadata; read again when its file has changed.
    async fn metadata(&self, agent: &InstalledAgent, deadline: Mono) -> Result<Arc<Metadata>, DeviceError> {
        if let Some(metadata) = self.metadata_cache.get(agent) {
            return Ok(metadata);
        }
        let bad = |why: String| DeviceError::Metadata { agent: agent.name.clone(), why };
        if agent.name == traps::DUMMY_AGENT && !self.options.fence_dummy {
            return Err(bad(traps::DUMMY_REFUSED.to_owned()));
        }
        let deadline = deadline.min(self.env.now() + METADATA_WITHIN);
        let result = process::run(&self.env, &self.owner, &agent.path, b"action=metadata\n", deadline).await;
        let RunResult { code, stdout, stderr, .. } = result.map_err(|error| {
            bad(format!("asked for its metadata: {error}; try it by hand: `echo action=metadata | {}`", agent.name))
        })?;
        if code != Some(0) {
            let output = Redactor::new(&BTreeMap::new()).clean(&stderr.text, stderr.is_truncated);
            return Err(bad(format!(
                "does not print its metadata ({output}); check that the libraries that it needs are installed"
            )));
        }
        let text = String::from_utf8_lossy(&stdout.text);
        let metadata = Arc::new(Metadata::read(&text).map_err(bad)?);
        metadata.check_usable(&agent.name).map_err(bad)?;
        self.metadata_cache.put(agent, Arc::clone(&metadata));
        Ok(metadata)
    }
}

fn run_error(error: &RunError, within: Duration, redactor: &Redactor) -> DeviceError {
    match error {
        RunError::TimedOut => DeviceError::TimedOut { after: within },
        RunError::NotStarted(_) | RunError::NotWatched(_) | RunError::Unkillable(_) => {
            DeviceError::Failed { said: redactor.clean(error.to_string().as_bytes(), false) }
        }
    }
}
