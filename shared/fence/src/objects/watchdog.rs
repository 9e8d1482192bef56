//! A node's agent, through its watchdog Lease: its last grant is revoked, and a certain time after that grant was
//! last observed all processes that it guards have terminated, or its watchdog has reset the machine
//! (`docs/watchdog-lease.md`).
//!
//! Danger note: that time counts from the first observation of the grant by this process, on its monotonic clock. So
//! an observation is recorded after the answer has arrived, is kept in memory alone, and a process that starts begins
//! to count again.

use std::time::Duration;

use pod_safety_watchdog::controller::{DrilledDevice, Refusal, Terms};
use pod_safety_watchdog::record::{Boot, Class, Device, Record, State};

use super::{Check, ObjectDriver, ObjectOrder, Reply, Write, failed, read_error, read_object};
use crate::Target;
use crate::api::{ActTime, TargetObject, WatchdogClass};
use crate::cache::CacheWriter as _;
use crate::client::ApiError;
use crate::model::is_kubernetes_name;
use crate::outcome::{Outcome, resource_version};
use crate::status_checker::StatusChecker;
use crate::transport::{Answer, DeviceError, Identity, Power};
use crate::watchdog::{self, AgentLease};
use crate::wire;

/// The driver.
#[derive(Debug)]
pub(super) struct NodeAgent;

impl ObjectDriver for NodeAgent {
    fn is_possible(&self, object: &TargetObject, _: &[&str], node: &str) -> bool {
        let namespace = &*object.device.namespace;
        [namespace, node].into_iter().all(is_kubernetes_name) && object.path == watchdog::lease_path(namespace, node)
    }

    fn resolve<'a>(&'a self, check: Check<'a>, _: &'a Target) -> Reply<'a, TargetObject> {
        Box::pin(resolve(check))
    }

    fn power_off<'a>(&'a self, write: Write<'a>, order: &'a ObjectOrder) -> Reply<'a, ()> {
        Box::pin(revoke(write, order))
    }

    fn why_no_power_on(&self) -> Option<&'static str> {
        Some("its watchdog resets it, and it boots by itself")
    }

    fn check_status<'a>(&'a self, check: Check<'a>, object: &'a TargetObject) -> Reply<'a, Answer> {
        Box::pin(check_status(check, object))
    }

    fn check_ready<'a>(&'a self, check: Check<'a>) -> Reply<'a, Answer> {
        Box::pin(check_armed(check))
    }
}

fn lease_path(order: &ObjectOrder) -> String {
    watchdog::lease_path(&order.device.namespace, &order.facts.machine.node)
}

/// The boot in question.
fn boot(order: &ObjectOrder) -> Boot {
    let incarnation = &order.facts.incarnation;
    Boot { node: incarnation.uid.as_str().into(), id: incarnation.boot_id.as_str().into() }
}

/// The promises that a device accepts, and its timeout.
struct AcceptedPromises {
    terms: Terms,
    /// The timeout of an `off` order.
    off: Duration,
}

impl AcceptedPromises {
    fn from_order(order: &ObjectOrder) -> Result<Self, DeviceError> {
        let spec = order.spec.watchdog_lease.as_ref().ok_or_else(|| failed("spec.watchdogLease is missing"))?;
        let ActTime(off) = order.spec.timeouts.power_off;
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let classes = spec.classes.iter().map(|class| match class {
            WatchdogClass::Hardware => Class::Hardware,
            WatchdogClass::Software => Class::Software,
            WatchdogClass::Virtual => Class::Virtual,
        });
        let drilled = spec.drilled.iter().map(|drilled| DrilledDevice {
            identity: drilled.identity.as_str().into(),
            firmware: drilled.firmware,
            kernel: drilled.kernel.as_str().into(),
        });
        let terms = Terms {
            classes: classes.collect(),
            drilled: drilled.collect(),
            tick: seconds(spec.tick_seconds),
            drift_ppm: spec.drift_ppm,
            reset: seconds(spec.reset_seconds),
            pause: seconds(spec.pause_seconds),
        };
        Ok(Self { terms, off: seconds(off) })
    }

    /// How long after the last observation of a grant its promise is fulfilled.
    fn wait_time(&self, device: &Device) -> Result<Duration, DeviceError> {
        let wait = self.terms.wait_time(device).map_err(|refusal| refusal_error(&refusal))?;
        if wait <= self.off {
            return Ok(wait);
        }
        Err(failed(format!(
            "a promise with a timeout of {} s comes true after {:.0} s, and timeouts.powerOff of the FenceDevice is {} s",
            device.timeout.as_secs(),
            wait.as_secs_f64().ceil(),
            self.off.as_secs()
        )))
    }
}

fn refusal_error(refusal: &Refusal) -> DeviceError {
    failed(refusal.to_string())
}

