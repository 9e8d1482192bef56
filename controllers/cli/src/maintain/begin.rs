//! From the plan to a node that is ready for maintenance.

use pod_safety_shared::api::Phase;
use pod_safety_shared::authority::incident_name;
use pod_safety_shared::authority::operator_requests::{
    self, DRAIN_IN_PROGRESS, DRAINED, Examined, MAINTENANCE_IN_PROGRESS, OperatorError,
};

use super::{Maintenance, PAUSED_FOR};
use crate::consent::prompt;
use crate::drain::{self, Drained, snapshot::DrainSnapshot};
use crate::drill::follow_incident;
use crate::{Exit, pluralize, print, print_stderr, sanitize};

pub(super) async fn begin(work: &Maintenance) -> anyhow::Result<Exit> {
    let (session, node) = (&work.session, &work.args.node);
    let examined = operator_requests::examine(&session.connection, &session.env, node).await?;
    if work.args.dry_run {
        return plan(work).await;
    }
    if work.args.power_off {
        // Before a pod is evicted: a maintenance that cannot continue does not start.
        operator_requests::read_policy(&session.connection, &examined).await?;
        let page = || format!("\nThe machine of node {node} loses its power when it is empty.");
        if !prompt(&work.args.phrase(), work.args.confirm.as_deref(), page)? {
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
    // From here on the node may stop reporting, and it is neither fenced nor switched on.
    pause(work).await?;
    work.set_conditions(&examined.node, &[(MAINTENANCE_IN_PROGRESS, true, "AdminRequested")]).await?;
    let power = if work.args.power_off { ", switched off" } else { "" };
    let message = format!(
        "node/{node} is in maintenance: cordoned, drained{power}, and not fenced. When the work is done: pod-safety maintain {node} --finish --reason TEXT\n"
    );
    print(&message)?;
    Ok(Exit::Fine)
}

async fn plan(work: &Maintenance) -> anyhow::Result<Exit> {
    let exit = drain::print_plan(&work.session, &work.args.node, &work.args.consent, work.paint).await?;
    let off = if work.args.power_off { "its machine is switched off by its FencePolicy and kept off; " } else { "" };
    let message = format!("After the drain {off}fencing of it is paused until --finish.\n");
    print(&message)?;
    Ok(exit)
}

/// Whether an earlier command was killed after the drain: the node is empty, or must not be drained again.
async fn is_being_switched_off(work: &Maintenance, examined: &Examined) -> anyhow::Result<bool> {
    if !work.args.power_off {
        return Ok(false);
    }
    let incident = operator_requests::read_incident(&work.session.connection, &incident_name(&examined.node)).await?;
    Ok(incident.is_some_and(|incident| incident.spec.keep_off && !incident.status.phase.is_over()))
}

async fn empty(work: &Maintenance, examined: &Examined) -> anyhow::Result<Exit> {
    let (session, node) = (&work.session, &work.args.node);
    let (nodes, consent) = ([node.clone()], work.args.consent.consent());
    let snapshot = DrainSnapshot::read_for_apply(session, &nodes).await?;
    snapshot.warn_missing_pods(&nodes, &consent);
    let plan = snapshot.plan(node, &consent);
    snapshot.check_rights(session, std::slice::from_ref(&plan)).await?;
    work.set_conditions(
        &examined.node,
        &[(DRAIN_IN_PROGRESS, true, "AdminRequested"), (DRAINED, false, "AdminRequested")],
    )
    .await?;
    let done = drain::apply(session, snapshot, &work.args.consent, work.paint, work.args.timeout, plan).await;
    let drained = done.as_ref().is_ok_and(|done| done.exit == Exit::Fine);
    let reason = if drained { "DrainCompleted" } else { "DrainStopped" };
    work.set_conditions(&examined.node, &[(DRAIN_IN_PROGRESS, false, reason), (DRAINED, drained, reason)]).await?;
    let Drained { exit, late_pods: came } = done?;
    if exit == Exit::Fine && came > 0 && work.args.power_off {
        let pods = pluralize(came, "pod");
        print(&format!("node/{node} is not switched off: {pods} came back to it and would be terminated\n"))?;
        return Ok(Exit::Blocked);
    }
    Ok(exit)
}

/// Waits until evidence proves it off. The incident keeps the machine off, even if this command ends.
async fn switch_off(work: &Maintenance, examined: &Examined) -> anyhow::Result<Exit> {
    let (session, node) = (&work.session, &work.args.node);
    let connection = &session.connection;
    let fence = operator_requests::request_keep_off(connection, examined, &work.by, &work.reason).await?;
    let deadline = session.env.now() + work.args.timeout;
    let seen = follow_incident(session, &fence, deadline, |phase| !matches!(phase, Phase::Pending | Phase::Fencing));
    match seen.await? {
        Some(Phase::Fenced | Phase::Recovering) => Ok(Exit::Fine),
        Some(_) => Ok(Exit::Blocked),
        None => {
            print_stderr(&format!(
                "pod-safety: it goes on: kubectl get nodefence {fence} -w. To prevent new attempts: pod-safety cancel {node}"
            ));
            Ok(Exit::TimedOut)
        }
    }
}

async fn pause(work: &Maintenance) -> anyhow::Result<()> {
    let pause = work.signed(format!("{PAUSED_FOR}{}", work.reason));
    match operator_requests::pause(&work.session.connection, &work.scope(), &pause).await {
        Err(OperatorError::Paused { why, .. }) if !why.starts_with(PAUSED_FOR) => {
            let message = format!("fencing of it was paused already, and stays so after --finish: {why}");
            print(&format!("{}\n", sanitize::line(&message)))?;
            Ok(())
        }
        Err(OperatorError::Paused { .. }) => Ok(()),
        paused => Ok(paused?),
    }
}
