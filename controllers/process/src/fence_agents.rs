//! `pod-safety fence-agents`: runs fence agents for `pod-safety run`, in a container that cannot read its token or memory.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{ArgAction, Args as ClapArgs};
use pod_safety_devices::{AGENT_DIRECTORIES, AgentLocation, AgentOptions, AgentServer};
use pod_safety_shared::clock::Env;
use tokio::signal::unix::{SignalKind, signal};

use super::{logging, memory, random};
use crate::block_on;

/// The flags of `pod-safety fence-agents`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The Unix socket that receives orders
    #[arg(long, value_name = "PATH", env = "POD_SAFETY_LISTEN")]
    listen: PathBuf,

    /// Accept orders only from this user. Default: from every user that may open the socket, which are its owner and its group
    #[arg(long, value_name = "UID", env = "POD_SAFETY_CLIENT_UID")]
    client_uid: Option<u32>,

    /// How many agents run at a time. Other orders wait. An agent needs 22 to 34 MB of memory
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 32,
        value_parser = clap::value_parser!(u16).range(1..=1_000),
        env = "POD_SAFETY_AT_ONCE"
    )]
    at_once: u16,

    #[command(flatten)]
    agents: AgentArgs,

    /// The format of logs
    #[arg(long, value_enum, default_value_t = logging::Format::Text, env = "POD_SAFETY_LOG_FORMAT", help_heading = "Observation")]
    log_format: logging::Format,

    /// The level of logs
    #[arg(long, value_enum, default_value_t = logging::Level::Info, env = "POD_SAFETY_LOG_LEVEL", help_heading = "Observation")]
    log_level: logging::Level,
}

/// Which agents may run: for `run` and for `fence-agents`.
#[derive(Debug, ClapArgs)]
struct AgentArgs {
    /// Folders that contain fence agents; the first that has the agent wins. Empty: no agent runs
    #[arg(
        long,
        value_name = "FOLDERS",
        value_delimiter = ':',
        default_values_t = AGENT_DIRECTORIES.map(str::to_owned),
        env = "POD_SAFETY_FENCE_AGENTS_PATH",
        help_heading = "Fencing"
    )]
    fence_agents_path: Vec<String>,

    /// Allow the agent fence_dummy, which switches nothing. For test clusters only
    #[arg(
        long,
        default_value_t = false,
        action = ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        require_equals = true,
        env = "POD_SAFETY_ALLOW_FENCE_DUMMY",
        help_heading = "Fencing"
    )]
    allow_fence_dummy: bool,
}

/// Where fence agents run.
#[derive(Debug, ClapArgs)]
pub(crate) struct PlaceArgs {
    #[command(flatten)]
    agents: AgentArgs,

    /// The Unix socket of `pod-safety fence-agents`, which then runs all fence agents. Without it they run as children of
    /// this process, and can read its ServiceAccount token
    #[arg(long, value_name = "PATH", conflicts_with_all = ["fence_agents_path", "allow_fence_dummy"], env = "POD_SAFETY_FENCE_AGENTS_SOCKET", help_heading = "Fencing")]
    fence_agents_socket: Option<PathBuf>,
}

impl PlaceArgs {
    pub(crate) fn into_location(self) -> AgentLocation {
        let Self { agents, fence_agents_socket } = self;
        fence_agents_socket.map_or_else(|| AgentLocation::Local(agents.into_options()), AgentLocation::Socket)
    }
}

impl AgentArgs {
    fn into_options(self) -> AgentOptions {
        let Self { fence_agents_path, allow_fence_dummy } = self;
        let directories = fence_agents_path.into_iter().filter(|folder| !folder.is_empty());
        AgentOptions { directories: directories.map(PathBuf::from).collect(), fence_dummy: allow_fence_dummy }
    }
}

impl Args {
    /// Runs agents until it is stopped.
    ///
    /// # Errors
    /// The socket cannot be used.
    pub fn main(self) -> anyhow::Result<()> {
        logging::start(self.log_format, self.log_level);
        memory::keep_private().context("keeping this process out of core dumps")?;
        block_on(self.run())
    }

    async fn run(self) -> anyhow::Result<()> {
        let Self { listen, client_uid, at_once, agents, log_format: _, log_level: _ } = self;
        let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
        let options = agents.into_options();
        let folders: Vec<_> = options.directories.iter().map(|folder| folder.display().to_string()).collect();
        let env = Env::real(random());
        let server = AgentServer::bind(env, &listen, options, client_uid, usize::from(at_once)).await?;
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            socket = %listen.display(),
            agents = folders.join(":"),
            at_once,
            "runs fence agents"
        );
        tokio::select! {
            biased;
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = Arc::clone(&server).serve() => {}
        }
        tracing::info!("stops, and kills the agents that run");
        server.stop().await;
        Ok(())
    }
}
