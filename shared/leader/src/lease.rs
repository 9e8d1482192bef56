//! Leadership: one process writes at a time.
//!
//! The rules are client-go's. A lease held by somebody else may be taken when it
//! has not changed for its own duration *since we saw it change*, on our
//! monotonic clock; times written by others are never compared with ours. A
//! leader counts its term from before it *sent* the renewal that succeeded, and
//! stops writing a renew deadline later, which is shorter than the duration for
//! which others wait: so writes end before the next leader can start.

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

/// Client-go's margin: a renewal must fit into the deadline with its jitter.
/// docs/assumptions.md: clocks-run-on
const JITTER: f64 = 1.2;

/// In this annotation of its Lease the leader says its identity, its settings, and as whom the API server knows it:
/// `ID mode=MODE controllers=LIST user=USER`. An annotation of another identity is of an earlier leader.
pub const LEADER_ANNOTATION: &str = "pod-safety.dev/leader";

/// How often a lasting trouble, or another's long leadership, is logged again.
const LOG_AGAIN: Duration = Duration::from_secs(60);

/// Which lease, and by what timing.
#[derive(Clone, Debug)]
pub struct LeaseConfig {
    /// The namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who we are; unique to this process.
    pub identity: String,
    /// For how long others wait after our last renewal.
    pub lease_duration: Duration,
    /// For how long after our last renewal we write.
    pub renew_deadline: Duration,
    /// How often we try.
    pub retry_period: Duration,
}

/// Timing by which two could write at once, or none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTiming {
    /// Others would start while we still write.
    #[error(
        "--leader-elect-lease-duration={lease:?} must be longer than --leader-elect-renew-deadline={renew:?}: a leader must stop before the next one starts"
    )]
    LeaseTooShort {
        /// The duration.
        lease: Duration,
        /// The deadline.
        renew: Duration,
    },
    /// A single try would not fit into the deadline.
    #[error(
        "--leader-elect-renew-deadline={renew:?} must be longer than 1.2 times --leader-elect-retry-period={retry:?}: otherwise a leader gives up before its second try"
    )]
    RenewTooShort {
        /// The deadline.
        renew: Duration,
        /// The period.
        retry: Duration,
    },
    /// The API counts whole seconds, at least one.
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
    /// What is wrong with it, in words for a person.
    pub fn check(&self) -> Result<(), BadTiming> {
        let Self { lease_duration: lease, renew_deadline: renew, retry_period: retry, .. } = *self;
        if lease < Duration::from_secs(1) {
            return Err(BadTiming::LeaseBelowOneSecond { lease });
        }
        // Others read whole seconds, and wait no longer.
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

/// A stretch of time in which this process may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    began: Mono,
    ends: Mono,
}

impl Term {
    /// When the right to write ends, unless it is renewed.
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

/// What those who wait for news were told last.
///
/// Each has a channel of its own: one channel wakes its many receivers in an order
/// drawn by chance, and then who writes first depends on chance, too.
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
    /// Nobody leads yet.
    #[must_use]
    pub fn none() -> Arc<Self> {
        Arc::new(Self {
            term: Mutex::default(),
            notifier: Mutex::default(),
            predecessor_renewed_at: Mutex::default(),
        })
    }

    /// Without election this process leads for ever.
    #[must_use]
    pub fn always() -> Arc<Self> {
        let leadership = Self::none();
        leadership.set(Some(Term { began: Mono::default(), ends: Mono::from_start(Duration::MAX) }));
        leadership
    }

    /// The same, after a leader that renewed last at this moment: for tests of what a new leader takes over.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn always_after(renewed: Timestamp) -> Arc<Self> {
        let leadership = Self::always();
        *leadership.predecessor_renewed_at.lock() = Some(renewed);
        leadership
    }

    /// A term that an election would have to give, for tests of the authority.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn for_tests(ends: Mono) -> Arc<Self> {
        let leadership = Self::none();
        leadership.set(Some(Term { began: Mono::default(), ends }));
        leadership
    }

    /// The beginning of it, without an end.
    #[cfg(any(test, feature = "testing"))]
    pub fn lead_for_tests(&self) {
        self.set(Some(Term { began: Mono::default(), ends: Mono::from_start(Duration::MAX) }));
    }

    /// The end of it.
    #[cfg(any(test, feature = "testing"))]
    pub fn end_for_tests(&self) {
        self.set(None);
    }

    /// The term, if it lasts at `now`. Ask right before each write.
    #[must_use]
    pub fn term(&self, now: Mono) -> Option<Term> {
        self.term.lock().filter(|term| now < term.ends)
    }

    /// Since when this process leads without a break: the API server was reached each time that it renewed.
    #[must_use]
    pub fn leading_since(&self, now: Mono) -> Option<Mono> {
        self.term(now).map(|term| term.began)
    }

    /// When the leader before this one last renewed the lease, by its clock; `None`: there was none. For traces and people.
    #[must_use]
    pub fn predecessor_renewed_at(&self) -> Option<Timestamp> {
        *self.predecessor_renewed_at.lock()
    }

    /// Hears of gains and losses. A loss may be heard late; [`Leadership::term`] is exact. A
    /// term that had run out before it was renewed is told as another gain.
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

