//! Leader election: one process writes at a time.
//!
//! The rules are client-go's. A Lease of another holder may be acquired when it has not changed for its own duration *since
//! this process saw it change*, on this process's monotonic clock; times that other processes wrote are never compared with
//! it. A leader's term starts before it *sent* the successful renewal and ends a renew deadline later, which is shorter
//! than the duration for which others wait. So the writes of one leader end before the next leader can start.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::client::{ApiError, Call, Connection, Method, WriteCall as _};
use crate::clock::{Env, Mono};
use crate::metrics::LeaseMetrics;
use crate::record::{LogEvent, error_chain};
use crate::wire;

/// Client-go's factor: a renewal with its jitter must fit into the deadline.
/// docs/assumptions.md: clocks-run-on
const JITTER: f64 = 1.2;

/// The annotation of the Lease in which the leader writes its identity, its settings, and its user name at the API server:
/// `ID mode=MODE controllers=LIST user=USER`. An annotation with another identity is from an earlier leader.
pub const LEADER_ANNOTATION: &str = "pod-safety.dev/leader";

/// The interval at which an unchanged problem, or an unchanged leader, is logged again.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The Lease and the timing.
#[derive(Clone, Debug)]
pub struct LeaseConfig {
    /// The namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The identity of this process; it must be unique.
    pub identity: String,
    /// How long others wait after the last renewal.
    pub lease_duration: Duration,
    /// How long this process writes after its last renewal.
    pub renew_deadline: Duration,
    /// The interval between attempts.
    pub retry_period: Duration,
}

/// Timing with which two processes could write at once, or none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTiming {
    /// Another leader could start while this process still writes.
    #[error(
        "--leader-elect-lease-duration={lease:?} must be longer than --leader-elect-renew-deadline={renew:?}: a leader must stop before the next one starts"
    )]
    LeaseTooShort {
        /// The duration.
        lease: Duration,
        /// The deadline.
        renew: Duration,
    },
    /// A second attempt would not fit into the deadline.
    #[error(
        "--leader-elect-renew-deadline={renew:?} must be longer than 1.2 times --leader-elect-retry-period={retry:?}: otherwise a leader gives up before its second try"
    )]
    RenewTooShort {
        /// The deadline.
        renew: Duration,
        /// The period.
        retry: Duration,
    },
    /// The API uses whole seconds, and at least one.
    #[error("--leader-elect-lease-duration={lease:?} must be at least 1s")]
    LeaseBelowOneSecond {
        /// The duration.
        lease: Duration,
    },
}

impl LeaseConfig {
    /// Checks the timing as client-go does.
    ///
    /// # Errors
    /// What is wrong with the timing.
    pub fn check(&self) -> Result<(), BadTiming> {
        let Self { lease_duration: lease, renew_deadline: renew, retry_period: retry, .. } = *self;
        if lease < Duration::from_secs(1) {
            return Err(BadTiming::LeaseBelowOneSecond { lease });
        }
        // Other processes read whole seconds, and wait no longer.
        if Duration::from_secs(lease.as_secs()) <= renew {
            return Err(BadTiming::LeaseTooShort { lease, renew });
        }
        if renew <= retry.mul_f64(JITTER) {
            return Err(BadTiming::RenewTooShort { renew, retry });
        }
        Ok(())
    }

    fn collection(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }
}

/// A period in which this process may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    began: Mono,
    ends: Mono,
}

impl Term {
    /// When the term ends, unless it is renewed.
    #[must_use]
    pub const fn ends(&self) -> Mono {
        self.ends
    }
}

/// Whether this process leads.
#[derive(Debug)]
pub struct Leadership {
    term: Mutex<Option<Term>>,
    notifier: Mutex<ChangeNotifier>,
    predecessor_renewed_at: Mutex<Option<Timestamp>>,
}

/// Notifies subscribers of changes.
///
/// Each subscriber has its own channel: one channel wakes up its receivers in random order, so the order of writes would be
/// random, too.
#[derive(Debug, Default)]
struct ChangeNotifier {
    leads: bool,
    listeners: Vec<watch::Sender<bool>>,
}

impl ChangeNotifier {
    fn notify(&mut self, leads: bool) {
        self.leads = leads;
        self.listeners.retain(|listener| listener.send(leads).is_ok());
    }
}

