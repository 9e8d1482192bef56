//! Where a pod would fit: requests of CPU and memory, the number of pods, node selector, taints, cordons. A simple
//! check, and reported as one: affinity, topology spread and volumes are not checked.

use std::collections::{BTreeMap, BTreeSet};

use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::model::{DEFAULT_GRACE, Pod, Readiness, Uid, compare_turns};
use pod_safety_shared::wire;

use super::quantity::thousandths;

/// The pods that a node without `allocatable.pods` takes (the kubelet's default).
const DEFAULT_PODS: i128 = 110;

/// Requests in thousandths of a CPU and of a byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amounts {
    cpu: i128,
    memory: i128,
}

impl Amounts {
    fn from_map(map: &BTreeMap<String, wire::Quantity>) -> Option<Self> {
        Self::default().replaced_by(map)
    }

    /// With the amounts of `map` in place of its own.
    fn replaced_by(self, map: &BTreeMap<String, wire::Quantity>) -> Option<Self> {
        let read = |key: &str, own: i128| match map.get(key) {
            Some(quantity) => thousandths(quantity.text.as_deref().unwrap_or_default()),
            None => Some(own),
        };
        Some(Self { cpu: read("cpu", self.cpu)?, memory: read("memory", self.memory)? })
    }

    const fn plus(self, other: Self) -> Self {
        Self { cpu: self.cpu + other.cpu, memory: self.memory + other.memory }
    }

    const fn minus(self, other: Self) -> Self {
        Self { cpu: self.cpu - other.cpu, memory: self.memory - other.memory }
    }

    fn max(self, other: Self) -> Self {
        Self { cpu: self.cpu.max(other.cpu), memory: self.memory.max(other.memory) }
    }
}

/// What a pod requests of a node, and what is lost with it.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    requests: Amounts,
    node_selector: BTreeMap<String, String>,
    tolerations: Vec<wire::Toleration>,
    /// Its termination grace period in seconds, at least one.
    pub grace: i64,
    /// It has data in an emptyDir volume that is lost with it.
    pub empty_dir: bool,
    /// It has rules or volumes that are not checked here.
    pub has_unchecked_rules: bool,
    /// It belongs to a gang: no EvictionRequest evicts it.
    pub gang: bool,
    /// The responders before the evictor of an EvictionRequest, in their order.
    pub responders: Vec<String>,
}

impl Needs {
    /// Reads them. A quantity that cannot be parsed counts as zero, and sets `has_unchecked_rules`.
    #[must_use]
    pub fn from_pod(pod: wire::PodNeeds) -> Self {
        let spec = pod.spec.unwrap_or_default();
        let requests = requests(&spec);
        let has = |source: fn(&wire::VolumeSource) -> bool| {
            spec.volumes.iter().filter_map(|volume| volume.source.as_ref()).any(source)
        };
        let rules = spec.affinity.is_some() || !spec.topology_spread_constraints.is_empty();
        Self {
            empty_dir: has(|source| source.empty_dir.is_some()),
            has_unchecked_rules: rules || requests.is_none() || has(|source| source.persistent_volume_claim.is_some()),
            requests: requests.unwrap_or_default(),
            gang: spec.scheduling_group.is_some(),
            responders: order_responders(&spec.eviction_responders),
            grace: spec.termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE).max(1),
            node_selector: spec.node_selector,
            tolerations: spec.tolerations,
        }
    }

    /// Whether the scheduler would bind it to a cordoned node (the plugin `NodeUnschedulable`).
    #[must_use]
    pub fn tolerates_cordon(&self) -> bool {
        let cordon = wire::Taint {
            key: Some("node.kubernetes.io/unschedulable".to_owned()),
            effect: Some("NoSchedule".to_owned()),
            ..wire::Taint::default()
        };
        self.tolerates(&cordon)
    }

    fn tolerates(&self, taint: &wire::Taint) -> bool {
        self.tolerations.iter().any(|toleration| tolerates_taint(toleration, taint))
    }
}

