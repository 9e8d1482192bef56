//! From the plan to a node on which a person may work.

use pod_safety_shared::api::Phase;
use pod_safety_shared::authority::incident_name;
use pod_safety_shared::authority::people::{
    self, DRAIN_IN_PROGRESS, DRAINED, Examined, MAINTENANCE_IN_PROGRESS, PeopleError,
};

use super::{PAUSED_FOR, Work};
use crate::consent::consents;
use crate::drain::{self, Drained, look::Look};
use crate::drill::follow;
use crate::{Exit, clean, plural, print, say};

/// What has to be typed before the node's name.
const PHRASE: &str = "switch off";

pub(super) async fn begin(work: &Work) -> anyhow::Result<Exit> {
    let (session, node) = (&work.session, &work.args.node);
    let examined = people::examine(&session.connection, &session.env, node).await?;
    if work.args.dry_run {
        return plan(work).await;
    }
    if work.args.power_off {
        // Before a pod is evicted: whoever cannot go on does not begin.
        people::policy(&session.connection, &examined).await?;
        let page = || format!("\nThe machine of node {node} loses its power when it is empty.");
        if !consents(&format!("{PHRASE} {node}"), work.args.confirm.as_deref(), page)? {
            return Ok(Exit::Refused);
        }
    }
    if !is_being_switched_off(work, &examined).await? {
        match empty(work, &examined).await? {
            Exit::Fine => {}
            exit => return Ok(exit),
        }
    }
    if work.args.power_off {
        match switch_off(work, &examined).await? {
            Exit::Fine => {}
            exit => return Ok(exit),
        }
    }
    // From here on it may fall silent, and nobody fences it or switches it on.
    pause(work).await?;
    work.report(&examined.node, &[(MAINTENANCE_IN_PROGRESS, true, "AdminRequested")]).await?;
    let power = if work.args.power_off { ", switched off" } else { "" };
    let said = format!(
        "node/{node} is in maintenance: cordoned, drained{power}, and not fenced. When the work is done: pod-safety maintain {node} --finish --reason TEXT\n"
    );
    print(&said)?;
    Ok(Exit::Fine)
}

async fn plan(work: &Work) -> anyhow::Result<Exit> {
    let exit = drain::show(&work.session, &work.args.node, &work.args.consent, work.paint).await?;
    let off = if work.args.power_off {
        "its machine is switched off by its FencePolicy and kept off; "
    } else {
        ""
    };
    let said = format!("After the drain {off}fencing of it is paused until --finish.\n");
    print(&said)?;
    Ok(exit)
}

/// A command that was killed later than the drain: the node is empty, or is not to be asked any more.
async fn is_being_switched_off(work: &Work, examined: &Examined) -> anyhow::Result<bool> {
    if !work.args.power_off {
        return Ok(false);
    }
    let there = people::incident(&work.session.connection, &incident_name(&examined.node)).await?;
    Ok(there.is_some_and(|incident| incident.spec.keep_off && !incident.status.phase.is_over()))
}

async fn empty(work: &Work, examined: &Examined) -> anyhow::Result<Exit> {
    let (session, node) = (&work.session, &work.args.node);
    let (nodes, consent) = ([node.clone()], work.args.consent.consent());
    let look = Look::near(session, &nodes).await?;
    look.say_what_is_not_there(&nodes, &consent);
    let plan = look.plan(node, &consent);
    look.may_apply(session, std::slice::from_ref(&plan)).await?;
    work.report(
        &examined.node,
        &[(DRAIN_IN_PROGRESS, true, "AdminRequested"), (DRAINED, false, "AdminRequested")],
    )
    .await?;
    let done = drain::apply(session, look, &work.args.consent, work.paint, work.args.timeout, plan).await;
    let drained = done.as_ref().is_ok_and(|done| done.exit == Exit::Fine);
    let reason = if drained { "DrainCompleted" } else { "DrainStopped" };
    work.report(&examined.node, &[(DRAIN_IN_PROGRESS, false, reason), (DRAINED, drained, reason)]).await?;
    let Drained { exit, came } = done?;
    if exit == Exit::Fine && came > 0 && work.args.power_off {
        let pods = plural(came, "pod");
        print(&format!("node/{node} is not switched off: {pods} came back to it and would be terminated\n"))?;
        return Ok(Exit::Blocked);
    }
    Ok(exit)
}

/// Waits until it is proved. The incident keeps the machine off, whatever becomes of this command.
async fn switch_off(work: &Work, examined: &Examined) -> anyhow::Result<Exit> {
    let (session, node) = (&work.session, &work.args.node);
    let connection = &session.connection;
    let fence = people::ask_to_keep_off(connection, examined, &work.by, &work.reason).await?;
    let ends = session.env.now() + work.args.timeout;
    let seen = follow(session, &fence, ends, |phase| !matches!(phase, Phase::Pending | Phase::Fencing));
    match seen.await? {
        Some(Phase::Fenced | Phase::Recovering) => Ok(Exit::Fine),
        Some(_) => Ok(Exit::Blocked),
        None => {
            say(&format!(
                "pod-safety: it goes on: kubectl get nodefence {fence} -w. To prevent new attempts: pod-safety cancel {node}"
            ));
            Ok(Exit::TimedOut)
        }
    }
}

async fn pause(work: &Work) -> anyhow::Result<()> {
    let pause = work.signed(format!("{PAUSED_FOR}{}", work.reason));
    match people::pause(&work.session.connection, &work.scope(), &pause).await {
        Err(PeopleError::Paused { why, .. }) if !why.starts_with(PAUSED_FOR) => {
            let said = format!("fencing of it was paused already, and stays so after --finish: {why}");
            print(&format!("{}\n", clean::line(&said)))?;
            Ok(())
        }
        Err(PeopleError::Paused { .. }) => Ok(()),
        paused => Ok(paused?),
    }
}
