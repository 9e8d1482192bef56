//! `pod-safety maintain`: a node is drained for maintenance, optionally switched off, and brought back with `--finish`.
//!
//! The state is only in the cluster, so a command that was killed can be run again: the cordon, the conditions of
//! KEP-5683, the pause of fencing, and with `--power-off` a NodeFence whose machine is kept off.
//!
//! | file | subject |
//! |---|---|
//! | `begin` | from the plan to a node that is ready for maintenance |
//! | `finish` | back into service |

mod begin;
mod finish;

use std::time::Duration;

use clap::Args as ClapArgs;
use pod_safety_print::{Color, Paint};
use pod_safety_shared::api::{Incarnation, Pause};
use pod_safety_shared::authority::operator_requests::{self, LifecycleCondition, Scope};

use super::cluster::{ConnectArgs, Session, node_name};
use super::confirm_down::{map_refusal, reason};
use super::consent::check_confirm_flag;
use super::drain::ConsentArgs;
use super::terminal;
use super::{Exit, duration};

/// The prefix of the reason of a pause by this command: other pauses are not changed.
const PAUSED_FOR: &str = "maintenance: ";

#[derive(Debug, ClapArgs)]
#[command(after_help = crate::exit::help("maintain"))]
pub struct Args {
    /// The node
    #[arg(value_name = "NODE", value_parser = node_name)]
    node: String,

    /// Why: recorded with your name and the time
    #[arg(long, value_name = "TEXT", value_parser = reason, required_unless_present = "dry_run")]
    reason: Option<String>,

    /// Only show the plan: nothing is changed
    #[arg(long, conflicts_with = "finish")]
    dry_run: bool,

    /// Switch the machine off by its FencePolicy when the node is empty, and keep it off
    #[arg(long, conflicts_with = "finish")]
    power_off: bool,

    /// With --power-off: the confirmation, instead of typing it: "switch off NODE"
    #[arg(long, value_name = "WORDS", requires = "power_off")]
    confirm: Option<String>,

    /// The work is done: switch the machine on if it was switched off, wait until the node is Ready, and uncordon it
    #[arg(long)]
    finish: bool,

    #[command(flatten)]
    consent: ConsentArgs,

    /// Exit with code 5 after this time
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true, default_value = "1h")]
    timeout: Duration,

    /// When to use colours
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    color: Color,

    #[command(flatten)]
    cluster: ConnectArgs,
}

/// What both halves share.
struct Maintenance {
    session: Session,
    args: Args,
    paint: Paint,
    /// The operator and the reason, as the message of conditions.
    message: String,
    by: String,
    reason: String,
}

impl Args {
    pub(super) fn main(self) -> anyhow::Result<Exit> {
        if self.power_off
            && !self.dry_run
            && let Some(exit) = check_confirm_flag(&self.phrase(), self.confirm.as_deref())?
        {
            return Ok(exit);
        }
        let cluster = self.cluster.clone();
        map_refusal(cluster.with_session("maintain", async |session| self.run(session).await))
    }

    /// The phrase to type before the machine is switched off.
    fn phrase(&self) -> String {
        format!("switch off {}", self.node)
    }

    async fn run(self, session: Session) -> anyhow::Result<Exit> {
        session.announce();
        let by = operator_requests::whoami(&session.connection).await?;
        let reason = self.reason.clone().unwrap_or_default();
        let (paint, message) = (terminal::for_stdout(self.color), format!("{reason} (by {by})"));
        let work = Maintenance { session, args: self, paint, message, by, reason };
        if work.args.finish { finish::finish(&work).await } else { begin::begin(&work).await }
    }
}

impl Maintenance {
    /// Sets the maintenance conditions of the node.
    async fn set_conditions(
        &self,
        node: &Incarnation,
        now: &[(&'static str, bool, &'static str)],
    ) -> anyhow::Result<()> {
        let conditions: Vec<_> = now
            .iter()
            .map(|(kind, holds, reason)| LifecycleCondition { kind, is_true: *holds, reason, message: &self.message })
            .collect();
        let Session { connection, env } = &self.session;
        Ok(operator_requests::write_conditions(connection, node, env.clock.wall(), &conditions).await?)
    }