/// The names of responders in their order.
fn order_responders(responders: &[wire::EvictionResponder]) -> Vec<String> {
    let of = |one: &wire::EvictionResponder| (one.priority.unwrap_or_default(), one.name.clone().unwrap_or_default());
    let mut all: Vec<(i32, String)> = responders.iter().map(of).collect();
    all.sort_by(|one, other| compare_turns((&one.1, one.0), (&other.1, other.0)));
    all.into_iter().map(|(_, name)| name).collect()
}

/// What the scheduler adds up (`PodRequests`): the containers together, or an init container with the sidecars that
/// were started before it. The requests of the pod as a whole (KEP-2837) replace that sum.
fn requests(spec: &wire::PodNeedsSpec) -> Option<Amounts> {
    let of = |container: &wire::Container| {
        container
            .resources
            .as_ref()
            .map_or(Some(Amounts::default()), |resources| Amounts::from_map(&resources.requests))
    };
    let (mut beside, mut before) = (Amounts::default(), Amounts::default());
    for container in &spec.init_containers {
        if container.restart_policy.as_deref() == Some("Always") {
            beside = beside.plus(of(container)?);
        } else {
            before = before.max(beside.plus(of(container)?));
        }
    }
    for container in &spec.containers {
        beside = beside.plus(of(container)?);
    }
    let all = beside.max(before);
    let all = spec.resources.as_ref().map_or(Some(all), |of_pod| all.replaced_by(&of_pod.requests))?;
    Some(all.plus(Amounts::from_map(&spec.overhead)?))
}

/// `Toleration.ToleratesTaint`.
fn tolerates_taint(toleration: &wire::Toleration, taint: &wire::Taint) -> bool {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (effect, key) = (text(&toleration.effect), text(&toleration.key));
    let of_effect = effect.is_empty() || effect == text(&taint.effect);
    let of_key = key.is_empty() || key == text(&taint.key);
    let of_value = match toleration.operator.as_deref() {
        Some("Exists") => true,
        None | Some("" | "Equal") => !key.is_empty() && text(&toleration.value) == text(&taint.value),
        Some(_) => false,
    };
    of_effect && of_key && of_value
}

/// A node and its free resources.
#[derive(Clone, Debug)]
pub struct NodeCapacity {
    name: String,
    labels: BTreeMap<String, String>,
    taints: Vec<wire::Taint>,
    cordoned: bool,
    free: Option<Amounts>,
    pods: i128,
}

impl NodeCapacity {
    /// A node without pods. `None`: it has no name.
    #[must_use]
    pub fn from_node(node: wire::NodeAllocatable) -> Option<Self> {
        let meta = node.metadata.unwrap_or_default();
        let spec = node.spec.unwrap_or_default();
        let allocatable = node.status.unwrap_or_default().allocatable;
        let pods = allocatable.get("pods").and_then(|most| thousandths(most.text.as_deref()?));
        let schedules = |taint: &wire::Taint| matches!(taint.effect.as_deref(), Some("NoSchedule" | "NoExecute"));
        Some(Self {
            name: meta.name?,
            labels: meta.labels,
            taints: spec.taints.into_iter().filter(schedules).collect(),
            cordoned: spec.unschedulable,
            free: Amounts::from_map(&allocatable),
            pods: pods.map_or(DEFAULT_PODS, |thousandths| thousandths / 1000),
        })
    }

    /// Why it does not take the pod; `None`: it does.
    fn refusal_for(&self, needs: &Needs) -> Option<String> {
        if self.cordoned && !needs.tolerates_cordon() {
            return Some("cordoned".to_owned());
        }
        if let Some(why) = self.rejection_for(needs) {
            return Some(why);
        }
        let Some(free) = self.free else { return Some("unreadable".to_owned()) };
        match (free.cpu < needs.requests.cpu, free.memory < needs.requests.memory, self.pods < 1) {
            (true, _, _) => Some("too little cpu".to_owned()),
            (_, true, _) => Some("too little memory".to_owned()),
            (_, _, true) => Some("too many pods".to_owned()),
            (false, false, false) => None,
        }
    }

