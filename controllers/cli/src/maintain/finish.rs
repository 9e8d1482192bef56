//! Back into service.

use std::time::Duration;

use pod_safety_shared::api::Recovery;
use pod_safety_shared::authority::people::{
    self, DRAIN_IN_PROGRESS, DRAINED, Examined, MAINTENANCE_IN_PROGRESS, PeopleError,
};
use pod_safety_shared::authority::uncordon;
use pod_safety_shared::clock::Mono;

use super::{PAUSED_FOR, Work};
use crate::{Exit, clean, print, say};

const LOOK_EACH: Duration = Duration::from_secs(1);

/// An API server that is well answers within it.
const PATIENCE: Duration = Duration::from_secs(15);

pub(super) async fn finish(work: &Work) -> anyhow::Result<Exit> {
    let (session, node) = (&work.session, &work.args.node);
    let ends = session.env.now() + work.args.timeout;
    let kept_off = people::kept_off(&session.connection, node).await?;
    if !kept_off.is_empty() {
        let examined = people::examine(&session.connection, &session.env, node).await?;
        say_who_switches_it_on(work, &examined).await?;
        // A pause keeps it off too. Killed in between, it stays off.
        resume(work).await?;
        for fence in &kept_off {
            people::keep_off(&session.connection, &examined.node, fence, false).await?;
        }
    }
    let Some(examined) = until_back(work, ends).await? else {
        say(&format!("pod-safety: node {node} is not back yet. Run this again to wait for it"));
        return Ok(Exit::TimedOut);
    };
    // Before that a silent node would be fenced.
    resume(work).await?;
    const OVER: &str = "MaintenanceCompleted";
    let over = [MAINTENANCE_IN_PROGRESS, DRAINED, DRAIN_IN_PROGRESS].map(|kind| (kind, false, OVER));
    work.report(&examined.node, &over).await?;
    uncordon(&session.connection, node, &examined.node.uid, session.env.now() + PATIENCE).await?;
    print(&format!("node/{node} is back in service: Ready and uncordoned\n"))?;
    Ok(Exit::Fine)
}

async fn say_who_switches_it_on(work: &Work, examined: &Examined) -> anyhow::Result<()> {
    let policy = people::policy(&work.session.connection, examined).await?;
    let by = match policy.recovery {
        Recovery::PowerOn => "it is switched on now",
        Recovery::Hold => "switch it on: its FencePolicy says recovery: Hold",
    };
    print(&format!("node/{}: {by}\n", work.args.node))?;
    Ok(())
}

/// Ready, and nothing of an incident is left that kept its machine off.
async fn until_back(work: &Work, ends: Mono) -> anyhow::Result<Option<Examined>> {
    let (session, node) = (&work.session, &work.args.node);
    let mut told = false;
    loop {
        let examined = people::examine(&session.connection, &session.env, node).await?;
        if examined.ready && !people::is_being_fenced(&session.connection, node).await? {
            return Ok(Some(examined));
        }
        if session.env.now() >= ends {
            return Ok(None);
        }
        if !told {
            told = true;
            print(&format!("waiting for node/{node} to be Ready …\n"))?;
        }
        session.env.sleep(LOOK_EACH).await;
    }
}

/// Ends our own pause. Another one stays, and is named.
async fn resume(work: &Work) -> anyhow::Result<()> {
    let connection = &work.session.connection;
    match people::paused(connection, &work.scope()).await? {
        None => Ok(()),
        Some(why) if !why.starts_with(PAUSED_FOR) => {
            print(&format!("{}\n", clean::line(&format!("fencing of it stays paused: {why}"))))?;
            Ok(())
        }
        Some(_) => match people::resume(connection, &work.scope(), &work.signed(work.reason.clone())).await {
            Ok(_) | Err(PeopleError::NotPaused { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        },
    }
}
