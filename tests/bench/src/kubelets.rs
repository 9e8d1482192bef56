//! Heartbeats as in a real cluster: each node's Lease is renewed every ten seconds, directly in etcd, so that the API server's only work
//! is to notify watchers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use k8s_openapi::ByteString;
use prost::Message;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::etcd::{Etcd, Stored};

/// The kubelet's default.
const PERIOD: Duration = Duration::from_secs(10);

/// How many tasks renew concurrently.
const WORKERS: usize = 4;

/// Where the Leases of nodes are stored.
const PREFIX: &str = "/registry/leases/kube-node-lease/";

/// The prefix of every stored object.
const MAGIC: &[u8] = b"k8s\0";

/// `runtime.Unknown`: the envelope of a stored object.
#[derive(Clone, PartialEq, Message)]
struct Envelope {
    #[prost(bytes = "vec", optional, tag = "1")]
    type_meta: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "2")]
    raw: Option<Vec<u8>>,
    #[prost(string, optional, tag = "3")]
    content_encoding: Option<String>,
    #[prost(string, optional, tag = "4")]
    content_type: Option<String>,
}

/// A Lease. Unchanged parts remain bytes, so that nothing is lost.
#[derive(Clone, PartialEq, Message)]
struct Lease {
    #[prost(bytes = "vec", optional, tag = "1")]
    metadata: Option<Vec<u8>>,
    #[prost(message, optional, tag = "2")]
    spec: Option<LeaseSpec>,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseSpec {
    #[prost(string, optional, tag = "1")]
    holder_identity: Option<String>,
    #[prost(int32, optional, tag = "2")]
    lease_duration_seconds: Option<i32>,
    #[prost(message, optional, tag = "3")]
    acquire_time: Option<Time>,
    #[prost(message, optional, tag = "4")]
    renew_time: Option<Time>,
}

#[derive(Clone, PartialEq, Message)]
struct Time {
    #[prost(int64, optional, tag = "1")]
    seconds: Option<i64>,
    #[prost(int32, optional, tag = "2")]
    nanos: Option<i32>,
}

/// The state of one node's Lease.
#[derive(Clone, Copy, Debug)]
struct LeaseState {
    /// When etcd had stored its last renewal.
    last: Instant,
    /// It is not renewed any more.
    stopped: bool,
}

type LeaseStates = Arc<Mutex<BTreeMap<String, LeaseState>>>;

/// Renews Leases until it is dropped.
pub(crate) struct Kubelets {
    tasks: JoinSet<Result<()>>,
    renewed: Arc<AtomicUsize>,
    leases: LeaseStates,
}

impl Kubelets {
    /// For all nodes.
    pub(crate) async fn start(etcd: &Etcd) -> Result<Self> {
        Self::start_some(etcd, usize::MAX).await
    }

    /// For this many nodes.
    pub(crate) async fn start_some(etcd: &Etcd, count: usize) -> Result<Self> {
        let leases = etcd.all(PREFIX).await?.into_iter().take(count);
        let leases = leases.map(StoredLease::decode).collect::<Result<Vec<_>>>()?;
        let (renewed, states) = (Arc::new(AtomicUsize::new(0)), LeaseStates::default());
        let mut tasks = JoinSet::new();
        let share = leases.len().div_ceil(WORKERS).max(1);
        for stored in leases.chunks(share) {
            tasks.spawn(renew_leases(etcd.clone(), stored.to_vec(), Arc::clone(&renewed), Arc::clone(&states)));
        }
        Ok(Self { tasks, renewed, leases: states })
    }

    /// These nodes are lost: their Leases are not renewed from now on.
    pub(crate) fn stop_renewing(&self, nodes: &[String]) {
        let mut states = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        for node in nodes {
            if let Some(lease) = states.get_mut(node) {
                lease.stopped = true;
            }
        }
    }

    /// When this node's Lease was renewed for the last time.
    pub(crate) fn last_renewal(&self, node: &str) -> Option<Instant> {
        let states = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        states.get(node).map(|lease| lease.last)
    }

    /// How many renewals there were so far.
    pub(crate) fn renewed(&self) -> usize {
        self.renewed.load(Ordering::Relaxed)
    }

