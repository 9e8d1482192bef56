//! `pod-safety drill --watchdog`: whether the watchdog of a node resets its machine on time. Only the promise of a
//! watchdog that passed a drill is evidence.
//!
//! The grant of the node's agent is revoked. The agent terminates the pods, stops petting the watchdog, and records on
//! its disk for how long the machine keeps running. It reports that after the next boot.

use std::time::Duration;

use pod_safety_shared::api::FenceEvidenceKind;
use pod_safety_shared::authority::operator_requests::{self, Device, Examined, Watchdog, WatchdogGrant};
use pod_safety_shared::clock::Mono;

use super::super::cluster::Session;
use super::super::consent::prompt;
use super::super::{Exit, print, print_stderr, sanitize};
use super::{Args, POLL_INTERVAL, devices_of, reason_not_fit};

/// The phrase to type before the node's name.
const PHRASE: &str = "reset";

impl Args {
    pub(super) async fn drill_watchdog(&self, session: &Session, examined: &Examined) -> anyhow::Result<Exit> {
        let Session { connection, env } = session;
        let node = &self.node;
        let device = match watchdog_device(session, examined).await? {
            Ok(device) => device,
            Err(why) => return refuse(&why),
        };
        if let Some(why) = reason_not_fit(session, examined, false).await? {
            return refuse(&why);
        }
        let promise = operator_requests::read_grant(connection, &device.named, &examined.node).await?;
        let promise = promise.filter(|promise| promise.is_armed);
        let (promise, watchdog) = match promise.and_then(|promise| Some((promise.clone(), promise.watchdog?))) {
            Some((_, Watchdog { unfit_reason: Some(why), drilled, .. })) => {
                return refuse(&format!("the promise of {} never counts: {why}", drilled.identity));
            }
            Some(promise_and_watchdog) => promise_and_watchdog,
            None => {
                let namespace = &device.named.namespace;
                return refuse(&format!(
                    "the agent of node {node} promises nothing for this boot: kubectl get lease watchdog.{node} -n {namespace} -o yaml"
                ));
            }
        };
        let Watchdog { drilled, timeout, .. } = &watchdog;
        let page = || page(node, &watchdog);
        if !prompt(&format!("{PHRASE} {node}"), self.confirm.as_deref(), page)? {
            return Ok(Exit::Refused);
        }
        operator_requests::revoke(connection, &device.named, node, &promise).await?;
        print("The grant is revoked. Waiting until the machine has been reset and its agent is back.\n")?;
        let deadline = env.now() + self.timeout.unwrap_or(Duration::from_mins(15));
        let Some(next) = next_boot(session, examined, &device, &promise, deadline).await? else {
            print_stderr(&format!(
                "pod-safety: node {node} has not booted again. If it still runs, its watchdog does not reset it: the promise is worth nothing"
            ));
            return Ok(Exit::TimedOut);
        };
        let tick = device.spec.watchdog_lease.as_ref().map_or(0, |spec| spec.tick_seconds);
        let limit = *timeout + Duration::from_secs(tick.into());
        match judge_reset(&promise, &next, limit) {
            Ok(result) => {
                operator_requests::record_drill(connection, &device, drilled).await?;
                let line = format!("{result}. FenceDevice {} accepts it now", device.named);
                print(&format!("{}\n", sanitize::line(&line)))?;
                Ok(Exit::Fine)
            }
            Err(words) => {
                print_stderr(&format!("pod-safety: {words}. Nothing was recorded"));
                Ok(Exit::Blocked)
            }
        }
    }
}

fn page(node: &str, Watchdog { drilled, class, timeout, .. }: &Watchdog) -> String {
    format!(
        "\nThe machine of node {node} is reset by {} (class {class}, {} s). Its disks are not synced.",
        drilled.identity,
        timeout.as_secs(),
    )
}

fn refuse(why: &str) -> anyhow::Result<Exit> {
    print_stderr(&format!("pod-safety: {why}. Nothing was done"));
    Ok(Exit::Refused)
}

/// The device of the node's policy that depends on its agent.
async fn watchdog_device(session: &Session, examined: &Examined) -> anyhow::Result<Result<Device, String>> {
    let all = devices_of(session, examined).await?;
    let is_watchdog = |device: &Device| device.spec.driver.gives(FenceEvidenceKind::WatchdogLease);
    Ok(all.into_iter().find(is_watchdog).ok_or_else(|| {
        format!(
            "no level of the FencePolicy of node {} names a FenceDevice with the driver WatchdogLease",
            examined.node.name
        )
    }))
}

/// What the agent reports in a later boot of the machine; `None`: timeout.
async fn next_boot(
    session: &Session,
    examined: &Examined,
    device: &Device,
    before: &WatchdogGrant,
    deadline: Mono,
) -> anyhow::Result<Option<WatchdogGrant>> {
    let Session { connection, env } = session;
    loop {
        let promise = operator_requests::read_grant(connection, &device.named, &examined.node).await?;
        match promise.filter(|promise| promise.boot_id != before.boot_id) {
            Some(promise) => return Ok(Some(promise)),
            None if env.now() >= deadline => return Ok(None),
            None => env.sleep(POLL_INTERVAL).await,
        }
    }
}

/// Whether the earlier boot was reset on time.
fn judge_reset(before: &WatchdogGrant, after: &WatchdogGrant, limit: Duration) -> Result<String, String> {
    let survived = after.survived.as_ref().filter(|(boot, _)| *boot == before.boot_id);
    let Some((_, survived)) = survived else {
        return Err(
            "the machine was reset, but its agent does not know for how long it outlived its last pet: is --record on a disk?"
                .to_owned(),
        );
    };
    let message = format!(
        "it was reset {:.2} s after its last pet; up to {:.0} s are allowed",
        survived.as_secs_f64(),
        limit.as_secs_f64()
    );
    if *survived <= limit { Ok(message) } else { Err(message) }
}
