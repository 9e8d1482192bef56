//! `pod-safety confirm-down`: an operator's confirmation that a node is off, checked as far as it can be.

use std::time::Duration;

use clap::Args as ClapArgs;
use pod_safety_print::Paint;
use pod_safety_shared::api::{Grade, Incarnation};
use pod_safety_shared::authority::operator_requests::{self, Confirmation, Examined, OperatorError};
use pod_safety_shared::model::BootId;

use pod_safety_explain::ONLY_IF_SEEN;

use super::cluster::{ConnectArgs, Session, name, node_name};
use super::consent::{check_confirm_flag, prompt};
use super::explain::missing_leader;
use super::impact::Impact;
use super::{Exit, duration, pluralize, print, print_stderr, sanitize};

/// The phrase to type, after the node's name.
const PHRASE: &str = "is off";

#[derive(Debug, ClapArgs)]
#[command(after_help = crate::exit::help("confirm-down"))]
pub struct Args {
    /// The node
    #[arg(value_name = "NODE", value_parser = node_name)]
    node: String,

    /// How you know that the machine is off: recorded in the FenceEvidence by which the pods of the node are force deleted
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: String,

    /// The confirmation, instead of typing it: "NODE is off"; with --uid "the old NODE is off"
    #[arg(long, value_name = "WORDS")]
    confirm: Option<String>,

    /// How long to watch for kubelet heartbeats (sent every 10s) before the confirmation is accepted
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration::parse, allow_hyphen_values = true)]
    listen: Duration,

    /// How long the confirmation stays valid: 1m to 168h. Pods deleted after that need a new one
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = valid_for, allow_hyphen_values = true)]
    valid_for: Duration,

    /// Switch the machine on again when its pods are gone, if its FencePolicy says recovery: PowerOn. Without
    /// this it stays off until someone starts it
    #[arg(long)]
    power_on: bool,

    /// Confirm a former boot of a node, where another Node with another boot has the name now: its UID. The explanation of a held
    /// volume shows both values. It frees volumes which that boot took, and changes nothing for the present boot
    #[arg(long, value_name = "UID", requires = "boot", conflicts_with = "power_on", value_parser = name)]
    uid: Option<String>,

    /// The ID of that former boot
    #[arg(long, value_name = "BOOT", requires = "uid", value_parser = boot)]
    boot: Option<String>,

    #[command(flatten)]
    cluster: ConnectArgs,
}