/// Reads the Lease by quorum, and records the observation.
async fn read_and_observe(checker: &StatusChecker<'_>, path: &str) -> Result<(AgentLease, Record), DeviceError> {
    let object = read_object(checker.reader.connection, path).await?;
    // Recorded after the answer has arrived: the grant in it is not younger.
    let now = checker.env.now().since_start();
    let watchdogs = checker.reader.cache.watchdogs();
    let Some(object) = object else {
        watchdogs.update(path, |watch| watch.observe_absent());
        return Err(failed(format!("there is no Lease {path}: does pod-safety-agent run on the node?")));
    };
    let lease = AgentLease::from_object(&object);
    watchdogs.update(path, |watch| watch.observe(now, &lease.observed));
    let record = lease.record.clone().map_err(|error| failed(format!("{path}: {error}")))?;
    Ok((lease, record))
}

/// The Lease of the node's agent, if it exists.
async fn resolve(Check { checker, order }: Check<'_>) -> Result<TargetObject, DeviceError> {
    let path = lease_path(order);
    let (lease, record) = read_and_observe(checker, &path).await?;
    Ok(order.object(path, &lease.uid, record.boot == boot(order)))
}

/// Revokes the last grant, at exactly the resourceVersion that was observed. A revocation is final.
async fn revoke(Write { context, object, .. }: Write<'_>, order: &ObjectOrder) -> Result<(), DeviceError> {
    let path = &object.path;
    let (lease, record) = read_and_observe(&context.checker, path).await?;
    if record.boot != boot(order) {
        return Err(refusal_error(&Refusal::OtherBoot));
    }
    // A promise that is not accepted is not revoked: that would reset the machine, and prove nothing.
    let device = record.device.as_deref().ok_or_else(|| refusal_error(&Refusal::NotArmed(record.state)))?;
    AcceptedPromises::from_order(order)?.wait_time(device)?;
    if record.state == State::Revoked {
        return Ok(());
    }
    let watchdogs = context.checker.reader.cache.watchdogs();
    let revocation =
        watchdogs.update(path, |watch| watch.plan_revocation()).map_err(|refusal| refusal_error(&refusal))?;
    if revocation.version != lease.observed.version {
        return Err(refusal_error(&Refusal::Changed));
    }
    let answer = match context.send(watchdog::revocation_call(path, &lease.uid, &revocation.version)).await {
        Ok(answer) => answer,
        Err(Outcome::Changed | Outcome::Gone) => return Err(refusal_error(&Refusal::Changed)),
        Err(outcome) => return Err(super::to_device_error(outcome)),
    };
    let meta: wire::OnlyMeta = answer.decode().map_err(|error| read_error(&ApiError::Undecodable(error)))?;
    let now = context.env.now().since_start();
    // Without a resourceVersion the next read is the first observation.
    if let Some(version) = meta.metadata.as_ref().and_then(resource_version) {
        watchdogs.update(path, |watch| watch.confirm_revocation(now, &revocation, version.to_string().into()));
    }
    Ok(())
}

/// Whether all processes of the boot in question have terminated.
async fn check_status(Check { checker, order }: Check<'_>, object: &TargetObject) -> Result<Answer, DeviceError> {
    let accepted = AcceptedPromises::from_order(order)?;
    let (lease, record) = read_and_observe(checker, &object.path).await?;
    let now = checker.env.now().since_start();
    let boot = boot(order);
    let identity = if record.boot.node == boot.node { Identity::Match } else { Identity::Unknown };
    let watchdogs = checker.reader.cache.watchdogs();
    let evidence =
        watchdogs.update(&object.path, |watch| watch.verify_ended(now, &lease.observed, &boot, &accepted.terms));
    let (power, message) = match evidence {
        Ok(device) => (Power::Off, format!("its grant was revoked, and the time of {} is over", device.identity)),
        Err(Refusal::NotRevoked) => (Power::On, "the agent of the node has a grant: the machine runs".to_owned()),
        Err(Refusal::Until(until)) => {
            let remaining = until.saturating_sub(now).as_secs() + 1;
            (Power::Unknown, format!("its grant was revoked, but it may run for another {remaining} s"))
        }
        Err(refusal) => return Err(refusal_error(&refusal)),
    };
    Ok(Answer::new(power, identity, message))
}

/// What the agent promises now, while the node is not lost.
async fn check_armed(Check { checker, order }: Check<'_>) -> Result<Answer, DeviceError> {
    let (_, record) = read_and_observe(checker, &lease_path(order)).await?;
    if *record.boot.node != *order.facts.uid {
        return Err(failed(format!("its Lease is about the Node with the UID {}", record.boot.node)));
    }
    let device = match (record.state, record.device.as_deref()) {
        (State::Armed, Some(device)) => device,
        (state, _) => return Err(refusal_error(&Refusal::NotArmed(state))),
    };
    let wait = AcceptedPromises::from_order(order)?.wait_time(device)?;
    let Device { class, identity, timeout, .. } = device;
    let message = format!(
        "{identity} ({class}, {} s): its promise comes true {:.1} s after a grant was last seen",
        timeout.as_secs(),
        wait.as_secs_f64()
    );
    Ok(Answer::new(Power::On, Identity::Match, message))
}
