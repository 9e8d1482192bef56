//! From maintenance back into service.

use std::time::Duration;

use anyhow::Context as _;
use pod_safety_print::drains::describe_withdrawn;
use pod_safety_shared::api::Recovery;
use pod_safety_shared::authority::operator_requests::{
    self, DRAIN_IN_PROGRESS, DRAINED, Examined, MAINTENANCE_IN_PROGRESS, OperatorError,
};
use pod_safety_shared::authority::uncordon;
use pod_safety_shared::clock::Mono;

use super::{Maintenance, PAUSED_FOR};
use crate::{Exit, print, print_stderr, sanitize};

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A healthy API server answers within this time.
const READ_TIMEOUT: Duration = Duration::from_secs(15);

pub(super) async fn finish(work: &Maintenance) -> anyhow::Result<Exit> {
    let (session, node) = (&work.session, &work.args.node);
    let deadline = session.env.now() + work.args.timeout;
    let kept_off = operator_requests::list_kept_off(&session.connection, node).await?;
    if !kept_off.is_empty() {
        let examined = operator_requests::examine(&session.connection, &session.env, node).await?;
        print_power_on_owner(work, &examined).await?;
        // A pause keeps it off too. If the command is killed in between, the machine stays off.
        resume(work).await?;
        for fence in &kept_off {
            operator_requests::set_keep_off(&session.connection, &examined.node, fence, false).await?;
        }
    }
    let Some(examined) = wait_until_ready(work, deadline).await? else {
        print_stderr(&format!("pod-safety: node {node} is not back yet. Run this again to wait for it"));
        return Ok(Exit::TimedOut);
    };
    // If fencing were resumed earlier, a node that does not report would be fenced.
    resume(work).await?;
    const OVER: &str = "MaintenanceCompleted";
    let over = [MAINTENANCE_IN_PROGRESS, DRAINED, DRAIN_IN_PROGRESS].map(|kind| (kind, false, OVER));
    work.set_conditions(&examined.node, &over).await?;
    withdraw_requests(work).await?;
    uncordon(&session.connection, node, &examined.node.uid, session.env.now() + READ_TIMEOUT).await?;
    print(&format!("node/{node} is back in service: Ready and uncordoned\n"))?;
    Ok(Exit::Fine)
}

/// The requests of a drain that did not finish would evict pods of a node that is back in service.
async fn withdraw_requests(work: &Maintenance) -> anyhow::Result<()> {
    let (session, node) = (&work.session, &work.args.node);
    let done = match pod_safety_drain::withdraw(&session.connection, &session.env, node).await {
        // A user without the right has sent none.
        Err(error) if error.code() == Some(403) => return Ok(()),
        done => done.with_context(|| format!("withdrawing the requests for node {node}"))?,
    };
    if !done.pods.is_empty() {
        print(&format!("node/{node} {}\n", describe_withdrawn(&done)))?;
    }
    Ok(())
}

async fn print_power_on_owner(work: &Maintenance, examined: &Examined) -> anyhow::Result<()> {
    let policy = operator_requests::read_policy(&work.session.connection, examined).await?;
    let by = match policy.recovery {
        Recovery::PowerOn => "it is switched on now",
        Recovery::Hold => "switch it on: its FencePolicy says recovery: Hold",
    };
    print(&format!("node/{}: {by}\n", work.args.node))?;
    Ok(())
}

/// Waits until the node is Ready, and no incident that kept its machine off remains.
async fn wait_until_ready(work: &Maintenance, deadline: Mono) -> anyhow::Result<Option<Examined>> {
    let (session, node) = (&work.session, &work.args.node);
    let mut reported = false;
    loop {
        let examined = operator_requests::examine(&session.connection, &session.env, node).await?;
        if examined.ready && !operator_requests::is_being_fenced(&session.connection, node).await? {
            return Ok(Some(examined));
        }
        if session.env.now() >= deadline {
            return Ok(None);
        }
        if !reported {
            reported = true;
            print(&format!("waiting for node/{node} to be Ready …\n"))?;
        }
        session.env.sleep(POLL_INTERVAL).await;
    }
}

/// Ends the pause of this maintenance. Another pause stays, and is named.
async fn resume(work: &Maintenance) -> anyhow::Result<()> {
    let connection = &work.session.connection;
    match operator_requests::read_pause(connection, &work.scope()).await? {
        None => Ok(()),
        Some(why) if !why.starts_with(PAUSED_FOR) => {
            print(&format!("{}\n", sanitize::line(&format!("fencing of it stays paused: {why}"))))?;
            Ok(())
        }
        Some(_) => {
            match operator_requests::resume(connection, &work.scope(), &work.signed(work.reason.clone())).await {
                Ok(_) | Err(OperatorError::NotPaused { .. }) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }
    }
}
