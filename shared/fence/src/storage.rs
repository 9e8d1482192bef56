//! Fenced storage alone: evidence about volumes, for as long as the storage fence is in force.

use std::collections::BTreeSet;

use super::incident::{create_evidence, still_lost, write_fence_status};
use super::prepare::PreparedCall;
use super::{StepContext, Target, contradict, storage_evidence_name};
use crate::api::{DeviceRef, FenceEvidenceKind, FenceEvidenceSpec, Sample};
use crate::outcome::Outcome;
use crate::transport::Act;

/// Why no order is sent to devices that fence storage alone: no evidence would follow from it. `None`: the order is
/// sent.
pub(super) fn why_uncovered(act: Act, orders: &[(DeviceRef, PreparedCall)]) -> Option<&'static str> {
    let objects = || orders.iter().map(|(_, asked)| asked.object());
    let is_storage = |object: Option<&crate::api::TargetObject>| {
        object.is_some_and(|object| object.driver.gives(FenceEvidenceKind::StorageFenced))
    };
    let alone = act == Act::Off && objects().all(is_storage);
    let covered = objects().flatten().all(|object| object.storage.is_some());
    (alone && !covered).then_some(
        "it is not known which volumes it covers: its NetworkFenceClass names no provisioner, or the addresses were not recorded during this boot of the node",
    )
}

/// Creates evidence about the volumes of a storage, if each sample names which. Whether processes run on the node
/// does not matter here: if the kubelet renews its Lease, [`still_lost`] fails before the evidence is created, and
/// nothing is contradicted.
pub(super) async fn prove(context: &StepContext<'_>, target: &Target) -> Result<(), Outcome> {
    let last = target.status.attempts.last().filter(|last| last.has_fenced_storage()).ok_or(Outcome::Changed)?;
    let verified = last.verified.as_ref().ok_or(Outcome::Changed)?;
    let node = &target.spec.node;
    still_lost(context, &target.spec).await?;
    let covered = |sample: &Sample| sample.object.as_ref().and_then(|object| object.storage.clone());
    let storage: Option<BTreeSet<_>> = verified.samples.iter().map(covered).collect();
    let spec = FenceEvidenceSpec {
        node: node.clone(),
        kind: FenceEvidenceKind::StorageFenced,
        fence: Some(target.fence.name.to_string()),
        samples: verified.samples.clone(),
        corroborated: Vec::new(),
        storage: storage.ok_or(Outcome::Changed)?.into_iter().collect(),
        lease_renewed: verified.lease_renewed.clone(),
        by: context.identity.to_owned(),
        reason: None,
        valid_seconds: None,
        power_on: false,
    };
    let name = storage_evidence_name(node, &target.fence.uid, last.id);
    create_evidence(context, &name, &spec).await?;
    write_fence_status(context, target, target.fence.rv, &target.status).await.map(drop)
}

/// The storage fence is being lifted: first its evidence is invalidated.
pub(super) async fn withdraw(context: &StepContext<'_>, target: &Target) -> Result<(), Outcome> {
    for attempt in target.status.attempts.iter().filter(|attempt| attempt.has_fenced_storage()) {
        let evidence = storage_evidence_name(&target.spec.node, &target.fence.uid, attempt.id);
        let at = format!("{:.0}", context.env.clock.wall());
        contradict::invalidate(context, &evidence, "the fence of its storage is lifted", &at).await?;
    }
    Ok(())
}