    /// Stops the renewals; fails if one of them failed.
    pub(crate) fn stop(mut self) -> Result<()> {
        match self.tasks.try_join_next() {
            Some(ended) => ended?,
            None => Ok(()),
        }
    }
}

#[derive(Clone)]
struct StoredLease {
    key: ByteString,
    envelope: Envelope,
    lease: Lease,
}

impl StoredLease {
    fn decode(stored: Stored) -> Result<Self> {
        let bytes = stored.value.0.strip_prefix(MAGIC).context("a Lease in a form that cannot be read")?;
        let envelope = Envelope::decode(bytes)?;
        let lease = Lease::decode(envelope.raw.as_deref().context("an empty Lease")?)?;
        Ok(Self { key: stored.key, envelope, lease })
    }

    /// The node's name, which is also the Lease's.
    fn node(&self) -> String {
        String::from_utf8_lossy(self.key.0.strip_prefix(PREFIX.as_bytes()).unwrap_or_default()).into_owned()
    }

    /// The object, renewed at `now` since the Unix epoch.
    fn renewed(&mut self, now: Duration) -> Vec<u8> {
        let seconds = i64::try_from(now.as_secs()).ok();
        // Leases have times in microseconds.
        let nanos = i32::try_from(now.subsec_micros() * 1_000).ok();
        self.lease.spec.get_or_insert_default().renew_time = Some(Time { seconds, nanos });
        self.envelope.raw = Some(self.lease.encode_to_vec());
        [MAGIC, &self.envelope.encode_to_vec()].concat()
    }
}

async fn renew_leases(
    etcd: Etcd,
    mut stored: Vec<StoredLease>,
    renewed: Arc<AtomicUsize>,
    states: LeaseStates,
) -> Result<()> {
    let Ok(count) = u32::try_from(stored.len()) else { return Ok(()) };
    let mut ticks = tokio::time::interval(PERIOD / count.max(1));
    // Late renewals are caught up, because the rate is measured.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    loop {
        for stored_lease in &mut stored {
            ticks.tick().await;
            let node = stored_lease.node();
            let stopped = |states: &BTreeMap<String, LeaseState>| states.get(&node).is_some_and(|lease| lease.stopped);
            if stopped(&states.lock().unwrap_or_else(PoisonError::into_inner)) {
                continue;
            }
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let value = stored_lease.renewed(now);
            etcd.put(&stored_lease.key, value).await?;
            renewed.fetch_add(1, Ordering::Relaxed);
            let mut states = states.lock().unwrap_or_else(PoisonError::into_inner);
            let first = LeaseState { last: Instant::now(), stopped: false };
            states.entry(node).or_insert(first).last = first.last;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_changes_the_time_and_nothing_else() {
        let metadata = Some(b"\x0a\x06node-1 and what we do not know".to_vec());
        let spec = LeaseSpec { holder_identity: Some("node-1".to_owned()), ..LeaseSpec::default() };
        let lease = Lease { metadata: metadata.clone(), spec: Some(spec) };
        let envelope = Envelope { raw: Some(lease.encode_to_vec()), ..Envelope::default() };
        let value = ByteString([MAGIC, &envelope.encode_to_vec()].concat());
        let mut stored_lease = StoredLease::decode(Stored { key: ByteString(b"key".to_vec()), value }).unwrap();

        let value = ByteString(stored_lease.renewed(Duration::new(1_700_000_000, 123_456_789)));
        let after = StoredLease::decode(Stored { key: ByteString(b"key".to_vec()), value }).unwrap().lease;
        assert_eq!(after.metadata, metadata);
        let spec = after.spec.unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some("node-1"));
        let time = spec.renew_time.unwrap();
        assert_eq!((time.seconds, time.nanos), (Some(1_700_000_000), Some(123_456_000)));
    }

    #[test]
    fn an_object_that_is_no_lease_is_refused() {
        let stored = Stored { key: ByteString(b"key".to_vec()), value: ByteString(b"{}".to_vec()) };
        assert!(StoredLease::decode(stored).is_err());
    }
}