/// Parses a boot ID.
fn boot(text: &str) -> Result<String, String> {
    match BootId::from(text).is_unknown() {
        true => Err("a boot ID is a UUID in lower case, such as the third part of a volume Lease's holder".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// Parses a validity that the API server accepts (`FenceEvidence.spec.validSeconds`).
fn valid_for(text: &str) -> Result<Duration, String> {
    const SHORTEST: Duration = Duration::from_mins(1);
    const LONGEST: Duration = Duration::from_hours(168);
    duration::between(text, SHORTEST, LONGEST, "allowed is 1m to 168h, written such as 90m or 24h")
}

/// Parses a reason: it must be a sentence, because an operator may have to justify it later.
pub(crate) fn reason(text: &str) -> Result<String, String> {
    const LONGEST: usize = 1_024;
    match text.trim() {
        "" => Err("a reason is needed".to_owned()),
        text if text.len() > LONGEST => Err(format!("at most {LONGEST} bytes")),
        text => Ok(text.to_owned()),
    }
}

impl Args {
    pub(crate) fn main(self) -> anyhow::Result<Exit> {
        if let Some(exit) = check_confirm_flag(&self.phrase(), self.confirm.as_deref())? {
            return Ok(exit);
        }
        let cluster = self.cluster.clone();
        map_refusal(cluster.with_session("confirm-down", async |session| self.run(session).await))
    }

    /// The earlier incarnation to confirm, if one is given.
    fn former(&self) -> Option<Incarnation> {
        let (name, uid, boot_id) = (self.node.clone(), self.uid.clone()?, self.boot.clone()?);
        Some(Incarnation { name, uid, boot_id })
    }

    async fn run_former(self, session: Session, former: Incarnation) -> anyhow::Result<Exit> {
        let Session { connection, env, .. } = &session;
        let examined = operator_requests::examine_former(connection, env, former.clone()).await?;
        operator_requests::check_may_confirm(connection).await?;
        let by = operator_requests::whoami(connection).await?;
        if !prompt(&self.phrase(), self.confirm.as_deref(), || self.former_page(&former, &by))? {
            return Ok(Exit::Refused);
        }
        // Typing takes time, so the state is checked again.
        operator_requests::examine_former(connection, env, former).await?;
        let confirmation = Confirmation { by: &by, reason: &self.reason, valid_for: self.valid_for, power_on: false };
        let evidence = operator_requests::confirm(connection, &examined, confirmation).await?;
        let (node, leader) = (&self.node, missing_leader(&session).await);
        print(&format!(
            "fenceevidence/{evidence} written: volumes which that boot of {node} took are free now, unless the FencePolicy of {node} says minimumEvidence: Verified. Its present boot is as it was.\n{leader}"
        ))?;
        Ok(Exit::Fine)
    }

    fn former_page(&self, former: &Incarnation, by: &str) -> String {
        format!(
            "\nYou confirm that a former boot of node {} has ended: UID {}, boot {}. Recorded as {}, with your reason: {}\n\nWhat follows:\n- The volumes which that boot took may be attached to other nodes.\n- If the old machine still runs in that boot, two nodes write to the same volumes.\n- Nothing follows for the present Node {0}.\n\n{ONLY_IF_SEEN}:",
            self.node,
            sanitize::line(&former.uid),
            sanitize::line(&former.boot_id),
            sanitize::line(by),
            self.reason,
        )
    }

    async fn run(self, session: Session) -> anyhow::Result<Exit> {
        session.announce();
        if let Some(former) = self.former() {
            return self.run_former(session, former).await;
        }
        let examined = operator_requests::examine(&session.connection, &session.env, &self.node).await?;
        if examined.ready {
            return Err(OperatorError::Ready(self.node).into());
        }
        operator_requests::check_may_confirm(&session.connection).await?;
        print_stderr(&format!(
            "watching for {}s whether the kubelet of {} reports …",
            self.listen.as_secs(),
            self.node
        ));
        operator_requests::confirm_not_reporting(&session.connection, &session.env, &examined, self.listen).await?;
        let by = operator_requests::whoami(&session.connection).await?;
        // A script needs no page.
        let page = match &self.confirm {
            Some(_) => String::new(),
            None => self.page(&session, &examined, &by).await?,
        };
        if !prompt(&self.phrase(), self.confirm.as_deref(), || page)? {
            return Ok(Exit::Refused);
        }
        // Typing takes time, so the state is checked again.
        operator_requests::confirm_not_reporting(&session.connection, &session.env, &examined, Duration::ZERO).await?;
        let Self { reason, valid_for, power_on, .. } = &self;
        let word = Confirmation { by: &by, reason, valid_for: *valid_for, power_on: *power_on };
        let evidence = operator_requests::confirm(&session.connection, &examined, word).await?;
        let minutes = valid_for.as_secs() / 60;
        let after = if *power_on {
            "It may be switched on again, if its FencePolicy says recovery: PowerOn."
        } else {
            "It stays off until someone starts it."
        };
        let (node, leader) = (&self.node, missing_leader(&session).await);
        print(&format!(
            "fenceevidence/{evidence} written: for the next {minutes} minutes the terminating pods of {node} are force deleted, unless its FencePolicy says minimumEvidence: Verified. {after}\n{leader}"
        ))?;
        Ok(Exit::Fine)
    }

    fn phrase(&self) -> String {
        let old = if self.uid.is_some() { "the old " } else { "" };
        format!("{old}{} {PHRASE}", self.node)
    }

    /// The page that an operator reads before typing the phrase.
    async fn page(&self, session: &Session, examined: &Examined, by: &str) -> anyhow::Result<String> {
        let impact = Impact::read(session, examined, Paint::plain()).await?;
        Ok(format!("{}\n{}", self.describe_confirmation(examined, by), self.describe_consequences(&impact)))
    }

    fn describe_confirmation(&self, examined: &Examined, by: &str) -> String {
        let Examined { node, renewed, .. } = examined;
        let last_report = renewed.as_deref().unwrap_or("never");
        format!(
            "\nYou confirm that node {} is off.\nLast heartbeat: {last_report}. Boot {}, UID {}. Recorded as {by}, with your reason: {}\n",
            self.node,
            sanitize::line(&node.boot_id),
            sanitize::line(&node.uid),
            self.reason,
            last_report = sanitize::line(last_report),
            by = sanitize::line(by),
        )
    }

    fn describe_consequences(&self, impact: &Impact) -> String {
        let (node, minutes) = (&self.node, self.valid_for.as_secs() / 60);
        let is_taken = impact.policy.as_ref().is_none_or(|(_, policy)| policy.minimum_evidence != Grade::Verified);
        let released = match is_taken {
            true => format!(
                "{} terminating now; for {minutes} minutes such pods are force deleted, and their volumes may be attached to other nodes.",
                pluralize(impact.terminating, "pod")
            ),
            false => "no pod is force deleted: the FencePolicy says minimumEvidence: Verified.".to_owned(),
        };
        let power = match (self.power_on, impact.is_powered_on_again()) {
            (true, true) => {
                "IT IS SWITCHED ON AGAIN when its pods are gone (--power-on). Make sure that nobody is working on it."
            }
            (true, false) => "The machine stays off: its FencePolicy does not say recovery: PowerOn.",
            (false, _) => "The machine stays off until someone starts it (--power-on would let pod-safety do that).",
        };
        format!(
            "{}\nWhat follows:\n- {released}\n- If its processes still run, a second copy of its pods writes to the same volumes.\n- {power}\n- To keep pod-safety from fencing or starting it while you work on it: pod-safety pause {node} --reason TEXT\n\n{}\n{ONLY_IF_SEEN}:",
            impact.page, impact.power_check,
        )
    }
}

/// What is not safe has an exit code of its own.
pub(crate) fn map_refusal(done: anyhow::Result<Exit>) -> anyhow::Result<Exit> {
    let Err(error) = &done else { return done };
    match error.downcast_ref::<OperatorError>() {
        Some(
            OperatorError::Ready(_)
            | OperatorError::LeaseRenewed(_)
            | OperatorError::PresentIncarnation(_)
            | OperatorError::NotBooted(_),
        ) => {
            print_stderr(&sanitize::line(&format!("pod-safety: {error}")));
            Ok(Exit::Refused)
        }
        _ => done,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clap::Parser as _;
    use parking_lot::Mutex;
    use pod_safety_shared::api::FencePolicySpec;
    use pod_safety_shared::testing::AnswerFn;
    use serde_json::{Value, json};

    use super::*;
    use crate::invocation::commands;
    use crate::untrusted_text::{objects, run_command, server};

    #[derive(clap::Parser)]
    struct Alone {
        #[command(flatten)]
        args: Args,
    }

    fn follows(flags: &str, policy: serde_json::Value) -> String {
        let words = format!("x n --reason=r {flags}");
        let Alone { args } = Alone::try_parse_from(words.split_whitespace()).unwrap();
        let spec: FencePolicySpec = serde_json::from_value(policy).unwrap();
        let impact = Impact {
            page: "2 pods on n\n".to_owned(),
            terminating: 1,
            policy: Some(("p".to_owned(), spec)),
            asks_a_person: false,
            power_check: "Look.".to_owned(),
        };
        args.describe_consequences(&impact)
    }

    /// The exit code, and the FenceEvidences that were written; `renews`: its kubelet reports after it was watched.
    fn confirm(renews: bool) -> (u8, Vec<Value>) {
        let cluster = server(objects(), "v1.37.2".to_owned(), false);
        let written = Arc::new(Mutex::new(Vec::new()));
        let (seen, is_watched) = (Arc::clone(&written), Mutex::new(false));
        let respond: Arc<AnswerFn> = Arc::new(move |method, path, body| {
            let (code, mut answer) = cluster(method, path, body);
            *is_watched.lock() |= path.ends_with("/selfsubjectreviews");
            if method == "POST" && path.ends_with("/fenceevidences") {
                seen.lock().push(serde_json::from_slice::<Value>(body).unwrap()["spec"].clone());
            }
            if renews && *is_watched.lock() && path.contains("/leases/worker-b1") {
                answer["spec"]["renewTime"] = json!("2026-11-21T10:23:04.000000Z");
            }
            (code, answer)
        });
        let line =
            "confirm-down worker-b1 --reason r --listen 1s --valid-for 2h --power-on --confirm 'worker-b1 is off'";
        let (code, _) = run_command(line, &respond);
        (code, std::mem::take(&mut *written.lock()))
    }

    #[test]
    fn a_confirmation_is_written_with_its_validity_unless_the_kubelet_reports_meanwhile() {
        let (code, written) = confirm(false);
        let recorded = (&written[0]["validSeconds"], &written[0]["powerOn"]);
        assert_eq!((code, recorded), (0, (&json!(7_200), &json!(true))));
        assert_eq!(confirm(true), (4, Vec::new()));
    }

    /// The deletion of its pods was promised where nothing ran that would delete them.
    #[test]
    fn bug_confirm_down_and_fence_did_not_name_a_missing_leader() {
        for (renewed, is_missing) in [("2001-01-01T00:00:00.000000Z", true), ("2999-01-01T00:00:00.000000Z", false)] {
            let mut all = objects();
            let leases = all.get_mut("/apis/coordination.k8s.io/v1/leases").unwrap();
            let leader = leases.iter_mut().find(|lease| lease["metadata"]["name"] == "pod-safety").unwrap();
            leader["spec"]["renewTime"] = json!(renewed);
            let cluster = server(all, "v1.37.2".to_owned(), false);
            for line in [
                "confirm-down worker-b1 --reason r --listen 1s --confirm 'worker-b1 is off'",
                "fence worker-b1 --reason r --confirm 'switch off worker-b1'",
            ] {
                let (code, text) = run_command(line, &cluster);
                let named = text.contains("\nNo leader: nothing happens until one runs (pod-safety doctor).\n");
                assert_eq!((code, named), (0, is_missing), "{text}");
            }
        }
    }

    /// A node whose cable had been pulled was refused with the claim that its kubelet reports.
    #[test]
    fn bug_the_refusal_for_a_ready_node_claimed_that_its_kubelet_reports() {
        let line = "confirm-down worker-a1 --reason r --confirm 'worker-a1 is off'";
        let (code, text) = run_command(line, &server(objects(), "v1.37.2".to_owned(), false));
        let why = "node worker-a1 is still marked Ready. If it is off, try again in a minute. Nothing was changed";
        assert!(code == 4 && text.contains(why), "{code}: {text}");
    }

    /// Help said "from 1m to 168h", the error "1ms to 24h", and a day was refused. The CRD has the seconds.
    #[test]
    fn bug_help_error_and_api_had_different_limits_for_the_validity_of_a_confirmation() {
        let command = <Alone as clap::CommandFactory>::command();
        let help = command.get_arguments().find(|arg| arg.get_long() == Some("valid-for")).unwrap().get_help();
        assert!(help.unwrap().to_string().contains("1m to 168h"));
        for (text, seconds) in [("1m", 60), ("25h", 90_000), ("168h", 604_800)] {
            assert_eq!(valid_for(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["59s", "169h", "-5m", "soon"] {
            assert!(valid_for(text).unwrap_err().contains("allowed is 1m to 168h"), "{text}");
        }
        let crds = serde_json::to_value(pod_safety_shared::api::crds()).unwrap().to_string();
        let bounds = crds.split("\"validSeconds\":").nth(1).unwrap().split('}').next().unwrap();
        assert!(bounds.contains("\"maximum\":604800") && bounds.contains("\"minimum\":60"), "{bounds}");
    }

    /// The prompt named a UID and a boot ID, and neither the pods nor that the machine would be switched on again.
    #[test]
    fn bug_the_prompt_did_not_show_the_effects_of_a_confirmation() {
        let levels = json!([{ "name": "l", "devices": [{ "namespace": "f", "name": "d" }] }]);
        let on = json!({ "levels": levels, "recovery": "PowerOn" });
        for (flags, policy, expected) in [
            ("", on.clone(), "The machine stays off until someone starts it"),
            ("--power-on", on, "IT IS SWITCHED ON AGAIN"),
            ("--power-on", json!({ "levels": levels }), "does not say recovery: PowerOn"),
            ("", json!({ "levels": levels, "minimumEvidence": "Verified" }), "no pod is force deleted"),
        ] {
            let is_released = !expected.contains("no pod");
            let text = follows(flags, policy);
            assert_eq!(text.contains("1 pod terminating now; for 60 minutes such pods"), is_released, "{text}");
            for expected in
                [expected, "2 pods on n", "pod-safety pause n --reason TEXT", "Look.\nOnly if you or a person"]
            {
                assert!(text.contains(expected), "{flags}: {expected}: not in\n{text}");
            }
            for columns in [80, 100] {
                let narrow = Paint::plain().with_columns(columns, commands()).wrap_page(&text);
                assert!(narrow.contains("pod-safety pause n --reason TEXT"), "{narrow}");
                assert!(narrow.lines().all(|line| line.chars().count() <= columns), "{narrow}");
            }
        }
    }
}