impl Leadership {
    /// A leadership without a leader yet.
    #[must_use]
    pub fn none() -> Arc<Self> {
        Arc::new(Self { term: Mutex::default(), notifier: Mutex::default(), predecessor_renewed_at: Mutex::default() })
    }

    /// A leadership without election: this process always leads.
    #[must_use]
    pub fn always() -> Arc<Self> {
        let leadership = Self::none();
        leadership.set(Some(Term { began: Mono::default(), ends: Mono::from_start(Duration::MAX) }));
        leadership
    }

    /// The same, after a leader that last renewed at this time, for tests of a change of leader.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn always_after(renewed: Timestamp) -> Arc<Self> {
        let leadership = Self::always();
        *leadership.predecessor_renewed_at.lock() = Some(renewed);
        leadership
    }

    /// A term without an election, for tests of the authority.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn for_tests(ends: Mono) -> Arc<Self> {
        let leadership = Self::none();
        leadership.set(Some(Term { began: Mono::default(), ends }));
        leadership
    }

    /// Starts a term without an end, for tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn lead_for_tests(&self) {
        self.set(Some(Term { began: Mono::default(), ends: Mono::from_start(Duration::MAX) }));
    }

    /// Ends the term, for tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn end_for_tests(&self) {
        self.set(None);
    }

    /// The term, if it has not ended at `now`. Call this right before each write.
    #[must_use]
    pub fn term(&self, now: Mono) -> Option<Term> {
        self.term.lock().filter(|term| now < term.ends)
    }

    /// Since when this process leads without interruption. It reached the API server at each renewal since then.
    #[must_use]
    pub fn leading_since(&self, now: Mono) -> Option<Mono> {
        self.term(now).map(|term| term.began)
    }

    /// When the previous leader last renewed the Lease, by its clock; `None`: there was none. Only for traces and output.
    #[must_use]
    pub fn predecessor_renewed_at(&self) -> Option<Timestamp> {
        *self.predecessor_renewed_at.lock()
    }

    /// Subscribes to gains and losses of leadership. A loss may be delivered late; [`Leadership::term`] is exact. If a term
    /// ended before it was renewed, another gain is delivered.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<bool> {
        let mut notifier = self.notifier.lock();
        let (sender, changes) = watch::channel(notifier.leads);
        notifier.listeners.push(sender);
        changes
    }

    fn set(&self, term: Option<Term>) {
        *self.term.lock() = term;
        let mut notifier = self.notifier.lock();
        if notifier.leads != term.is_some() {
            notifier.notify(term.is_some());
        }
    }
}

/// The Lease as this process last saw it.
#[derive(Clone, Debug)]
struct Observed {
    version: String,
    holder: String,
    duration: Duration,
    transitions: i32,
    /// By its holder's clock.
    renewed: Option<Timestamp>,
    /// When this process first saw it in this state.
    since: Mono,
}

enum Attempt {
    /// This process holds the Lease, by a renewal that was sent at this time.
    Held(Mono),
    /// Another process holds it.
    HeldBy(String),
}

/// Acquires and renews the Lease.
#[derive(Debug)]
pub struct Elector {
    config: LeaseConfig,
    connection: Connection,
    env: Env,
    metrics: LeaseMetrics,
    leadership: Arc<Leadership>,
    settings: String,
    user: Arc<OnceLock<String>>,
    observed: Option<Observed>,
    logged: Option<(String, Mono)>,
}

impl Elector {
    /// An elector that has not made an attempt yet.
    #[must_use]
    pub fn new(
        config: LeaseConfig,
        connection: Connection,
        env: Env,
        metrics: LeaseMetrics,
        leadership: Arc<Leadership>,
    ) -> Self {
        metrics.set_leading(&config.name, false);
        let (settings, user) = (String::new(), Arc::default());
        Self { config, connection, env, metrics, leadership, settings, user, observed: None, logged: None }
    }

    /// The same, which writes its settings to the Lease, and the user name once it is known.
    #[must_use]
    pub fn with_settings(self, settings: String, user: Arc<OnceLock<String>>) -> Self {
        Self { settings, user, ..self }
    }

    /// Makes attempts until `stop` is set. It does not release the Lease: see [`Elector::release`].
    pub async fn run(&mut self, stop: &mut watch::Receiver<bool>) {
        loop {
            let attempt = self.attempt().await;
            self.apply_attempt(attempt);
            let leads = self.leadership.term(self.env.now()).is_some();
            let pause = if leads { self.config.retry_period } else { self.standby_pause() };
            let stopped = self.env.timeout_at(self.env.now() + pause, stop.wait_for(|stop| *stop)).await;
            if stopped.is_some() {
                return;
            }
        }
    }