    /// The same, without its free resources and its cordon.
    fn rejection_for(&self, needs: &Needs) -> Option<String> {
        if let Some(taint) = self.taints.iter().find(|taint| !needs.tolerates(taint)) {
            return Some(format!("taint {}", taint.key.as_deref().unwrap_or_default()));
        }
        let other = needs.node_selector.iter().any(|(key, value)| self.labels.get(key) != Some(value));
        other.then(|| "other labels".to_owned())
    }

    fn reserve(&mut self, needs: &Needs) {
        self.free = self.free.map(|free| free.minus(needs.requests));
        self.pods -= 1;
    }
}

/// Where a pod would be scheduled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// To this node, as far as it was checked.
    Node {
        /// Its name.
        name: String,
        /// The pod has rules or volumes that were not checked.
        unchecked: bool,
    },
    /// To no node: it would stay Pending; the reason.
    Nowhere(String),
    /// To the drained node again: it tolerates the cordon, and no other node takes it.
    SameNode,
    /// Nowhere: no controller recreates it.
    NotRecreated,
}

/// The nodes and their free resources, while pods are placed one after another.
#[derive(Clone, Debug, Default)]
pub struct ClusterCapacity {
    others: Vec<NodeCapacity>,
    /// The nodes that are drained.
    drained: BTreeMap<String, NodeCapacity>,
}

impl ClusterCapacity {
    /// Every node except the drained ones, with the pods that it runs already subtracted.
    #[must_use]
    pub fn excluding(
        drained: &BTreeSet<&str>,
        capacities: &[NodeCapacity],
        needs: &BTreeMap<Uid, Needs>,
        view: &View<'_>,
    ) -> Self {
        let (drained, mut others): (Vec<NodeCapacity>, Vec<NodeCapacity>) =
            capacities.iter().cloned().partition(|room| drained.contains(&*room.name));
        for room in &mut others {
            let ready = matches!(view.node(&room.name), Lookup::Known(node) if node.readiness == Readiness::Ready);
            if !ready {
                room.free = None;
            }
            let runs = |pod: &&Pod| !pod.phase.is_terminal();
            for pod in view.pods_on(&room.name).filter(runs) {
                if let Some(needs) = needs.get(pod.uid()) {
                    room.reserve(needs);
                }
            }
        }
        let drained = drained.into_iter().map(|room| (room.name.clone(), room)).collect();
        Self { others, drained }
    }

    /// Whether the replacement of a pod may be scheduled to the drained node.
    #[must_use]
    pub fn can_return(&self, node: &str, needs: &Needs) -> bool {
        needs.tolerates_cordon() && self.drained.get(node).is_some_and(|own| own.rejection_for(needs).is_none())
    }

    /// Finds a node for a pod of `node` and subtracts its requests there: the node with the most free CPU, then by
    /// name.
    pub fn place(&mut self, node: &str, needs: &Needs) -> Place {
        let back = self.can_return(node, needs);
        let fits = self.others.iter_mut().filter(|room| room.refusal_for(needs).is_none());
        let best = fits.max_by(|one, other| {
            let cpu = |room: &NodeCapacity| room.free.map(|free| free.cpu);
            cpu(one).cmp(&cpu(other)).then_with(|| other.name.cmp(&one.name))
        });
        match best {
            Some(room) => {
                room.reserve(needs);
                Place::Node { name: room.name.clone(), unchecked: needs.has_unchecked_rules }
            }
            None if back => Place::SameNode,
            None => Place::Nowhere(self.describe_no_fit(needs)),
        }
    }

    /// The reason in the form of the scheduler's message.
    fn describe_no_fit(&self, needs: &Needs) -> String {
        let mut whys: BTreeMap<String, usize> = BTreeMap::new();
        for why in self.others.iter().filter_map(|room| room.refusal_for(needs)) {
            *whys.entry(why).or_default() += 1;
        }
        let whys: Vec<String> = whys.into_iter().map(|(why, count)| format!("{count} {why}")).collect();
        match whys.as_slice() {
            [] => "there is no other node".to_owned(),
            _ => format!("0 of {} other nodes: {}", self.others.len(), whys.join(", ")),
        }
    }
}
