//! The agent of a node, asked by its watchdog Lease: its last grant is revoked, and a time after that grant was last seen
//! all that it guards has ended, or its watchdog has reset the machine (`docs/watchdog-lease.md`).
//!
//! Danger note: that time counts from the first sight of the grant by this process, on its monotonic clock. So a sight is
//! noted after the answer has come, is kept in memory alone, and a process that starts begins to count anew.

use std::time::Duration;

use pod_safety_watchdog::controller::{Drilled, Refusal, Terms};
use pod_safety_watchdog::record::{Boot, Class, Device, Record, State};

use super::{ObjectOrder, failed, read, unread};
use crate::Acting;
use crate::api::{ActTime, ActedOn, DeviceDriver, WatchdogClass, WatchdogLease};
use crate::cache::Learns as _;
use crate::client::ApiError;
use crate::looker::Looker;
use crate::outcome::{Outcome, version};
use crate::transport::{Answer, DeviceError, Identity, Power};
use crate::watchdog::{self, Lease};
use crate::wire;

fn path_of(order: &ObjectOrder) -> String {
    watchdog::path(&order.device.namespace, &order.facts.machine.node)
}

/// The boot that is asked about.
fn boot(order: &ObjectOrder) -> Boot {
    let life = &order.facts.life;
    Boot { node: life.uid.as_str().into(), id: life.boot_id.as_str().into() }
}

/// Which promises a device accepts, and how long it waits.
#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    terms: Terms,
    /// As long as an order to switch off may take.
    off: Duration,
}

impl Accepted {
    pub(super) fn by(spec: &WatchdogLease, ActTime(off): ActTime) -> Self {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let classes = spec.classes.iter().map(|class| match class {
            WatchdogClass::Hardware => Class::Hardware,
            WatchdogClass::Software => Class::Software,
            WatchdogClass::Virtual => Class::Virtual,
        });
        let drilled = spec.drilled.iter().map(|drilled| Drilled {
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
        Self { terms, off: seconds(off) }
    }

    /// How long after a grant was last seen its promise has come true.
    fn wait(&self, device: &Device) -> Result<Duration, DeviceError> {
        let wait = self.terms.wait(device).map_err(|refusal| refused(&refusal))?;
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

fn refused(refusal: &Refusal) -> DeviceError {
    failed(refusal.to_string())
}

/// The Lease by quorum. That it was seen is noted.
async fn see(looker: &Looker<'_>, path: &str) -> Result<(Lease, Record), DeviceError> {
    let found = read(looker.reader.connection, path).await?;
    // Not before the answer has come: the grant that it shows is no younger.
    let now = looker.env.now().since_start();
    let watchdogs = looker.reader.cache.watchdogs();
    let Some(found) = found else {
        watchdogs.with(path, |watch| watch.sees_none());
        return Err(failed(format!("there is no Lease {path}: does pod-safety-agent run on the node?")));
    };
    let lease = Lease::of(&found);
    watchdogs.with(path, |watch| watch.sees(now, &lease.seen));
    let record = lease.record.clone().map_err(|error| failed(format!("{path}: {error}")))?;
    Ok((lease, record))
}

/// The Lease of the node's agent, if it has one.
pub(super) async fn resolve(looker: &Looker<'_>, order: &ObjectOrder) -> Result<ActedOn, DeviceError> {
    let path = path_of(order);
    let (lease, record) = see(looker, &path).await?;
    Ok(ActedOn {
        device: order.device.clone(),
        driver: DeviceDriver::WatchdogLease,
        uid: lease.uid,
        matched: record.boot == boot(order),
        path,
        cidrs: Vec::new(),
        storage: None,
    })
}

/// Takes the last grant back, over exactly the version that was seen; what is revoked stays so.
pub(super) async fn off(
    acting: &Acting<'_>,
    order: &ObjectOrder,
    accepted: &Accepted,
    object: &ActedOn,
) -> Result<(), DeviceError> {
    let path = &object.path;
    let (lease, record) = see(&acting.looker, path).await?;
    if record.boot != boot(order) {
        return Err(refused(&Refusal::OtherBoot));
    }
    // A promise that does not count is left alone: to revoke it would reset the machine, and prove nothing.
    let device = record.device.as_deref().ok_or_else(|| refused(&Refusal::NotArmed(record.state)))?;
    accepted.wait(device)?;
    if record.state == State::Revoked {
        return Ok(());
    }
    let watchdogs = acting.looker.reader.cache.watchdogs();
    let revocation = watchdogs.with(path, |watch| watch.revocation()).map_err(|refusal| refused(&refusal))?;
    if revocation.version != lease.seen.version {
        return Err(refused(&Refusal::Changed));
    }
    let answer = match acting.send(watchdog::revocation(path, &lease.uid, &revocation.version)).await {
        Ok(answer) => answer,
        Err(Outcome::Changed | Outcome::Gone) => return Err(refused(&Refusal::Changed)),
        Err(outcome) => return Err(super::said(outcome)),
    };
    let meta: wire::OnlyMeta = answer.decode().map_err(|error| unread(&ApiError::Undecodable(error)))?;
    let now = acting.env.now().since_start();
    // Without a version the next read is the first sight.
    if let Some(version) = meta.metadata.as_ref().and_then(version) {
        watchdogs.with(path, |watch| watch.has_revoked(now, &revocation, version.to_string().into()));
    }
    Ok(())
}

/// Whether all that ran in the boot that is asked about has ended.
pub(super) async fn look(
    looker: &Looker<'_>,
    order: &ObjectOrder,
    accepted: &Accepted,
    object: &ActedOn,
) -> Result<Answer, DeviceError> {
    let (lease, record) = see(looker, &object.path).await?;
    let now = looker.env.now().since_start();
    let boot = boot(order);
    let identity = if record.boot.node == boot.node { Identity::Match } else { Identity::Unknown };
    let watchdogs = looker.reader.cache.watchdogs();
    let found =
        watchdogs.with(&object.path, |watch| watch.evidence(now, &lease.seen, &boot, &accepted.terms));
    let (power, said) = match found {
        Ok(device) => {
            (Power::Off, format!("its grant was revoked, and the time of {} is over", device.identity))
        }
        Err(Refusal::NotRevoked) => {
            (Power::On, "the agent of the node has a grant: the machine runs".to_owned())
        }
        Err(Refusal::Until(until)) => {
            let left = until.saturating_sub(now).as_secs() + 1;
            (Power::Unknown, format!("its grant was revoked, but it may run for another {left} s"))
        }
        Err(refusal) => return Err(refused(&refusal)),
    };
    Ok(Answer::new(power, identity, said))
}

/// What the agent promises now, while nothing is wrong.
pub(super) async fn look_through(
    looker: &Looker<'_>,
    order: &ObjectOrder,
    accepted: &Accepted,
) -> Result<Answer, DeviceError> {
    let (_, record) = see(looker, &path_of(order)).await?;
    if *record.boot.node != *order.facts.uid {
        return Err(failed(format!("its Lease is about the Node with the UID {}", record.boot.node)));
    }
    let device = match (record.state, record.device.as_deref()) {
        (State::Armed, Some(device)) => device,
        (state, _) => return Err(refused(&Refusal::NotArmed(state))),
    };
    let wait = accepted.wait(device)?;
    let Device { class, identity, timeout, .. } = device;
    let said = format!(
        "{identity} ({class}, {} s): its promise comes true {:.1} s after a grant was last seen",
        timeout.as_secs(),
        wait.as_secs_f64()
    );
    Ok(Answer::new(Power::On, Identity::Match, said))
}
