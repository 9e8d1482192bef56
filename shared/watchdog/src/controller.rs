//! The state machine of the controller: when it first observed a grant, that it revoked this grant, and what follows.
//!
//! It counts from its own first observation of a grant, on its own monotonic clock. It reads no time that the node
//! wrote.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::bound::Bound;
use crate::record::{Boot, Class, Device, ObservedLease, Record, State, Version};

/// A version of the Lease, and when it was first observed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Observation {
    version: Version,
    record: Record,
    /// o. For a revoked Lease it is that of the grant, if the grant was observed.
    first_seen: Duration,
}

/// What this process has observed of the Lease of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LeaseWatch {
    observation: Option<Observation>,
    /// The resourceVersion of our own revocation, and when the API server confirmed it.
    revoked: Option<(Version, Duration)>,
}

/// A write of this record at this resourceVersion.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Revocation {
    /// The resourceVersion that the Lease must have.
    pub version: Version,
    /// The record to write.
    pub record: Record,
}

/// Which promises are accepted, and what their wait time depends on besides the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The kinds of devices that are accepted. [`Class::Cloud`] never is.
    pub classes: Vec<Class>,
    /// g, rho, R and P of [`Bound`]. P is only used for a virtual machine, and must be more than zero there.
    pub tick: Duration,
    /// See [`Bound`].
    pub drift_ppm: u32,
    /// See [`Bound`].
    pub reset: Duration,
    /// See [`Bound`].
    pub pause: Duration,
    /// The devices that have reset their machine on time in a drill.
    pub drilled: Vec<DrilledDevice>,
}

/// A device that passed a drill.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DrilledDevice {
    /// [`Device::identity`].
    pub identity: Arc<str>,
    /// [`Device::firmware`].
    pub firmware: u32,
    /// [`Device::kernel`].
    pub kernel: Arc<str>,
}

/// Why there is no evidence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The Lease was not observed, or cannot be decoded.
    NotSeen,
    /// It contains no promise.
    NotArmed(State),
    /// It is not revoked, or no revocation by this process is known.
    NotRevoked,
    /// It is not the revoked one: the agent has a new grant.
    Changed,
    /// It is about another Node or boot.
    OtherBoot,
    /// The device is of a kind that is not accepted.
    Class(Class),
    /// Closing the device stops it, so a dead agent does not reset the machine.
    CanBeStopped,
    /// A virtual machine, without a configured limit for pauses.
    NoPauseBudget,
    /// No such device, firmware and kernel has passed a drill.
    NotDrilled(DrilledDevice),
    /// The device reports no timeout, or one that is too long to wait for.
    Timeout(Duration),
    /// The wait time is not over: it ends then.
    Until(Duration),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSeen => f.write_str("the Lease of the node's agent was not read: is the agent installed?"),
            Self::NotArmed(state) => write!(f, "the Lease of the node's agent is {state}, and promises nothing"),
            Self::NotRevoked => f.write_str("the last grant was not revoked yet"),
            Self::Changed => f.write_str("the agent has a new grant: its machine runs"),
            Self::OtherBoot => f.write_str("the promise is about another boot of this node"),
            Self::Class(class) => write!(
                f,
                "a watchdog of class {class} is not accepted: watchdogLease.classes of the FenceDevice names what is, and Cloud is never accepted"
            ),
            Self::CanBeStopped => {
                f.write_str("the watchdog stops when it is closed: load its module with nowayout=1")
            }
            Self::NoPauseBudget => f.write_str(
                "a watchdog stands still while its virtual machine is paused: watchdogLease.pauseSeconds of the FenceDevice must say for how long that may be",
            ),
            Self::NotDrilled(DrilledDevice { identity, firmware, kernel }) => write!(
                f,
                "{identity} (firmware {firmware}, kernel {kernel}) has never reset a machine in a drill: pod-safety drill --watchdog NODE"
            ),
            Self::Timeout(timeout) => write!(f, "a timeout of {timeout:?} cannot be waited for"),
            Self::Until(when) => write!(f, "the machine may run until {when:?} of this process's clock"),
        }
    }
}

impl LeaseWatch {
    /// Records the Lease as a watch or a read returned it. An earlier observation of it keeps its time.
    pub fn observe(&mut self, now: Duration, seen: &ObservedLease) {
        let Some(record) = seen.record.clone() else {
            *self = Self::default();
            return;
        };
        let same = |sight: &&Observation| sight.version == seen.version && sight.record == record;
        if self.observation.as_ref().filter(same).is_some() {
            return;
        }
        // The revoked grant is the observed one: there was no later one.
        let grant = |sight: &&Observation| record.state == State::Revoked && sight.record.is_grant_of(&record);
        let first = self.observation.as_ref().filter(grant).map_or(now, |sight| sight.first_seen);
        self.observation = Some(Observation { version: Arc::clone(&seen.version), record, first_seen: first });
    }