    /// The pause until the next read, or until the Lease of another holder expires: a standby acquires it at that time, not
    /// later.
    fn standby_pause(&self) -> Duration {
        let pause = self.env.jitter(self.config.retry_period, JITTER - 1.0);
        let held = self.observed.as_ref().filter(|observed| self.waits_for(observed));
        held.map_or(pause, |held| pause.min(held.duration.saturating_sub(self.env.now().since(held.since))))
    }

    /// Stops writing. Requests of the authority may still be in flight afterwards.
    pub fn resign(&mut self) {
        if self.leadership.term(self.env.now()).is_some() {
            tracing::info!(event = LogEvent::LeaderLost.name(), identity = %self.config.identity, "stops leading");
            self.stop_leading();
        }
    }

    /// Releases the Lease, so that the next leader need not wait. Call it only after the last write has ended.
    pub async fn release(&mut self) {
        let Some(observed) = self.observed.clone().filter(|observed| observed.holder == self.config.identity) else {
            return;
        };
        let mut spec = self.spec(observed.transitions);
        spec["holderIdentity"] = Value::Null;
        // client-go writes one second: other processes may acquire the Lease at once.
        spec["leaseDurationSeconds"] = json!(1);
        if let Err(error) = self.write(&observed, &spec).await {
            tracing::warn!(error = %error_chain(&error), "could not release the lease; the next leader waits until it expires");
        }
    }

    fn apply_attempt(&mut self, attempt: Result<Attempt, ApiError>) {
        let now = self.env.now();
        let led = self.leadership.notifier.lock().leads;
        match attempt {
            Ok(Attempt::Held(sent)) => {
                let began = self.leadership.leading_since(now);
                let lapsed = led && began.is_none();
                let (began, ends) = (began.unwrap_or(now), sent + self.config.renew_deadline);
                self.leadership.set(Some(Term { began, ends }));
                if !led {
                    tracing::info!(event = LogEvent::LeaderElected.name(), identity = %self.config.identity, lease = %self.config.name, "leads");
                    self.metrics.set_leading(&self.config.name, true);
                    self.metrics.count_change(true);
                    self.logged = None;
                } else if lapsed {
                    // No loss was delivered, but requests in between were refused: subscribers must decide again.
                    self.leadership.notifier.lock().notify(true);
                }
                return;
            }
            Ok(Attempt::HeldBy(holder)) => {
                if led {
                    tracing::warn!(
                        event = LogEvent::LeaderLost.name(),
                        holder,
                        "another process took the lease; stops writing"
                    );
                    self.stop_leading();
                }
                let message = format!("{holder} leads; this process stands by");
                self.log(now, holder, &message);
            }
            Err(error) => {
                let message = format!("cannot renew or take the lease: {}", error_chain(&error));
                self.log(now, error.category().to_owned(), &message);
            }
        }
        if led && self.leadership.term(now).is_none() {
            tracing::warn!(
                event = LogEvent::LeaderLost.name(),
                "the lease could not be renewed in time; stops writing"
            );
            self.stop_leading();
        }
    }

    fn stop_leading(&self) {
        self.leadership.set(None);
        self.metrics.set_leading(&self.config.name, false);
        self.metrics.count_change(false);
    }

    /// Logs a message, at most once a minute for each topic. The message itself has numbers that change.
    fn log(&mut self, now: Mono, topic: String, message: &str) {
        let is_due = self.logged.as_ref().is_none_or(|(last, at)| *last != topic || now.since(*at) >= LOG_INTERVAL);
        if is_due {
            tracing::info!(lease = %self.config.name, namespace = %self.config.namespace, "{message}");
            self.logged = Some((topic, now));
        }
    }

    /// One attempt: renew without reading if this process holds the Lease, else read it first.
    async fn attempt(&mut self) -> Result<Attempt, ApiError> {
        let held = self.observed.clone().filter(|observed| observed.holder == self.config.identity);
        if let Some(observed) = held {
            match self.acquire(&observed, observed.transitions).await {
                Err(error) if error.is_changed() || error.is_not_found() => {}
                tried => return tried,
            }
        }
        self.read_lease().await?;
        let Some(observed) = self.observed.clone() else { return self.create().await };
        let expired = self.env.now().since(observed.since) >= observed.duration;
        if observed.holder == self.config.identity {
            self.acquire(&observed, observed.transitions).await
        } else if observed.holder.is_empty() || expired {
            self.acquire(&observed, observed.transitions.saturating_add(1)).await
        } else {
            Ok(Attempt::HeldBy(observed.holder))
        }
    }

