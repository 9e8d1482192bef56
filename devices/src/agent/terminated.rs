//! Whether a provider reports that an instance is terminated. From the sources of fence-agents 4.12.1.
//!
//! `status` fails with the same message for an instance that is terminated, one that changes its state, and one that
//! never existed. So the agent is called for the list of terminated instances. Only a line with exactly this instance
//! counts. A list without it, an error, and no answer show nothing: missing permissions, a wrong region and an
//! instance of another account look the same.
//!
//! | | agent | what its provider reports for a terminated instance |
//! |---|---|
//! | | `fence_aws` | it is listed for about an hour, with this state |
//! | `fence_azure_arm`, `fence_gce`, `fence_openstack` | that it does not exist: an error, so nothing follows from it |

use pod_safety_transport::{Answer, Identity, Order, Power};

use super::run_result::RunResult;

/// The message of the agents' library for a state that is neither on nor off, or is unknown.
const IN_DOUBT: &str = "unable to obtain correct plug status or plug is not available";

/// The query, and the instance that it is about.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ListQuery<'a> {
    /// The filter that selects terminated instances.
    pub(super) filter: &'static str,
    instance: &'a str,
}

/// The query for this agent, if there is one.
pub(super) fn list_query<'a>(agent: &str, order: &'a Order) -> Option<ListQuery<'a>> {
    let filter = match agent {
        "fence_aws" => "instance-state-name=terminated",
        _ => return None,
    };
    Some(ListQuery { filter, instance: order.parameters.get("plug")?.reveal() })
}

/// Whether a failure can be that of a terminated instance.
pub(super) fn may_be_terminated(output: &str) -> bool {
    output.to_lowercase().contains(IN_DOUBT)
}

impl ListQuery<'_> {
    /// `None`: there is no complete list, or the instance is not in it.
    pub(super) fn find_in_list(&self, result: &RunResult) -> Option<Answer> {
        let Self { instance, .. } = self;
        let listed = result.code == Some(0) && !result.stdout.is_truncated;
        let list = String::from_utf8_lossy(&result.stdout.text);
        // The ID, the default separator of the agents, and no alias.
        let is_own_line = |line: &str| line.trim_end().strip_suffix(',') == Some(instance);
        (listed && !instance.is_empty() && list.lines().any(is_own_line))
            .then(|| Answer::new(Power::Gone, Identity::Unknown, format!("instance {instance} is terminated")))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pod_safety_clock::Mono;
    use pod_safety_transport::Act;

    use super::super::run_result::CapturedOutput;
    use super::super::tests::{order, plain};
    use super::*;

    const MINE: &str = "i-0123456789abcdef0";

    fn run_result(code: i32, stdout: &str, cut: bool) -> RunResult {
        let text = stdout.as_bytes().to_vec().into();
        let stdout = CapturedOutput { text, is_truncated: cut };
        RunResult {
            code: Some(code),
            signal: None,
            stdout,
            stderr: CapturedOutput::default(),
            killed_leftovers: 0,
            input_unread_until: Mono::default(),
        }
    }

    #[test]
    fn an_instance_is_terminated_only_if_a_whole_list_has_a_line_that_is_its_id() {
        let mut order = order(Act::Look, Duration::from_secs(20));
        order.parameters = plain(&[("plug", MINE)]);
        let question = list_query("fence_aws", &order).unwrap();
        assert_eq!(question.filter.split_once('='), Some(("instance-state-name", "terminated")));
        for (what, ended, is_gone) in [
            ("alone", run_result(0, "i-0123456789abcdef0,\n", false), true),
            ("among others", run_result(0, "i-0aaaaaaaaaaaaaaa0,\ni-0123456789abcdef0,\n", false), true),
            ("nothing is listed", run_result(0, "", false), false),
            ("others are", run_result(0, "i-0aaaaaaaaaaaaaaa0,\n", false), false),
            ("its id begins another", run_result(0, "i-0123456789abcdef01,\n", false), false),
            ("its id ends another", run_result(0, "xi-0123456789abcdef0,\n", false), false),
            ("in a sentence", run_result(0, "no i-0123456789abcdef0,\n", false), false),
            ("with an alias", run_result(0, "i-0123456789abcdef0,w1\n", false), false),
            ("without the separator", run_result(0, "i-0123456789abcdef0\n", false), false),
            ("the agent failed", run_result(1, "i-0123456789abcdef0,\n", false), false),
            ("the list was cut off", run_result(0, "i-0123456789abcdef0,\n", true), false),
        ] {
            let answer = question.find_in_list(&ended);
            assert_eq!(answer.is_some_and(|answer| answer.power == Power::Gone), is_gone, "{what}");
        }
    }

    #[test]
    fn other_agents_and_orders_without_a_plug_have_no_list_query() {
        let mut order = order(Act::Look, Duration::from_secs(20));
        assert_eq!(list_query("fence_aws", &order), None, "it has no plug");
        order.parameters = plain(&[("plug", MINE)]);
        assert_eq!(list_query("fence_gce", &order), None);
        order.parameters = plain(&[("plug", "")]);
        let question = list_query("fence_aws", &order).unwrap();
        assert_eq!(question.find_in_list(&run_result(0, ",\n", false)), None, "an empty name names nothing");
    }

    #[test]
    fn only_a_state_that_is_neither_on_nor_off_may_be_terminated() {
        assert!(may_be_terminated("ERROR: Failed: Unable to obtain correct plug status or plug is not available"));
        assert!(!may_be_terminated("Failed: Incorrect Access Key or Secret Key."));
    }
}
