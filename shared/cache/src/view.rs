//! The read interface of the cache for decisions.

mod evictions;
mod fencing;
mod managed;
mod missing;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::absence::Absence;
use super::sync::FreshnessError;
use super::table::{Entry, Table};
use super::zones::ZoneCount;
use super::{Inner, KindState, LastUse, ScaleAnswer};
use crate::api::{FenceEvidenceKind, Grade, Incarnation};
use pod_safety_proof::{AbsenceRead, EvidenceDefect, EvidenceFields, LastHeartbeat, Liveness, NodeState, Renewal};

use crate::clock::Mono;
use crate::model::{
    Attachment, Budget, FenceDeviceObject, FenceEvidenceObject, FencePolicyObject, Holder, Kind, Node, NodeFenceObject,
    Pod, RemediationObject, Rv, Taint, Uid, Volume, VolumeClaim, VolumeLease, Workload, WorkloadKind,
};

/// After how long without anything from the API server a kind counts as stale, so that nothing is decided from it. The
/// API server sends a bookmark each minute on a watch without events; that two and a half are lost is no coincidence.
/// docs/assumptions.md: bookmarks-each-minute
pub const STALE_AFTER: Duration = Duration::from_secs(150);

/// The result of a lookup by name. Unknown is not absent.
#[derive(Clone, Copy, Debug)]
pub enum Lookup<'a, T> {
    /// The object exists and is readable.
    Known(&'a T),
    /// An object exists, or may exist, and cannot be read.
    Unknown(&'a str),
    /// The API server listed all objects of the kind, and this one was not among them.
    Absent,
}

/// The state of the cache at one moment.
#[derive(Clone, Copy)]
pub struct View<'a> {
    inner: &'a Inner,
}

impl std::fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

fn counts<T>(table: &Table<T>) -> (usize, usize) {
    (table.len(), table.undecodable())
}

/// `gap`: why an object that is not in the table may exist nevertheless.
fn lookup<'a, T>(entry: Option<&'a Entry<T>>, gap: Option<&'a str>) -> Lookup<'a, T> {
    match (entry, gap) {
        (Some(Entry::Known(known)), _) => Lookup::Known(known),
        (Some(Entry::Undecodable(reason)), _) => Lookup::Unknown(reason),
        (None, Some(gap)) => Lookup::Unknown(gap),
        (None, None) => Lookup::Absent,
    }
}

impl<'a> View<'a> {
    pub(crate) const fn new(inner: &'a Inner) -> Self {
        Self { inner }
    }

    /// Whether decisions may use this kind now.
    ///
    /// # Errors
    /// The reason to hold: the kind is not listed yet, or nothing was received about it for too long.
    pub fn check_fresh(&self, kind: Kind, now: Mono) -> Result<(), FreshnessError> {
        let state = self.state(kind);
        match state.last_contact {
            Some(contact) if state.synced => {
                let unreachable_for = now.since(contact);
                if unreachable_for > STALE_AFTER {
                    Err(FreshnessError::Stale { kind, silent: unreachable_for })
                } else {
                    Ok(())
                }
            }
            _ => Err(FreshnessError::NotSynced { kind }),
        }
    }