/// The lease as we last saw it.
#[derive(Clone, Debug)]
struct Observed {
    version: String,
    holder: String,
    duration: Duration,
    transitions: i32,
    /// By its holder's clock.
    renewed: Option<Timestamp>,
    /// When we first saw it like this.
    since: Mono,
}

enum Attempt {
    /// We hold it, by a renewal that was sent at this moment.
    Held(Mono),
    /// Somebody else does.
    HeldBy(String),
}

/// Takes and keeps the lease.
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
    /// An elector that has not tried yet.
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

    /// The same, which says in the Lease its settings and as whom the API server knows it, once that is known.
    #[must_use]
    pub fn with_settings(self, settings: String, user: Arc<OnceLock<String>>) -> Self {
        Self { settings, user, ..self }
    }

    /// Tries for ever, until `stop` is set. Does not give the lease back: see
    /// [`Elector::release`].
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

    /// Until the next look, or until the lease ends that another holds: a standby takes it then, and not a look later.
    fn standby_pause(&self) -> Duration {
        let pause = self.env.jitter(self.config.retry_period, JITTER - 1.0);
        let held = self.observed.as_ref().filter(|observed| self.waits_for(observed));
        held.map_or(pause, |held| pause.min(held.duration.saturating_sub(self.env.now().since(held.since))))
    }

    /// Stops writing. After this the authority may still be finishing requests.
    pub fn resign(&mut self) {
        if self.leadership.term(self.env.now()).is_some() {
            tracing::info!(event = LogEvent::LeaderLost.name(), identity = %self.config.identity, "stops leading");
            self.stop_leading();
        }
    }

    /// Gives the lease back so that the next leader need not wait. Only after
    /// the last write has ended.
    pub async fn release(&mut self) {
        let Some(observed) = self.observed.clone().filter(|observed| observed.holder == self.config.identity)
        else {
            return;
        };
        let mut spec = self.spec(observed.transitions);
        spec["holderIdentity"] = Value::Null;
        // client-go writes one second: whoever looks may take it at once.
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
                    // A loss was never told, but what was asked for meanwhile was turned away.
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

    /// Says it once a minute. The topic tells what is new: a message has numbers.
    fn log(&mut self, now: Mono, topic: String, message: &str) {
        let again =
            self.logged.as_ref().is_none_or(|(said, at)| *said != topic || now.since(*at) >= LOG_AGAIN);
        if again {
            tracing::info!(lease = %self.config.name, namespace = %self.config.namespace, "{message}");
            self.logged = Some((topic, now));
        }
    }

    /// One try: renew without asking if we hold it, else look first.
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

    /// Reads the lease; an unchanged one keeps the moment at which we first saw it.
    async fn read_lease(&mut self) -> Result<(), ApiError> {
        let path = format!("{}/{}", self.config.collection(), self.config.name);
        match self.connection.send(Call::get(path).with_deadline(self.call_deadline())).await {
            Ok(raw) => self.set_observed(raw.decode().map_err(ApiError::Undecodable)?),
            Err(error) if error.is_not_found() => {
                // Somebody deleted it, and its holder may not know that yet: its time is waited out.
                self.observed = self.observed.take().filter(|held| self.waits_for(held));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether another holds it, as it was last seen, and its time is not over.
    fn waits_for(&self, observed: &Observed) -> bool {
        let Observed { holder, duration, since, .. } = observed;
        let held = !holder.is_empty() && *holder != self.config.identity;
        held && self.env.now().since(*since) < *duration
    }

    fn set_observed(&mut self, lease: wire::Lease) {
        let spec = lease.spec.unwrap_or_default();
        let version = lease.metadata.and_then(|meta| meta.resource_version).unwrap_or_default();
        if self.observed.as_ref().is_some_and(|known| known.version == version) {
            return;
        }
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        self.observed = Some(Observed {
            version,
            holder: spec.holder_identity.unwrap_or_default(),
            // A lease without a duration was not written by any elector.
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

    /// Compare-and-swap: fails if the lease changed since it was observed. A
    /// patch, so that fields which we do not know survive.
    async fn write(&self, observed: &Observed, spec: &Value) -> Result<wire::Lease, ApiError> {
        let mut body = json!({ "metadata": { "resourceVersion": observed.version }, "spec": spec });
        if let Some(user) = self.user.get() {
            body["metadata"]["annotations"] = json!({ LEADER_ANNOTATION: format!("{} {} user={user}", self.config.identity, self.settings) });
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
        let call =
            Call::write(Method::Post, self.config.collection(), &body).with_deadline(self.call_deadline());
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

    /// Half the renew deadline: after one lost answer there is time for another try.
    fn call_deadline(&self) -> Mono {
        self.env.now() + self.config.renew_deadline / 2
    }
}

#[cfg(test)]
mod tests;