    fn scope(&self) -> Scope {
        Scope::Node(self.args.node.clone())
    }

    /// The reason with its author and time.
    fn signed(&self, reason: String) -> Pause {
        Pause { reason, by: Some((self.by.clone(), self.session.env.clock.wall())) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clap::Parser as _;
    use parking_lot::Mutex;
    use pod_safety_shared::testing::AnswerFn;
    use serde_json::json;

    use crate::Cli;
    use crate::untrusted_text::{objects, run_command, server};

    #[test]
    fn only_a_node_whose_incident_keeps_it_off_and_is_not_over_is_not_drained_again() {
        for (keep_off, phase, code) in [(true, "Fencing", 5), (false, "Fencing", 3), (true, "Done", 3)] {
            let mut all = objects();
            let fence = &mut all.get_mut("/apis/pod-safety.dev/v1alpha1/nodefences").unwrap()[0];
            (fence["spec"]["keepOff"], fence["status"]["phase"]) = (json!(keep_off), json!(phase));
            let line = "maintain worker-a1 --reason r --power-off --timeout 1s --confirm 'switch off worker-a1'";
            let (ended, text) = run_command(line, &server(all, "v1".to_owned(), false));
            assert_eq!(ended, code, "{keep_off} {phase}: {text}");
        }
    }

    /// They evicted pods hours after the node was back in service.
    #[test]
    fn bug_requests_of_an_unfinished_drain_outlived_the_maintenance() {
        let mut all = objects();
        let request = &mut all.get_mut("/apis/lifecycle.k8s.io/v1alpha1/evictionrequests").unwrap()[0];
        request["status"] = json!({});
        let node = &mut all.get_mut("/api/v1/nodes").unwrap()[0];
        node["spec"]["unschedulable"] = json!(true);
        let writes = Arc::new(Mutex::new(Vec::new()));
        let (answer, log) = (server(all, "v1".to_owned(), false), Arc::clone(&writes));
        let answer: Arc<AnswerFn> = Arc::new(move |method, path, body| {
            if method != "GET" {
                log.lock().push(format!("{method} {}", path.rsplit('/').next().unwrap_or_default()));
            }
            answer(method, path, body)
        });
        let (code, text) = run_command("maintain worker-a1 --reason r --finish", &answer);
        assert!(
            code == 0 && text.contains("1 EvictionRequest withdrawn and deleted: shop/orders-0\n"),
            "{code}: {text}"
        );
        let name = "pod-safety-drain-uid-orders-0";
        let expected = [format!("PATCH {name}"), format!("DELETE {name}"), "PATCH worker-a1".to_owned()];
        assert!(writes.lock().ends_with(&expected), "{:?}", writes.lock());
    }

    #[test]
    fn bug_the_api_server_was_read_before_a_wrong_confirmation_was_rejected() {
        let unread: Arc<AnswerFn> = Arc::new(|method, path, _| panic!("{method} {path}"));
        let (code, text) = run_command("maintain worker-a1 --reason r --power-off --confirm wrong", &unread);
        assert!(code == 4 && text.contains("it is \"switch off worker-a1\""), "{code}: {text}");
    }

    #[test]
    fn maintain_takes_one_half_at_a_time_with_a_reason() {
        for (args, right) in [
            ("maintain n --reason=x", true),
            ("maintain n --reason=x --power-off --confirm=y", true),
            ("maintain n --dry-run --power-off", true),
            ("maintain n --finish --reason=x", true),
            ("maintain n", false),
            ("maintain n --finish", false),
            ("maintain n --finish --reason=x --power-off", false),
            ("maintain n --finish --reason=x --dry-run", false),
            ("maintain n --reason=x --confirm=y", false),
        ] {
            let parsed = Cli::try_parse_from(std::iter::once("pod-safety").chain(args.split(' ')));
            assert_eq!(parsed.is_ok(), right, "{args}: {parsed:?}");
        }
    }
}
