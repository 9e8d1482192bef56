//! Which actors may delete a pod, and which may not.

use pod_safety_shared::cache::Lookup;
use pod_safety_shared::controller_loop::Mode;
use pod_safety_shared::model::{Node, Pod, Readiness};

use super::answer::Answer;
use super::claimed::REFUSED;
use super::context::{ExplainContext, Policies};
use super::disposition::Disposition;

/// Adds the actors that may delete the pod.
pub(super) fn add_actors(
    answer: &mut Answer,
    pod: &Pod,
    name: &str,
    disposition: &Disposition,
    ctx: &ExplainContext<'_>,
) {
    let node = ctx.view.node(name);
    let kubelet = match node {
        Lookup::Known(Node { readiness: Readiness::Unknown, .. }) => "yes, when it reports again".to_owned(),
        Lookup::Known(_) => "yes, and only it knows whether the pod has terminated".to_owned(),
        Lookup::Absent => "no: its node does not exist any more".to_owned(),
        Lookup::Unknown(_) => "not known: the node may not be read".to_owned(),
    };
    answer.add_actor(format!("kubelet of {name}"), kubelet);
    let node_reports = matches!(node, Lookup::Known(Node { readiness: Readiness::Ready, .. }));
    let proof = match disposition {
        Disposition::Claimed(_) if answer.judgement.reason != REFUSED => "yes: there is proof",
        Disposition::NoAction if node_reports => "no: its node is Ready, so its kubelet must report that",
        Disposition::Claimed(_)
        | Disposition::Held(_)
        | Disposition::AbsenceRead
        | Disposition::DeletedGracefully(_)
        | Disposition::Undecided(_)
        | Disposition::NoAction => "yes, with proof, and never without",
    };
    let own_action = match ctx.running {
        running if running.mode == Some(Mode::Observe) => "no: it runs in the mode observe".to_owned(),
        running if running.has_no_leader() => "no: there is no leader. See pod-safety doctor".to_owned(),
        _ => proof.to_owned(),
    };
    answer.add_actor("pod-safety", own_action);
    let policy = "the policy pod-safety-force-delete";
    let kcm = match ctx.policies {
        Policies::Deny => format!("no: denied by {policy}"),
        Policies::Audit { .. } => format!(
            "yes, without proof, when the Node is deleted or gets the taint out-of-service: {policy} only warns"
        ),
        Policies::Absent => {
            "yes, without proof, when the Node is deleted or gets the taint out-of-service: no policy denies it"
                .to_owned()
        }
        Policies::Unread => "not known: the admission policies may not be read".to_owned(),
    };
    if ctx.running.mode != Some(Mode::Replace) {
        answer.add_actor("kube-controller-manager", kcm);
    }
    let reason = if pod.keeps_identity() { " and the annotation pod-safety.dev/break-glass=REASON" } else { "" };
    let operators = match ctx.policies {
        Policies::Deny => {
            format!("only with the verb force-delete on pods.breakglass.pod-safety.dev{reason}")
        }
        Policies::Audit { .. } | Policies::Absent => {
            "nothing prevents it, and two copies may then run: do not do it".to_owned()
        }
        Policies::Unread => "not known; two copies may then run: do not do it".to_owned(),
    };
    answer.add_actor("people, by --force", operators);
}
