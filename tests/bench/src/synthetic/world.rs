//! The objects of a cluster of any size, each generated from its number on request. No object is stored.

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use prost::Message as _;

use super::marks;
use super::messages::Time;
use super::renewals::RenewalSchedule;
use super::template::{Place, Template, Values, place};
use super::writes::Writes;

/// The maximum number of placeholders of an object.
const PLACES: usize = 10;

/// The values of the placeholders of an object.
pub(crate) type Rendered = Values<PLACES>;

const NAME: usize = 0;
const UID: usize = 1;
const VERSION: usize = 2;
/// Placeholders of a pod: its node, its ReplicaSet, the UID of that, and the prefix of its name.
const NODE: usize = 3;
const APP: usize = 4;
const APP_UID: usize = 5;
const APP_PREFIX: usize = 6;
const PHASE: usize = 7;
/// Placeholders of a node.
const ZONE: usize = 3;
const CIDR: usize = 4;
const PROVIDER: usize = 5;
const ADDRESS: usize = 6;
const MACHINE: usize = 7;
const SYSTEM: usize = 8;
const BOOT: usize = 9;
/// Placeholders of a Lease.
const NODE_UID: usize = 3;
const RENEWED: usize = 4;

const fn of_label(value: usize, was: &'static str) -> Place {
    Place { path: &[1, 11, 2], was: Some(was), value }
}

const OF_PODS: [Place; 9] = [
    place(NAME, &[1, 1]),
    place(APP_PREFIX, &[1, 2]),
    place(UID, &[1, 5]),
    place(VERSION, &[1, 6]),
    of_label(APP, "p-app-0"),
    place(APP, &[1, 13, 3]),
    place(APP_UID, &[1, 13, 4]),
    place(NODE, &[2, 10]),
    place(PHASE, &[3, 1]),
];

const OF_NODES: [Place; 13] = [
    place(NAME, &[1, 1]),
    place(UID, &[1, 5]),
    place(VERSION, &[1, 6]),
    of_label(NAME, "node-0"),
    of_label(ZONE, "zone-0"),
    place(CIDR, &[2, 1]),
    place(CIDR, &[2, 7]),
    place(PROVIDER, &[2, 3]),
    Place { path: &[3, 5, 2], was: Some("10.0.0.0"), value: ADDRESS },
    Place { path: &[3, 5, 2], was: Some("node-0"), value: NAME },
    place(MACHINE, &[3, 7, 1]),
    place(SYSTEM, &[3, 7, 2]),
    place(BOOT, &[3, 7, 3]),
];

const OF_LEASES: [Place; 7] = [
    place(NAME, &[1, 1]),
    place(UID, &[1, 5]),
    place(VERSION, &[1, 6]),
    place(NAME, &[1, 13, 3]),
    place(NODE_UID, &[1, 13, 4]),
    place(NAME, &[2, 1]),
    place(RENEWED, &[2, 4]),
];

const NODE_PATTERN: &[u8] = include_bytes!("../../testdata/node.pb");

/// Kinds that are listed and watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Pods,
    Nodes,
    Leases,
}

impl Kind {
    pub(crate) const fn api_version(self) -> &'static str {
        match self {
            Self::Pods | Self::Nodes => "v1",
            Self::Leases => "coordination.k8s.io/v1",
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Pods => "Pod",
            Self::Nodes => "Node",
            Self::Leases => "Lease",
        }
    }
}

/// Pods per ReplicaSet, as in the loader.
const PODS_PER_APP: usize = 20;

/// Zones, as in the loader.
pub(crate) const ZONES: usize = 3;

/// The resourceVersion of the first object.
const FIRST_VERSION: usize = 1_000;

/// The size of the cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    /// Other seeds give other UIDs.
    pub(crate) seed: u64,
    /// Nodes of the first zone that are deleted while their pods remain.
    pub(crate) lost: usize,
}

impl Size {
    pub(crate) const fn is_lost(&self, node: usize) -> bool {
        node.is_multiple_of(ZONES) && node / ZONES < self.lost
    }

    /// The version of an unchanged pod.
    const fn version_of(&self, pod: usize) -> usize {
        FIRST_VERSION + 2 * self.nodes + pod
    }

    /// The node of a pod.
    pub(crate) fn node_of(&self, pod: usize) -> usize {
        pod % self.nodes.max(1)
    }
}

pub(crate) struct World {
    pub(crate) size: Size,
    pub(crate) beats: RenewalSchedule,
    /// Pods that were marked Failed, or removed.
    pub(crate) pods_written: Writes,
    /// Nodes that were marked Unknown.
    pub(crate) nodes_written: Writes,
    /// The number of total renewals after which a node is not renewed any more.
    stopped_after: Vec<AtomicUsize>,
    pods: Template,
    nodes: Template,
    marked: Template,
    leases: Template,
}

