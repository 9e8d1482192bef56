//! `pod-safety confirm-down`: a person's word that a node is off, checked for what can be checked.

use std::io::{BufRead, IsTerminal, Write};
use std::time::Duration;

use anyhow::Context;
use clap::Args as ClapArgs;
use pod_safety_shared::authority::people::{self, Examined, PeopleError};

use super::cluster::{ConnectArgs, block_on, name, open};
use super::{Exit, clean, duration, print, say};

/// What has to be typed, and the node's name.
const PHRASE: &str = "is off";

/// At the end of `--help`.
const EXIT_CODES: &str = "Ends with 0 if it is written down, 1 after an error, 2 for wrong usage, 4 if it is refused: the \
    kubelet speaks, or what was typed was something else.";

#[derive(Debug, ClapArgs)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Args {
    /// The node
    #[arg(value_name = "NODE", value_parser = name)]
    node: String,

    /// How you know: it is kept with the evidence, and pods of the node are force deleted by it
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: String,

    /// In place of typing it: the words "NODE is off"
    #[arg(long, value_name = "WORDS")]
    confirm: Option<String>,

    /// For how long it is listened whether the kubelet speaks; by default it does each ten seconds
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration::parse, allow_hyphen_values = true)]
    listen: Duration,

    /// For how long your word releases pods, from a minute to a week: who is asked to end later waits for it anew
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = valid_for, allow_hyphen_values = true)]
    valid_for: Duration,

    #[command(flatten)]
    cluster: ConnectArgs,
}

/// What the API server takes (`FenceEvidence.spec.validSeconds`).
fn valid_for(text: &str) -> Result<Duration, String> {
    const SHORTEST: Duration = Duration::from_secs(60);
    const LONGEST: Duration = Duration::from_secs(604_800);
    match duration::parse(text)? {
        given if given < SHORTEST || given > LONGEST => Err("between 1m and 168h".to_owned()),
        given => Ok(given),
    }
}

/// A reason is a sentence that somebody may have to answer for.
pub(super) fn reason(text: &str) -> Result<String, String> {
    const LONGEST: usize = 1_024;
    match text.trim() {
        "" => Err("a reason is needed".to_owned()),
        text if text.len() > LONGEST => Err(format!("at most {LONGEST} bytes")),
        text => Ok(text.to_owned()),
    }
}

impl Args {
    pub(super) fn main(self) -> anyhow::Result<Exit> {
        refused(block_on(self.run()))
    }

    async fn run(self) -> anyhow::Result<Exit> {
        let session = open(&self.cluster.options()).await?;
        let examined = people::examine(&session.connection, &session.env, &self.node).await?;
        say(&format!(
            "listening for {}s whether the kubelet of {} speaks …",
            self.listen.as_secs(),
            self.node
        ));
        people::listen(&session.connection, &session.env, &examined, self.listen).await?;
        let by = people::whoami(&session.connection).await?;
        if !self.consents(&examined, &by)? {
            say("pod-safety: what was typed is not that; nothing was written");
            return Ok(Exit::Refused);
        }
        // Typing takes time.
        people::listen(&session.connection, &session.env, &examined, Duration::ZERO).await?;
        let (reason, valid_for) = (&self.reason, self.valid_for);
        let evidence = people::confirm(&session.connection, &examined, &by, reason, valid_for).await?;
        print(
            format!(
                "fenceevidence/{evidence} written: for {} minutes the terminating pods of {} are released, if its FencePolicy takes a person's word\n",
                valid_for.as_secs() / 60, self.node,
            )
            .as_bytes(),
        )?;
        Ok(Exit::Fine)
    }

    fn consents(&self, examined: &Examined, by: &str) -> anyhow::Result<bool> {
        let wanted = format!("{} {PHRASE}", self.node);
        if let Some(typed) = &self.confirm {
            return Ok(typed.trim() == wanted);
        }
        anyhow::ensure!(
            std::io::stdin().is_terminal(),
            "nobody can type here; give --confirm {wanted:?} if you are sure"
        );
        let heard = examined.renewed.as_deref().unwrap_or("never");
        say(&format!(
            "Node {} (UID {}, boot {}) was last heard {heard}.\nIf its processes still run, a second copy of its pods will write to the same volumes.\nMake sure that the machine is off, or that it cannot reach its storage and its clients.\nYour word is kept as {by}'s. Type: {wanted}",
            self.node,
            clean::line(&examined.node.uid),
            clean::line(&examined.node.boot_id),
            by = clean::line(by),
        ));
        std::io::stderr().flush().context("writing to the terminal")?;
        let mut typed = String::new();
        std::io::stdin().lock().read_line(&mut typed).context("reading from the terminal")?;
        Ok(typed.trim() == wanted)
    }
}

/// What is not safe has a code of its own.
pub(super) fn refused(done: anyhow::Result<Exit>) -> anyhow::Result<Exit> {
    let Err(error) = &done else { return done };
    match error.downcast_ref::<PeopleError>() {
        Some(PeopleError::Ready(_) | PeopleError::Heard(_)) => {
            say(&clean::line(&format!("pod-safety: {error}")));
            Ok(Exit::Refused)
        }
        _ => done,
    }
}