    /// The sync state of this kind.
    #[must_use]
    pub fn state(&self, kind: Kind) -> &'a KindState {
        self.inner.kinds.state(kind)
    }

    /// The pod with this UID, if it is there and readable.
    #[must_use]
    pub fn pod(&self, uid: &Uid) -> Option<&'a Pod> {
        self.inner.pods.get_known(uid)
    }

    /// The readable pods bound to this node name.
    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = &'a Pod> + use<'a> {
        let pods = &self.inner.pods;
        self.inner.pod_index.on_node(node).filter_map(|uid| pods.get_known(uid))
    }

    /// Every node name that some pod is bound to.
    pub fn nodes_named_by_pods(&self) -> impl Iterator<Item = &'a Arc<str>> + use<'a> {
        self.inner.pod_index.nodes()
    }

    /// Pods that count as terminated, in KCM's order of collection.
    pub fn terminated(&self) -> impl Iterator<Item = &'a Pod> + use<'a> {
        let pods = &self.inner.pods;
        self.inner.pod_index.terminated().filter_map(|uid| pods.get_known(uid))
    }

    /// How many pods count as terminated.
    #[must_use]
    pub fn terminated_count(&self) -> usize {
        self.inner.pod_index.terminated_count()
    }

    /// Pods that were deleted gracefully before they were bound to a node.
    pub fn terminating_unscheduled(&self) -> impl Iterator<Item = &'a Pod> + use<'a> {
        let pods = &self.inner.pods;
        self.inner.pod_index.terminating_unscheduled().filter_map(|uid| pods.get_known(uid))
    }

    /// The node of this name.
    #[must_use]
    pub fn node(&self, name: &str) -> Lookup<'a, Node> {
        // During a re-registration two Nodes may have one name: the younger one has the higher version.
        let mut newest = None;
        for uid in self.inner.node_index.uids(name) {
            match self.inner.nodes.get(uid) {
                Some(Entry::Known(node)) if newest.is_none_or(|other: &Node| other.rv < node.rv) => newest = Some(node),
                Some(Entry::Known(_)) | None => {}
                Some(Entry::Undecodable(reason)) => return Lookup::Unknown(reason),
            }
        }
        match newest {
            Some(node) => Lookup::Known(node),
            None if self.inner.nodes.unidentified() > 0 => {
                Lookup::Unknown("some nodes cannot be decoded, not even their names")
            }
            None if !self.state(Kind::Nodes).synced => Lookup::Unknown("nodes are not listed yet"),
            None => Lookup::Absent,
        }
    }

    /// Every readable node, by UID.
    pub fn nodes(&self) -> impl Iterator<Item = &'a Node> + use<'a> {
        self.inner.nodes.iter()
    }

    /// When this process last saw a report of this node's kubelet: a status write, or a renewal of its Lease.
    /// Initially the time when this process first saw the Node, because nothing is known of the time before.
    #[must_use]
    pub fn last_report(&self, node: &Node) -> Mono {
        self.inner.last_report(node)
    }

    /// Whether the Lease of this node exists, and its `renewTime`.
    #[must_use]
    pub fn lease(&self, node: &str) -> Option<Option<Timestamp>> {
        let heartbeat = self.inner.heartbeats.get(node)?;
        heartbeat.deleted_at.is_none().then_some(heartbeat.renew_time)
    }

    /// When the kubelet of this node last reported, by its own clock.
    #[must_use]
    pub fn last_report_timestamp(&self, node: &Node) -> Option<Timestamp> {
        self.lease(&node.name).flatten().into_iter().chain(node.heartbeat).max()
    }

    /// The last renewal of this node's Lease that this process saw; `None`: it has not moved since this process began.
    #[must_use]
    pub fn renewal(&self, node: &str) -> Option<Renewal> {
        let heartbeat = self.inner.heartbeats.get(node)?;
        Some(Renewal { at: heartbeat.renewed_at?, renewed: heartbeat.renew_time })
    }

    /// When each Ready node last reported, oldest report first.
    pub fn last_reports_of_ready_nodes(&self) -> impl ExactSizeIterator<Item = Mono> + use<'a> {
        self.inner.zones.last_reports_of_ready_nodes()
    }

    /// Every zone that has nodes, by KCM's key.
    pub fn zones(&self) -> impl Iterator<Item = (&'a Arc<str>, ZoneCount)> + use<'a> {
        self.inner.zones.counts()
    }

    /// How many nodes of this zone are Ready.
    #[must_use]
    pub fn zone(&self, zone: &str) -> ZoneCount {
        self.inner.zones.count(zone)
    }

    /// How many Ready nodes of this zone, except excluded ones, have not reported for longer than that.
    #[must_use]
    pub fn unreachable_in_zone(&self, zone: &str, longer_than: Duration, now: Mono) -> usize {
        self.inner.zones.unreachable_in(zone, longer_than, now)
    }

    /// How many nodes of its zone are to be tainted as lost before this one; `None`: it does not wait.
    #[must_use]
    pub fn nodes_ahead_of(&self, node: &Node) -> Option<usize> {
        self.inner.zones.nodes_ahead_of(node)
    }

    /// The taint that marked the last node of this zone as lost; it may have been removed since.
    #[must_use]
    pub fn last_lost_taint(&self, zone: &str) -> Option<&'a Taint> {
        self.inner.zones.last_marked(zone)
    }

    /// The absence of this node, if pods or volume Leases name it and it is missing.
    #[must_use]
    pub fn absence(&self, node: &str) -> Option<&'a Absence> {
        self.inner.absences.get(node)
    }

    /// Every node that pods or volume Leases name and that is missing.
    pub fn absences(&self) -> impl Iterator<Item = (&'a Arc<str>, &'a Absence)> + use<'a> {
        self.inner.absences.iter()
    }

    /// The last report of the kubelet of this node, whether its Node exists or not.
    #[must_use]
    pub fn last_heartbeat(&self, node: &str) -> Option<LastHeartbeat> {
        self.inner.last_heartbeat(node)
    }

    /// Whether the driver of this volume attaches it, as far as this process saw.
    #[must_use]
    pub fn driver_attaches(&self, volume: &str) -> bool {
        self.inner.volumes.driver_attaches(volume)
    }

    /// Whether the watch has delivered the deletion of this node's Lease, or never had such a Lease.
    #[must_use]
    pub fn lease_is_gone(&self, node: &str) -> bool {
        self.inner.heartbeats.get(node).is_none_or(|heartbeat| heartbeat.deleted_at.is_some())
    }

    /// Pods whose condition `DisruptionTarget` was set by another component than their kubelet.
    pub fn disruption_targets(&self) -> impl Iterator<Item = &'a Pod> + use<'a> {
        let pods = &self.inner.pods;
        self.inner.pod_index.disruption_targets().filter_map(|uid| pods.get_known(uid))
    }

    /// The budget with this UID, if it is there and readable.
    #[must_use]
    pub fn budget(&self, uid: &Uid) -> Option<&'a Budget> {
        self.inner.budgets.get_known(uid)
    }

    /// Every readable budget.
    pub fn budgets(&self) -> impl Iterator<Item = &'a Budget> + use<'a> {
        self.inner.budgets.iter()
    }

    /// The readable pods that a budget selects.
    pub fn pods_of_budget(&self, budget: &Uid) -> impl Iterator<Item = &'a Pod> + use<'a> {
        let pods = &self.inner.pods;
        self.inner.selection.pods_selected_by(budget).filter_map(|uid| pods.get_known(uid))
    }

    /// The readable budgets that select this pod.
    pub fn budgets_of_pod(&self, pod: &Pod) -> impl Iterator<Item = &'a Budget> + use<'a> {
        let budgets = &self.inner.budgets;
        self.inner.selection.selectors_of_pod(pod).filter_map(|uid| budgets.get_known(uid))
    }

    /// The pods of a namespace that have more labels than are kept: whether a budget selects them is unknown.
    pub fn pods_with_omitted_labels(&self, namespace: &Arc<str>) -> impl Iterator<Item = &'a Pod> + use<'a> {
        let pods = &self.inner.pods;
        self.inner.selection.pods_with_omitted_labels(namespace).filter_map(|uid| pods.get_known(uid))
    }

    /// When this budget's selector, or what its status counts of its pods, last changed.
    #[must_use]
    pub fn budget_changed_at(&self, uid: &Uid) -> Option<Mono> {
        self.inner.selection.changed_at(uid)
    }

    /// The workload with this UID.
    #[must_use]
    pub fn workload(&self, kind: WorkloadKind, uid: &Uid) -> Lookup<'a, Workload> {
        let table = self.inner.workloads.table_of(kind);
        let gap = "some objects of its kind cannot be decoded, not even their names";
        lookup(table.get(uid), (table.unidentified() > 0).then_some(gap))
    }

    /// The last answer of the scale subresource of a pod's controller.
    #[must_use]
    pub fn scale(&self, pod: &Pod) -> Option<&'a ScaleAnswer> {
        let controller = pod.controller.as_ref()?;
        self.inner.scales.get(&(Arc::clone(&pod.key.namespace), Arc::clone(controller)))
    }

    fn count_workloads(&self, kind: WorkloadKind) -> (usize, usize) {
        counts(self.inner.workloads.table_of(kind))
    }

    /// How many objects of a kind there are, and how many of them are unreadable.
    #[must_use]
    pub fn count(&self, kind: Kind) -> (usize, usize) {
        match kind {
            Kind::Pods => counts(&self.inner.pods),
            Kind::Nodes => counts(&self.inner.nodes),
            Kind::NodeLeases => counts(&self.inner.leases),
            Kind::Budgets => counts(&self.inner.budgets),
            Kind::Deployments => self.count_workloads(WorkloadKind::Deployment),
            Kind::ReplicaSets => self.count_workloads(WorkloadKind::ReplicaSet),
            Kind::StatefulSets => self.count_workloads(WorkloadKind::StatefulSet),
            Kind::ReplicationControllers => self.count_workloads(WorkloadKind::ReplicationController),
            Kind::FenceDevices => counts(&self.inner.own_kinds.devices.table),
            Kind::FencePolicies => counts(&self.inner.own_kinds.policies.table),
            Kind::NodeFences => counts(&self.inner.own_kinds.node_fences.table),
            Kind::FenceEvidences => counts(&self.inner.own_kinds.evidence.table),
            Kind::Remediations => counts(&self.inner.own_kinds.remediations.table),
            Kind::Volumes => counts(&self.inner.volumes.volumes),
            Kind::Claims => counts(&self.inner.volumes.claims),
            Kind::Attachments => counts(&self.inner.volumes.attachments),
            Kind::VolumeLeases => counts(&self.inner.volumes.leases),
            Kind::EvictionRequests => counts(&self.inner.evictions.requests),
            Kind::Evictions => counts(&self.inner.evictions.evictions),
        }
    }

    /// The names of all volumes in the cache.
    pub fn volume_names(&self) -> impl Iterator<Item = &'a Arc<str>> + use<'a> {
        self.inner.volumes.names()
    }

    /// The PersistentVolume of this name.
    #[must_use]
    pub fn volume(&self, name: &str) -> Lookup<'a, Volume> {
        let gap = "some PersistentVolumes cannot be decoded, not even their names";
        let has_gap = self.inner.volumes.volumes.unidentified() > 0;
        lookup(self.inner.volumes.volume(name), has_gap.then_some(gap))
    }

    /// The PersistentVolume of this name, or its last state if it was removed, as long as it has a Lease and this
    /// process saw the removal.
    #[must_use]
    pub fn volume_or_last_seen(&self, name: &str) -> Option<&'a Volume> {
        self.inner.volumes.volume_or_last_seen(name)
    }

    /// The claim of this namespace and name.
    #[must_use]
    pub fn claim(&self, namespace: &Arc<str>, name: &Arc<str>) -> Lookup<'a, VolumeClaim> {
        let has_gap = self.inner.volumes.claims.undecodable() > 0;
        let gap = has_gap.then_some("some PersistentVolumeClaims cannot be decoded");
        lookup(self.inner.volumes.claim(namespace, name), gap)
    }

    /// The volume that a claim is bound to, as far as known: the claim names it, and it is not bound to another
    /// claim.
    #[must_use]
    pub fn volume_of(&self, claim: &VolumeClaim) -> Option<&'a Arc<str>> {
        self.inner.volumes.bound_volume(&(Arc::clone(&claim.namespace), Arc::clone(&claim.name)))
    }

    /// The volume Lease of this volume.
    #[must_use]
    pub fn volume_lease(&self, name: &str) -> Option<&'a VolumeLease> {
        self.inner.volumes.lease(name)
    }

    /// The readable attachments of a volume.
    pub fn attachments_of(&self, volume: &str) -> impl Iterator<Item = &'a Attachment> + use<'a> {
        self.inner.volumes.attachments_of(volume)
    }

    /// The readable pods whose claims are bound to a volume.
    pub fn pods_using(&self, volume: &str) -> impl Iterator<Item = &'a Pod> + use<'a> {
        let pods = &self.inner.pods;
        self.inner.volumes.pods_using(volume).filter_map(|uid| pods.get_known(uid))
    }

    /// How a node's last use of a volume ended, if this process saw it end while the node held the volume.
    #[must_use]
    pub fn last_use(&self, volume: &str, node: &str) -> Option<LastUse> {
        self.inner.volumes.last_use(volume, node)
    }

    /// The pods that wait behind pod-safety's scheduling gate.
    pub fn gated(&self) -> impl Iterator<Item = &'a Pod> + use<'a> {
        let pods = &self.inner.pods;
        self.inner.volumes.gated.iter().filter_map(|uid| pods.get_known(uid))
    }

    /// Every readable FenceDevice.
    pub fn devices(&self) -> impl Iterator<Item = &'a FenceDeviceObject> + use<'a> {
        self.inner.own_kinds.devices.table.iter()
    }

    /// Whether FenceDevices and PodSafetyRemediations of this namespace are followed.
    #[must_use]
    pub fn is_fencing_namespace(&self, namespace: &str) -> bool {
        self.inner.is_fencing_namespace(namespace)
    }

    /// Every readable FencePolicy.
    pub fn policies(&self) -> impl Iterator<Item = &'a FencePolicyObject> + use<'a> {
        self.inner.own_kinds.policies.table.iter()
    }

    /// The policy by which a node with these labels is fenced: of those that select it the one with the highest
    /// priority, of equal ones the first by name.
    #[must_use]
    pub fn policy_of(&self, labels: &std::collections::BTreeMap<String, String>) -> Option<&'a FencePolicyObject> {
        let matching = self.policies().filter(|policy| policy.spec.node_selector.matches(labels));
        matching.min_by_key(|policy| (std::cmp::Reverse(policy.spec.priority), Arc::clone(&policy.name)))
    }

    /// The device of this namespace and name, if it is there and readable.
    #[must_use]
    pub fn device(&self, namespace: &str, name: &str) -> Option<&'a FenceDeviceObject> {
        self.devices().find(|device| *device.namespace == *namespace && *device.name == *name)
    }

    /// The minimum evidence for releasing pods of a node with these labels.
    #[must_use]
    pub fn minimum_evidence(&self, labels: &std::collections::BTreeMap<String, String>) -> Grade {
        self.minimum_evidence_of_policy(self.policy_of(labels))
    }

    /// The minimum evidence for the node of this name, as far as its labels are known.
    #[must_use]
    pub fn minimum_evidence_of_node(&self, node: &str) -> Grade {
        if let Lookup::Known(Node { details: Some(details), .. }) = self.node(node) {
            return self.minimum_evidence(&details.labels);
        }
        self.minimum_evidence(&Default::default())
    }

    /// The minimum evidence of this policy. While any policy cannot be read it is the strictest one, as the
    /// unreadable policy may be.
    fn minimum_evidence_of_policy(&self, policy: Option<&FencePolicyObject>) -> Grade {
        if self.count(Kind::FencePolicies).1 > 0 {
            return Grade::Verified;
        }
        policy.map(|policy| policy.spec.minimum_evidence).unwrap_or_default()
    }

    /// Checks evidence about this node against the Node and its Lease, without its devices.
    ///
    /// # Errors
    /// The first defect.
    pub fn check_evidence(&self, evidence: &FenceEvidenceObject, node: &Node, now: Mono) -> Result<(), EvidenceDefect> {
        self.evidence_fields(evidence, now).check_node(&self.node_state(node))
    }

    /// The state of the node with which evidence is compared.
    fn node_state(&self, node: &Node) -> NodeState {
        let (name, uid, boot_id) = (node.name.to_string(), node.uid.to_string(), node.boot().to_string());
        let incarnation = Incarnation { name, uid, boot_id };
        NodeState { incarnation, renewed: self.lease(&node.name), minimum: self.minimum_evidence(node.labels()) }
    }

    /// The fields of a FenceEvidence that decide whether it is valid, and its age at this moment.
    #[must_use]
    pub fn evidence_fields<'p>(&self, evidence: &'p FenceEvidenceObject, now: Mono) -> EvidenceFields<'p> {
        let invalidated = evidence.status.invalidated.is_some();
        let age = Some(self.inner.wall.age_by_latest(evidence.created, now));
        let spec = &evidence.spec;
        let (lease_renewed, valid_for) = (spec.lease_renewed.as_deref(), spec.valid_for());
        let (node, kind, deleting) = (&spec.node, spec.kind, evidence.deleting);
        EvidenceFields { node, kind, lease_renewed, valid_for, invalidated, deleting, age }
    }

    /// The age of a timestamp that the API server wrote, in seconds of the Unix epoch.
    #[must_use]
    pub fn age(&self, seconds: i64, now: Mono) -> std::time::Duration {
        self.inner.wall.age(seconds, now)
    }

    /// Whether a volume is held by a node of this name.
    #[must_use]
    pub fn holds_volumes(&self, node: &str) -> bool {
        self.inner.volumes.held_by(node).next().is_some()
    }

    /// The best evidence that this incarnation of the node has ended, if there is valid evidence that meets its
    /// policy.
    #[must_use]
    pub fn evidence_for(&self, node: &Node, now: Mono) -> Option<&'a FenceEvidenceObject> {
        self.valid_evidence(node, now).next()
    }

    /// Evidence that the former incarnation of this node that took a volume has ended, if it is valid and meets the
    /// node's policy.
    #[must_use]
    pub fn evidence_for_former(&self, holder: &Holder, now: Mono) -> Option<&'a FenceEvidenceObject> {
        let minimum = self.minimum_evidence_of_node(&holder.node);
        self.fence_evidence_of(&holder.node).find(|evidence| {
            self.evidence_fields(evidence, now).check_ends_incarnation().is_ok()
                && evidence.spec.kind.grade() >= minimum
                && holder.matches_incarnation(&evidence.spec.node)
        })
    }

    /// All such evidence, the best first and a person's confirmation last: the devices behind one piece of evidence
    /// may not answer any more.
    pub fn valid_evidence(&self, node: &Node, now: Mono) -> impl Iterator<Item = &'a FenceEvidenceObject> + use<'a> {
        // Most nodes have none.
        let any = self.fence_evidence_of(&node.name).next().is_some();
        any.then(|| self.valid_evidence_for(&self.node_state(node), now)).into_iter().flatten()
    }

    /// As [`View::evidence_for`], about an incarnation whose Node is deleted, by the policy under which it was
    /// fenced.
    #[must_use]
    pub fn evidence_for_deleted(
        &self,
        incarnation: &Incarnation,
        policy: Option<&FencePolicyObject>,
        now: Mono,
    ) -> Option<&'a FenceEvidenceObject> {
        let (renewed, minimum) = (self.lease(&incarnation.name), self.minimum_evidence_of_policy(policy));
        self.valid_evidence_for(&NodeState { incarnation: incarnation.clone(), renewed, minimum }, now).next()
    }

    fn valid_evidence_for(&self, node: &NodeState, now: Mono) -> std::vec::IntoIter<&'a FenceEvidenceObject> {
        let holds = |evidence: &&FenceEvidenceObject| self.evidence_fields(evidence, now).check_node(node).is_ok();
        let mut holding: Vec<_> = self.fence_evidence_of(&node.incarnation.name).filter(holds).collect();
        holding.sort_by_key(|evidence| std::cmp::Reverse((evidence.spec.kind.grade(), evidence.rv)));
        holding.into_iter()
    }

    /// Valid evidence that the storage of this CSI driver accepts no writes of this incarnation of a node.
    #[must_use]
    pub fn storage_evidence(&self, holder: &Holder, driver: &str, now: Mono) -> Option<&'a FenceEvidenceObject> {
        self.fence_evidence_of(&holder.node).find(|evidence| {
            self.evidence_fields(evidence, now).check_valid().is_ok()
                && evidence.spec.kind == FenceEvidenceKind::StorageFenced
                && evidence.spec.storage.iter().any(|storage| storage.driver == driver)
                && holder.matches_incarnation(&evidence.spec.node)
        })
    }

    /// Every readable NodeFence.
    pub fn node_fences(&self) -> impl Iterator<Item = &'a NodeFenceObject> + use<'a> {
        self.inner.own_kinds.node_fences.table.iter()
    }

    /// The readable NodeFences of the node of this name.
    pub fn node_fences_of(&self, node: &str) -> impl Iterator<Item = &'a NodeFenceObject> + use<'a> {
        self.inner.own_kinds.node_fences.of_node(node)
    }

    /// All readable evidence.
    pub fn fence_evidence(&self) -> impl Iterator<Item = &'a FenceEvidenceObject> + use<'a> {
        self.inner.own_kinds.evidence.table.iter()
    }

    /// The readable evidence about the node of this name.
    pub fn fence_evidence_of(&self, node: &str) -> impl Iterator<Item = &'a FenceEvidenceObject> + use<'a> {
        self.inner.own_kinds.evidence.of_node(node)
    }

    /// The highest version among the evidence about the node of this one, whether valid or not.
    #[must_use]
    pub fn newest_evidence(&self, evidence: &FenceEvidenceObject) -> Rv {
        self.fence_evidence_of(&evidence.spec.node.name).map(|other| other.rv).fold(evidence.rv, Rv::max)
    }

    /// Every readable remediation.
    pub fn remediations(&self) -> impl Iterator<Item = &'a RemediationObject> + use<'a> {
        self.inner.own_kinds.remediations.table.iter()
    }

    /// The readable remediations of the node of this name.
    pub fn remediations_of(&self, node: &str) -> impl Iterator<Item = &'a RemediationObject> + use<'a> {
        self.inner.own_kinds.remediations.of_node(node)
    }

    /// Every readable pod, by UID: for sweeps and debugging, not for decisions.
    pub fn all_pods(&self) -> impl Iterator<Item = &'a Pod> + use<'a> {
        self.inner.pods.iter()
    }
}

/// What the authority's checks read of the watches.
impl Liveness for View<'_> {
    fn is_current(&self, now: Mono) -> bool {
        [Kind::NodeLeases, Kind::Pods].into_iter().all(|kind| self.check_fresh(kind, now).is_ok())
    }
    fn first_read(&self, node: &str) -> Option<&AbsenceRead> {
        self.absence(node)?.first_read.as_ref()
    }
    fn last_heartbeat(&self, node: &str) -> Option<LastHeartbeat> {
        View::last_heartbeat(self, node)
    }
    fn lease(&self, node: &str) -> Option<Option<Timestamp>> {
        View::lease(self, node)
    }
    fn lease_is_gone(&self, node: &str) -> bool {
        View::lease_is_gone(self, node)
    }
    fn renewal(&self, node: &str) -> Option<Renewal> {
        View::renewal(self, node)
    }
    fn unreachable_before_node_deleted(&self, node: &str) -> bool {
        View::unreachable_before_node_deleted(self, node)
    }
    fn reports_deletions(&self, node: &str) -> bool {
        View::reports_deletions(self, node)
    }
    fn may_have_just_started(&self, pod: &Pod, node: &str) -> bool {
        View::may_have_just_started(self, pod, node)
    }
}