impl World {
    /// With nodes as the loader creates them, or with the labels that a controller adds.
    pub(crate) fn new(size: Size, beats: RenewalSchedule, labelled: bool) -> Result<Self> {
        let node = if labelled { marks::labelled(NODE_PATTERN)? } else { NODE_PATTERN.to_vec() };
        Ok(Self {
            size,
            beats,
            pods_written: Writes::new(size.pods),
            nodes_written: Writes::new(size.nodes),
            stopped_after: (0..size.nodes).map(|_| AtomicUsize::new(usize::MAX)).collect(),
            pods: Template::new(include_bytes!("../../testdata/pod.pb"), &OF_PODS)?,
            nodes: Template::new(&node, &OF_NODES)?,
            marked: Template::new(&marks::marked(&node)?, &OF_NODES)?,
            leases: Template::new(include_bytes!("../../testdata/lease.pb"), &OF_LEASES)?,
        })
    }

    /// The template of the object of this number.
    pub(crate) fn template(&self, kind: Kind, number: usize) -> &Template {
        match kind {
            Kind::Pods => &self.pods,
            Kind::Nodes if self.nodes_written.changed(number).is_some() => &self.marked,
            Kind::Nodes => &self.nodes,
            Kind::Leases => &self.leases,
        }
    }

    pub(crate) const fn count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Pods => self.size.pods,
            Kind::Nodes | Kind::Leases => self.size.nodes,
        }
    }

    /// Whether the object of this number exists.
    pub(crate) fn has(&self, kind: Kind, number: usize) -> bool {
        number < self.count(kind)
            && !match kind {
                Kind::Pods => self.pods_written.is_gone(number),
                Kind::Nodes | Kind::Leases => self.size.is_lost(number),
            }
    }

    /// The version of a kind after this many changes: renewals of Leases, writes to pods.
    pub(crate) const fn version(&self, changes: usize) -> usize {
        FIRST_VERSION + 2 * self.size.nodes + self.size.pods + changes
    }

    /// The number of changes at this version.
    pub(crate) const fn changes_at(&self, version: usize) -> usize {
        version.saturating_sub(self.version(0))
    }

    /// The version of a pod: that of its last change, if it had one.
    pub(crate) fn version_of(&self, pod: usize, change: Option<usize>) -> usize {
        change.map_or_else(|| self.size.version_of(pod), |change| self.version(change))
    }

    /// The version of a node: that of its last change, if it had one.
    pub(crate) fn node_version(&self, node: usize) -> usize {
        self.nodes_written.changed(node).map_or(FIRST_VERSION + node, |change| self.version(change))
    }

    /// The writes to the objects of this kind. Lease renewals are calculated.
    pub(crate) const fn written(&self, kind: Kind) -> Option<&Writes> {
        match kind {
            Kind::Pods => Some(&self.pods_written),
            Kind::Nodes => Some(&self.nodes_written),
            Kind::Leases => None,
        }
    }

    /// Stops the renewals of this node after this many total renewals.
    pub(crate) fn stop_renewing(&self, node: usize, renewals: usize) {
        if let Some(silent_after) = self.stopped_after.get(node) {
            silent_after.store(renewals, Ordering::Relaxed);
        }
    }

    /// Whether this renewal did not happen.
    pub(crate) fn is_stopped(&self, node: usize, renewal: usize) -> bool {
        renewal > self.stopped_after[node].load(Ordering::Relaxed)
    }

    /// The last renewal of a node, after this many total renewals.
    pub(crate) fn last_renewal(&self, node: usize, renewals: usize) -> Option<usize> {
        self.beats.last(node, renewals.min(self.stopped_after[node].load(Ordering::Relaxed)))
    }

    /// Generates a pod as of this change.
    pub(crate) fn make_pod(&self, pod: usize, change: Option<usize>, made: &mut Rendered) {
        self.make(Kind::Pods, pod, 0, made);
        for (value, text) in [
            (VERSION, self.version_of(pod, change).to_string()),
            (PHASE, if change.is_some() { "Failed" } else { "Running" }.to_owned()),
        ] {
            made[value] = text.into_bytes();
        }
    }

    /// Generates the object of this number after this many renewals. It must be an unchanged pod, if it is a pod.
    pub(crate) fn make(&self, kind: Kind, number: usize, renewals: usize, made: &mut Rendered) {
        let mut set = |value: usize, text: std::fmt::Arguments<'_>| {
            made[value].clear();
            // Writing to a vector does not fail.
            let _always = made[value].write_fmt(text);
        };
        let uid = |of: UidOwner, number: usize| Uid::derive(self.size.seed, of, number);
        match kind {
            Kind::Pods => {
                let app = number / PODS_PER_APP;
                set(NAME, format_args!("p-{number}"));
                set(UID, format_args!("{}", uid(UidOwner::Pod, number)));
                set(VERSION, format_args!("{}", self.version_of(number, None)));
                set(NODE, format_args!("node-{}", self.size.node_of(number)));
                set(PHASE, format_args!("Running"));
                set(APP, format_args!("p-app-{app}"));
                set(APP_UID, format_args!("{}", uid(UidOwner::App, app)));
                set(APP_PREFIX, format_args!("p-app-{app}-"));
            }
            Kind::Nodes => {
                set(NAME, format_args!("node-{number}"));
                set(UID, format_args!("{}", uid(UidOwner::Node, number)));
                set(VERSION, format_args!("{}", self.node_version(number)));
                set(ZONE, format_args!("zone-{}", number % ZONES));
                set(CIDR, format_args!("10.{}.{}.0/24", 1 + (number >> 8 & 0x7f), number & 0xff));
                set(PROVIDER, format_args!("load:///node-{number}"));
                set(ADDRESS, format_args!("10.0.{}.{}", number >> 8 & 0xff, number & 0xff));
                set(MACHINE, format_args!("{}", uid(UidOwner::Machine, number)));
                set(SYSTEM, format_args!("{}", uid(UidOwner::System, number)));
                set(BOOT, format_args!("{}", uid(UidOwner::Boot, number)));
            }
            Kind::Leases => {
                let renewal = self.last_renewal(number, renewals);
                let version = renewal.map_or(FIRST_VERSION + self.size.nodes + number, |one| self.version(one));
                set(NAME, format_args!("node-{number}"));
                set(UID, format_args!("{}", uid(UidOwner::Lease, number)));
                set(VERSION, format_args!("{version}"));
                set(NODE_UID, format_args!("{}", uid(UidOwner::Node, number)));
                made[RENEWED] = stamp(self.beats.moment(renewal.unwrap_or(0))).encode_to_vec();
            }
        }
    }
}

