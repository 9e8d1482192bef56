//! Pods that are not evicted like others.

use pod_safety_shared::model::Pod;

use super::action::{Action, Consent};
use super::fit::Needs;

/// Pods that are not evicted like others, and why.
pub(super) fn apart(
    pod: &Pod,
    needs: Option<&Needs>,
    consent: &Consent,
    owner: &str,
) -> Option<(Action, &'static str, String)> {
    let says = |action, reason, why: &str| Some((action, reason, why.to_owned()));
    let daemon = pod.controller.as_ref().filter(|controller| &*controller.kind == "DaemonSet");
    if pod.phase.is_terminal() && pod.running > 0 {
        return says(
            Action::Unsafe,
            "TerminalButRunning",
            "its phase says that it terminated, but its last report shows a running container: evicting it would remove it at once",
        );
    }
    if pod.mirror {
        return says(Action::Stay, "MirrorPod", "mirror pod of a static pod: its kubelet keeps it running");
    }
    if daemon.is_some() {
        return Some((Action::Stay, "DaemonSet", format!("{owner} would recreate it at once")));
    }
    if pod.deletion.is_some() {
        return says(Action::Ending, "Terminating", "it is terminating already");
    }
    if pod.phase.is_terminal() {
        return says(Action::Stay, "Finished", "it has terminated: none of its containers runs");
    }
    if consent.skip.contains(&(pod.key.namespace.to_string(), pod.key.name.to_string())) {
        return says(Action::Stay, "Skipped", "by --skip");
    }
    if pod.controller.is_none() && !consent.evict_unmanaged {
        let why = "it has no controller, so it would not come back: --evict-unmanaged or --skip";
        return says(Action::Blocked, "Unmanaged", why);
    }
    let needs = match needs {
        Some(needs) => needs,
        None => return says(Action::Blocked, "Unreadable", "what it needs cannot be read"),
    };
    if needs.empty_dir && !consent.delete_emptydir_data {
        let why = "the data of its emptyDir volume would be lost: --delete-emptydir-data or --skip";
        return says(Action::Blocked, "EmptyDir", why);
    }
    None
}
