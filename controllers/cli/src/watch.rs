//! Repeated output: `-w`.

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args as ClapArgs;
use pod_safety_shared::clock::Env;
use pod_safety_shared::record::error_chain;

use super::cluster::Output;
use super::sanitize::{self, CLEAR_SCREEN};
use super::{Exit, print, print_stderr};

/// How often the output is refreshed: an operator reads for longer, and each refresh lists everything.
const PERIOD: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, Default, ClapArgs)]
#[command(next_help_heading = "Output")]
pub(crate) struct WatchArgs {
    /// Refresh every three seconds, until Ctrl-C. Into a pipe: one line for each change
    #[arg(short, long)]
    watch: bool,
}

/// One output.
pub(crate) struct Rendered {
    /// The text.
    pub(crate) text: String,
    /// The same in one line.
    pub(crate) line: String,
    /// The exit of the command if this is its last output.
    pub(crate) exit: Exit,
}

impl WatchArgs {
    /// Prints the output of `render`: once, or whenever it changes. An error at first ends the command; later it is
    /// printed and retried.
    pub(crate) async fn render_loop(
        self,
        env: &Env,
        output: Output,
        render: impl AsyncFn() -> anyhow::Result<Rendered>,
    ) -> anyhow::Result<Exit> {
        let mut shown = render().await?;
        if !self.watch {
            print(&shown.text)?;
            return Ok(shown.exit);
        }
        let screen = std::io::stdout().is_terminal();
        let mut last = String::new();
        // Only the first error in a row is printed: those that follow are of the same kind.
        let mut trouble = String::new();
        loop {
            let is_text = matches!(output, Output::Table | Output::Wide);
            let now = if is_text && !screen { &shown.line } else { &shown.text };
            if *now != last {
                let wall = env.clock.wall();
                let text = match (is_text, screen) {
                    (true, true) => format!("{CLEAR_SCREEN}{wall:.0}\n\n{now}"),
                    (true, false) => format!("{wall:.0} {}\n", sanitize::line(now)),
                    (false, _) => now.clone(),
                };
                print(&text)?;
                last.clone_from(now);
            }
            env.sleep(PERIOD).await;
            match render().await {
                Ok(again) => {
                    if !trouble.is_empty() {
                        print_stderr("pod-safety: the API server answers again");
                    }
                    trouble.clear();
                    shown = again;
                }
                Err(error) => {
                    let why = error_chain(error.as_ref());
                    if trouble.is_empty() {
                        print_stderr(&sanitize::line(&format!(
                            "pod-safety: {why}. What is shown above is outdated. Trying again"
                        )));
                    }
                    trouble = why;
                }
            }
        }
    }
}