/// The name, UID and version of an unchanged pod.
pub(crate) fn pod(size: Size, pod: usize) -> (String, String, String) {
    (format!("p-{pod}"), Uid::derive(size.seed, UidOwner::Pod, pod).to_string(), size.version_of(pod).to_string())
}

/// A time in microseconds, as in Leases.
fn stamp(since_1970: Duration) -> Time {
    let nanos = i32::try_from(since_1970.subsec_micros() * 1_000).ok();
    Time { seconds: i64::try_from(since_1970.as_secs()).ok(), nanos }
}

/// The owner of a UID.
#[derive(Clone, Copy)]
enum UidOwner {
    Pod = 1,
    App,
    Node,
    Lease,
    Machine,
    System,
    Boot,
}

/// A deterministic random UUID.
struct Uid(u64, u64);

impl Uid {
    fn derive(seed: u64, of: UidOwner, number: usize) -> Self {
        let number = seed ^ (of as u64) << 56 ^ (number as u64) << 1;
        Self(mixed(number), mixed(number | 1))
    }
}

/// `splitmix64`.
const fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

impl std::fmt::Display for Uid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(high, low) = self;
        let [a, b, c] = [high >> 32, high >> 16 & 0xffff, high & 0xfff];
        let [d, e] = [low >> 48 & 0x3fff | 0x8000, low & 0xffff_ffff_ffff];
        write!(f, "{a:08x}-{b:04x}-4{c:03x}-{d:04x}-{e:012x}")
    }
}

#[cfg(test)]
impl World {
    const fn places(kind: Kind) -> &'static [Place] {
        match kind {
            Kind::Pods => &OF_PODS,
            Kind::Nodes => &OF_NODES,
            Kind::Leases => &OF_LEASES,
        }
    }

    /// The paths of the fields that differ between objects of a kind.
    pub(crate) fn paths(kind: Kind) -> impl Iterator<Item = &'static [usize]> {
        Self::places(kind).iter().map(|place| place.path)
    }

    /// Copies the values of `object` that no number determines: UIDs, versions, times.
    pub(crate) fn take_what_chance_decides(&self, kind: Kind, object: &[u8], made: &mut Rendered) {
        let chance: &[usize] = match kind {
            Kind::Pods => &[UID, VERSION, APP_UID],
            Kind::Nodes => &[UID, VERSION, MACHINE, SYSTEM, BOOT],
            Kind::Leases => &[UID, VERSION, NODE_UID, RENEWED],
        };
        for place in Self::places(kind).iter().filter(|place| chance.contains(&place.value)) {
            let value =
                place.path.iter().try_fold(object, |message, number| super::template::content(message, *number));
            made[place.value] = value.map_or_else(Vec::new, <[u8]>::to_vec);
        }
    }
}