    /// Records that the Lease does not exist.
    pub fn observe_absent(&mut self) {
        *self = Self::default();
    }

    /// The write that revokes the last grant.
    ///
    /// # Errors
    /// If no grant was observed that could be revoked.
    pub fn plan_revocation(&self) -> Result<Revocation, Refusal> {
        let sight = self.observation.as_ref().ok_or(Refusal::NotSeen)?;
        match sight.record.state {
            State::Armed => Ok(Revocation {
                version: Arc::clone(&sight.version),
                record: Record { state: State::Revoked, ..sight.record.clone() },
            }),
            state @ (State::Unarmed | State::Revoked | State::Disarmed) => Err(Refusal::NotArmed(state)),
        }
    }

    /// Records that the API server confirmed the revocation, with this resourceVersion.
    pub fn confirm_revocation(&mut self, now: Duration, revocation: &Revocation, version: Version) {
        self.observe(now, &ObservedLease { version: Arc::clone(&version), record: Some(revocation.record.clone()) });
        self.revoked = Some((version, now));
    }

    /// Checks that all guarded processes of `boot` have ended. `read` is the Lease by a quorum read now, and `boot`
    /// the boot of the Node by a quorum read.
    ///
    /// # Errors
    /// The reason why that does not follow.
    pub fn verify_ended(
        &self,
        now: Duration,
        read: &ObservedLease,
        boot: &Boot,
        terms: &Terms,
    ) -> Result<Arc<Device>, Refusal> {
        let sight = self.observation.as_ref().ok_or(Refusal::NotSeen)?;
        if sight.version != read.version || read.record.as_ref() != Some(&sight.record) {
            return Err(Refusal::Changed);
        }
        match sight.record.state {
            State::Revoked => {}
            State::Armed => return Err(Refusal::NotRevoked),
            state @ (State::Unarmed | State::Disarmed) => return Err(Refusal::NotArmed(state)),
        }
        if sight.record.boot != *boot {
            return Err(Refusal::OtherBoot);
        }
        let device = sight.record.device.as_ref().ok_or(Refusal::NotArmed(State::Unarmed))?;
        let wait = terms.wait_time(device)?;
        let after = self.revoked.as_ref().filter(|(version, _)| *version == sight.version).map(|(_, at)| *at);
        let until = sight.first_seen.checked_add(wait).ok_or(Refusal::Timeout(wait))?.max(after.unwrap_or_default());
        if now < until { Err(Refusal::Until(until)) } else { Ok(Arc::clone(device)) }
    }
}

impl Terms {
    /// How long after the first observation of a grant the promise of this device is fulfilled.
    ///
    /// # Errors
    /// If its promise is not accepted.
    pub fn wait_time(&self, device: &Device) -> Result<Duration, Refusal> {
        if !self.classes.contains(&device.class) {
            return Err(Refusal::Class(device.class));
        }
        check_promise(device)?;
        let pause = match device.class {
            Class::Hardware | Class::Software => Duration::ZERO,
            Class::Virtual | Class::Cloud if self.pause.is_zero() => return Err(Refusal::NoPauseBudget),
            Class::Virtual | Class::Cloud => self.pause,
        };
        let drilled = DrilledDevice::from(device);
        if !self.drilled.contains(&drilled) {
            return Err(Refusal::NotDrilled(drilled));
        }
        let bound = Bound {
            timeout: device.timeout,
            tick: self.tick,
            drift_ppm: self.drift_ppm,
            reset: self.reset,
            pause,
            pings_on_close: device.pings_on_close,
        };
        let has_timeout = !device.timeout.is_zero();
        bound.wait_time().filter(|_| has_timeout).ok_or(Refusal::Timeout(device.timeout))
    }
}

/// Checks that the promise of this device can be accepted at all, whatever is configured.
///
/// # Errors
/// The reason why it never is.
pub fn check_promise(device: &Device) -> Result<(), Refusal> {
    match device.class {
        Class::Cloud => Err(Refusal::Class(device.class)),
        Class::Hardware | Class::Software | Class::Virtual if !device.nowayout => Err(Refusal::CanBeStopped),
        Class::Hardware | Class::Software | Class::Virtual => Ok(()),
    }
}

impl From<&Device> for DrilledDevice {
    fn from(device: &Device) -> Self {
        let (identity, kernel) = (Arc::clone(&device.identity), Arc::clone(&device.kernel));
        Self { identity, firmware: device.firmware, kernel }
    }
}

#[cfg(test)]
mod tests;
