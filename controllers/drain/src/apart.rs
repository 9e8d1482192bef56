//! Pods that are not evicted like others.

use pod_safety_shared::model::{Pod, Uid};

use super::action::{Action, Consent};
use super::cluster::{Cluster, DaemonSet};
use super::fit::Needs;

type Apart = Option<(Action, &'static str, String)>;

fn says(action: Action, reason: &'static str, why: &str) -> Apart {
    Some((action, reason, why.to_owned()))
}

/// Pods that are not evicted like others, and why.
pub(super) fn apart(pod: &Pod, cluster: &Cluster<'_>, consent: &Consent, owner: &str) -> Apart {
    if consent.skip.contains(&(pod.key.namespace.to_string(), pod.key.name.to_string())) {
        return says(Action::Stay, "Skipped", "by --skip");
    }
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
    if pod.deletion.is_some() {
        return match daemon_set(pod, cluster, owner) {
            Some((Action::Stay, reason, why)) => Some((Action::Stay, reason, why)),
            _ => says(Action::Ending, "Terminating", "it is terminating already"),
        };
    }
    if pod.phase.is_terminal() {
        return says(Action::Stay, "Finished", "it has terminated: none of its containers runs");
    }
    match daemon_set(pod, cluster, owner) {
        Some((Action::Unagreed, ..)) if consent.evict_unmanaged => {}
        Some(apart) => return Some(apart),
        None => {}
    }
    if pod.controller.is_none() && !consent.evict_unmanaged {
        let why = "it has no controller, so it would not come back: --evict-unmanaged or --skip";
        return says(Action::Unagreed, "Unmanaged", why);
    }
    would_lose(cluster.needs.get(pod.uid()), consent)
}

/// As kubectl, a pod of a DaemonSet stays; but for it to count as one, its DaemonSet must be there.
fn daemon_set(pod: &Pod, cluster: &Cluster<'_>, owner: &str) -> Apart {
    let controller = pod.controller.as_ref().filter(|controller| controller.is_daemon_set())?;
    match found(cluster, &controller.uid) {
        DaemonSet::There => says(Action::Stay, "DaemonSet", &format!("{owner} would recreate it at once")),
        DaemonSet::Absent => {
            let why =
                format!("{owner} does not exist, so it would not come back: --evict-unmanaged or --skip");
            says(Action::Unagreed, "Unmanaged", &why)
        }
        DaemonSet::Unread(why) => {
            let why = format!("whether {owner} would recreate it is not known: {why}");
            says(Action::Stay, "DaemonSetUnread", &why)
        }
    }
}

fn found(cluster: &Cluster<'_>, uid: &Uid) -> DaemonSet {
    let unread = || DaemonSet::Unread("it was not read".to_owned());
    cluster.daemon_sets.get(uid).cloned().unwrap_or_else(unread)
}

/// A pod whose data goes with it, or of which that is not known.
fn would_lose(needs: Option<&Needs>, consent: &Consent) -> Apart {
    let Some(needs) = needs else {
        return says(Action::Unagreed, "Unreadable", "what it needs cannot be read: --skip");
    };
    if needs.empty_dir && !consent.delete_emptydir_data {
        let why = "the data of its emptyDir volume would be lost: --delete-emptydir-data or --skip";
        return says(Action::Unagreed, "EmptyDir", why);
    }
    None
}
