//! Looking again and again: `-w`.

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args as ClapArgs;
use pod_safety_shared::clock::Env;
use pod_safety_shared::record::error_chain;

use super::clean::{self, SCREEN_ANEW};
use super::cluster::Output;
use super::{Exit, print, say};

/// How often it is looked again: a person reads for longer, and the API server lists everything each time.
const PERIOD: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, Default, ClapArgs)]
#[command(next_help_heading = "Output")]
pub(crate) struct WatchArgs {
    /// Refresh every three seconds, until Ctrl-C. Into a pipe: one line for each change
    #[arg(short, long)]
    watch: bool,
}

/// One look.
pub(crate) struct Shown {
    /// What is printed.
    pub(crate) text: String,
    /// The same in one line.
    pub(crate) line: String,
    /// How the command ends if this was all.
    pub(crate) exit: Exit,
}

impl WatchArgs {
    /// Prints what `ask` says: once, or whenever it changes. That it cannot be asked is an error at first, later it is
    /// said and asked again.
    pub(crate) async fn show(
        self,
        env: &Env,
        output: Output,
        ask: impl AsyncFn() -> anyhow::Result<Shown>,
    ) -> anyhow::Result<Exit> {
        let mut shown = ask().await?;
        if !self.watch {
            print(&shown.text)?;
            return Ok(shown.exit);
        }
        let screen = std::io::stdout().is_terminal();
        let mut last = String::new();
        // The first of a time of trouble is said: those that follow are of the same kind.
        let mut trouble = String::new();
        loop {
            let people = matches!(output, Output::Table | Output::Wide);
            let now = if people && !screen { &shown.line } else { &shown.text };
            if *now != last {
                let wall = env.clock.wall();
                let text = match (people, screen) {
                    (true, true) => format!("{SCREEN_ANEW}{wall:.0}\n\n{now}"),
                    (true, false) => format!("{wall:.0} {}\n", clean::line(now)),
                    (false, _) => now.clone(),
                };
                print(&text)?;
                last.clone_from(now);
            }
            env.sleep(PERIOD).await;
            match ask().await {
                Ok(again) => {
                    if !trouble.is_empty() {
                        say("pod-safety: the API server answers again");
                    }
                    trouble.clear();
                    shown = again;
                }
                Err(error) => {
                    let why = error_chain(error.as_ref());
                    if trouble.is_empty() {
                        say(&clean::line(&format!(
                            "pod-safety: {why}. What is shown above is outdated. Trying again"
                        )));
                    }
                    trouble = why;
                }
            }
        }
    }
}