    /// Reads the Lease. If it is unchanged, the time at which it was first seen stays.
    async fn read_lease(&mut self) -> Result<(), ApiError> {
        let path = format!("{}/{}", self.config.collection(), self.config.name);
        match self.connection.send(Call::get(path).with_deadline(self.call_deadline())).await {
            Ok(raw) => self.set_observed(raw.decode().map_err(ApiError::Undecodable)?),
            Err(error) if error.is_not_found() => {
                // The Lease was deleted, and its holder may not know that yet: its duration is waited out.
                self.observed = self.observed.take().filter(|held| self.waits_for(held));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether another process held the Lease when it was last seen, and its duration is not over.
    fn waits_for(&self, observed: &Observed) -> bool {
        let Observed { holder, duration, since, .. } = observed;
        let held = !holder.is_empty() && *holder != self.config.identity;
        held && self.env.now().since(*since) < *duration
    }

    fn set_observed(&mut self, lease: wire::Lease) {
        let spec = lease.spec.unwrap_or_default();
        let version = lease.metadata.and_then(|meta| meta.resource_version).unwrap_or_default();
        if self.observed.as_ref().is_some_and(|observed| observed.version == version) {
            return;
        }
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        self.observed = Some(Observed {
            version,
            holder: spec.holder_identity.unwrap_or_default(),
            // A Lease without a duration was not written by an elector.
            duration: seconds.map_or(self.config.lease_duration, Duration::from_secs),
            transitions: spec.lease_transitions.unwrap_or(0),
            renewed: spec.renew_time.and_then(wire::Time::timestamp),
            since: self.env.now(),
        });
    }

    async fn acquire(&mut self, observed: &Observed, transitions: i32) -> Result<Attempt, ApiError> {
        let sent = self.env.now();
        let mut spec = self.spec(transitions);
        if observed.holder != self.config.identity {
            spec["acquireTime"] = spec["renewTime"].clone();
        }
        let lease = self.write(observed, &spec).await?;
        if observed.holder != self.config.identity {
            *self.leadership.predecessor_renewed_at.lock() = observed.renewed;
        }
        self.set_observed(lease);
        Ok(Attempt::Held(sent))
    }

    /// Writes by compare-and-swap: it fails if the Lease changed since it was observed. A patch keeps fields that this
    /// program does not know.
    async fn write(&self, observed: &Observed, spec: &Value) -> Result<wire::Lease, ApiError> {
        let mut body = json!({ "metadata": { "resourceVersion": observed.version }, "spec": spec });
        if let Some(user) = self.user.get() {
            body["metadata"]["annotations"] =
                json!({ LEADER_ANNOTATION: format!("{} {} user={user}", self.config.identity, self.settings) });
        }
        let path = format!("{}/{}", self.config.collection(), self.config.name);
        let call = Call::write(Method::Patch, path, &body).with_deadline(self.call_deadline());
        self.connection.send(call).await?.decode().map_err(ApiError::Undecodable)
    }

    async fn create(&mut self) -> Result<Attempt, ApiError> {
        let sent = self.env.now();
        let mut spec = self.spec(0);
        spec["acquireTime"] = spec["renewTime"].clone();
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": self.config.name, "namespace": self.config.namespace },
            "spec": spec,
        });
        let call = Call::write(Method::Post, self.config.collection(), &body).with_deadline(self.call_deadline());
        let lease = self.connection.send(call).await?.decode().map_err(ApiError::Undecodable)?;
        self.set_observed(lease);
        Ok(Attempt::Held(sent))
    }

    fn spec(&self, transitions: i32) -> Value {
        json!({
            "holderIdentity": self.config.identity,
            "leaseDurationSeconds": self.config.lease_duration.as_secs(),
            "renewTime": format!("{:.6}", self.env.clock.wall()),
            "leaseTransitions": transitions,
        })
    }

    /// Half the renew deadline: after one lost answer there is time for another attempt.
    fn call_deadline(&self) -> Mono {
        self.env.now() + self.config.renew_deadline / 2
    }
}

#[cfg(test)]
mod tests;
