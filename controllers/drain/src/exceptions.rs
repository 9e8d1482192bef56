//! Pods that are not evicted like other pods.

use pod_safety_shared::model::{Pod, Uid};

use super::action::{Action, Consent};
use super::cluster::{Cluster, DaemonSet};
use super::fit::Needs;

type Exception = Option<(Action, &'static str, String)>;

fn exception(action: Action, reason: &'static str, why: &str) -> Exception {
    Some((action, reason, why.to_owned()))
}

/// The exception for a pod, and its reason.
pub(super) fn find_exception(pod: &Pod, cluster: &Cluster<'_>, consent: &Consent, owner: &str) -> Exception {
    if consent.skip.contains(&(pod.key.namespace.to_string(), pod.key.name.to_string())) {
        return exception(Action::Stay, "Skipped", "by --skip");
    }
    if pod.phase.is_terminal() && pod.running_containers > 0 {
        return exception(
            Action::Unsafe,
            "TerminalButRunning",
            "its phase says that it terminated, but its last report shows a running container: evicting it would remove it at once",
        );
    }
    if pod.mirror {
        return exception(Action::Stay, "MirrorPod", "mirror pod of a static pod: its kubelet keeps it running");
    }
    if pod.deletion.is_some() {
        return match daemon_set_exception(pod, cluster, owner) {
            Some((Action::Stay, reason, why)) => Some((Action::Stay, reason, why)),
            _ => exception(Action::Ending, "Terminating", "it is terminating already"),
        };
    }
    if pod.phase.is_terminal() {
        return exception(Action::Stay, "Finished", "it has terminated: none of its containers runs");
    }
    match daemon_set_exception(pod, cluster, owner) {
        Some((Action::NeedsConsent, ..)) if consent.evict_unmanaged => {}
        Some(apart) => return Some(apart),
        None => {}
    }
    if pod.controller.is_none() && !consent.evict_unmanaged {
        let why = "it has no controller, so it would not come back: --evict-unmanaged or --skip";
        return exception(Action::NeedsConsent, "Unmanaged", why);
    }
    data_loss_exception(cluster.needs.get(pod.uid()), consent)
}

/// As with kubectl, a pod of a DaemonSet stays. It counts as one only if its DaemonSet exists.
fn daemon_set_exception(pod: &Pod, cluster: &Cluster<'_>, owner: &str) -> Exception {
    let controller = pod.controller.as_ref().filter(|controller| controller.is_daemon_set())?;
    match lookup_daemon_set(cluster, &controller.uid) {
        DaemonSet::Exists => exception(Action::Stay, "DaemonSet", &format!("{owner} would recreate it at once")),
        DaemonSet::Absent => {
            let why = format!("{owner} does not exist, so it would not come back: --evict-unmanaged or --skip");
            exception(Action::NeedsConsent, "Unmanaged", &why)
        }
        DaemonSet::Unread(why) => {
            let why = format!("whether {owner} would recreate it is not known: {why}");
            exception(Action::Stay, "DaemonSetUnread", &why)
        }
    }
}

fn lookup_daemon_set(cluster: &Cluster<'_>, uid: &Uid) -> DaemonSet {
    let unread = || DaemonSet::Unread("it was not read".to_owned());
    cluster.daemon_sets.get(uid).cloned().unwrap_or_else(unread)
}

/// The exception for a pod whose data would be lost with it, or for which that is not known.
fn data_loss_exception(needs: Option<&Needs>, consent: &Consent) -> Exception {
    let Some(needs) = needs else {
        return exception(Action::NeedsConsent, "Unreadable", "what it needs cannot be read: --skip");
    };
    if needs.empty_dir && !consent.delete_emptydir_data {
        let why = "the data of its emptyDir volume would be lost: --delete-emptydir-data or --skip";
        return exception(Action::NeedsConsent, "EmptyDir", why);
    }
    None
}
