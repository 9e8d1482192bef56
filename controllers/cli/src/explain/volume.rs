//! What is read of a volume: its claim, its attachments, and its pods.

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use pod_safety_explain::{Answer, Volume, explain_volume, str_at};
use pod_safety_shared::client::ApiError;
use pod_safety_shared::model::{Kind, VOLUME_LEASE_NAMESPACE};
use serde_json::Value;

use super::snapshot::describe_refusal;
use super::{ClusterSnapshot, SubjectKind};
use crate::cluster::Session;
use crate::error_hints::{NotFound, ResourceKind};

/// How many nodes are read for whether they have it mounted: a volume for one node at a time has one or two.
const MAX_NODES: usize = 20;

/// The explanation of one volume.
pub(super) async fn answer(
    session: &Session,
    what: SubjectKind,
    name: &str,
    given: Option<&str>,
) -> anyhow::Result<Answer> {
    let (mut volume, mut refused) = find_volume(session, what, name, given).await?;
    let own = session.connection.default_namespace();
    let namespace = volume.claim.as_ref().map_or(own, |claim| str_at(claim, "/metadata/namespace")).to_owned();
    let mut snapshot = ClusterSnapshot::read(session, Some(&namespace)).await?;
    snapshot.read_namespace_events(session, &namespace).await;
    let attachments_are_known = snapshot.read_attachments(session).await;
    let held = snapshot.with_context(|ctx| {
        let of_it = ctx.attachments.iter().filter(|one| one.volume == volume.volume_name());
        of_it.map(|one| one.node.clone()).collect::<Vec<_>>()
    });
    read_users(session, &mut volume, &namespace, held, &mut refused).await;
    volume.lease = read_lease(session, volume.volume_name(), &mut refused).await;
    let mut answer = snapshot.with_context(|ctx| explain_volume(&volume, ctx));
    if !attachments_are_known || !refused.is_empty() {
        answer.judgement.mark_incomplete();
    }
    answer.missing.extend(refused);
    answer.missing.extend(snapshot.missing());
    Ok(answer)
}

/// Reads the volume Lease, where volume-guard runs.
async fn read_lease(session: &Session, name: &str, refused: &mut Vec<String>) -> Option<Value> {
    if name.is_empty() {
        return None;
    }
    let path = format!("{}/{name}", Kind::VolumeLeases.path());
    session.get_opt(&path).await.unwrap_or_else(|error| {
        let refusal = describe_refusal(&error, &format!("get leases in namespace {VOLUME_LEASE_NAMESPACE}"));
        refused.push(format!("{refusal}: it is not known which node the volume guard recorded as its owner."));
        None
    })
}

/// The claim and the volume of this name, and what could not be read of them.
async fn find_volume(
    session: &Session,
    what: SubjectKind,
    name: &str,
    given: Option<&str>,
) -> anyhow::Result<(Volume, Vec<String>)> {
    let mut refused = Vec::new();
    let claim = match what {
        SubjectKind::PersistentVolume => None,
        _ => claim(session, name, given, &mut refused).await?,
    };
    let mut or_refused = |answer: Result<Option<Value>, ApiError>| {
        answer.unwrap_or_else(|error| {
            let refusal = describe_refusal(&error, "get persistentvolumes");
            refused.push(format!("{refusal}: it is not known which driver attaches it."));
            None
        })
    };
    let volume = if what == SubjectKind::Claim { None } else { or_refused(session.get_opt(&volume_path(name)).await) };
    match (claim, volume) {
        (Some(_), Some(_)) => {
            bail!(
                "a PersistentVolumeClaim and a PersistentVolume are both named {name}. Choose one: pvc/{name} or pv/{name}"
            )
        }
        (Some(claim), None) => {
            let bound = str_at(&claim, "/spec/volumeName").to_owned();
            let volume = if bound.is_empty() { None } else { or_refused(session.get_opt(&volume_path(&bound)).await) };
            Ok((Volume { claim: Some(claim), volume, ..Volume::default() }, refused))
        }
        (None, Some(volume)) => {
            let (namespace, name) =
                (str_at(&volume, "/spec/claimRef/namespace"), str_at(&volume, "/spec/claimRef/name"));
            let claim = match name {
                "" => None,
                name => session.get_opt(&claim_path(namespace, name)).await.context("reading its claim")?,
            };
            // A claim of the same name that was created later is another claim.
            let uid = str_at(&volume, "/spec/claimRef/uid").to_owned();
            let claim = claim.filter(|claim| str_at(claim, "/metadata/uid") == uid);
            Ok((Volume { claim, volume: Some(volume), ..Volume::default() }, refused))
        }
        (None, None) if !refused.is_empty() => {
            bail!("it is not known whether there is a {} {name}. {}", what.kind_name(), refused.join(" "))
        }
        (None, None) => {
            let within = if given.is_none() { " in any namespace" } else { "" }.to_owned();
            match what {
                SubjectKind::PersistentVolume => {
                    bail!(NotFound::new(ResourceKind::PersistentVolume, None, name))
                }
                SubjectKind::Claim => {
                    bail!(NotFound::new(ResourceKind::Claim, given, name).with_detail(&within))
                }
                _ => {
                    let more = format!("{within}, and no PersistentVolume {name}");
                    bail!(NotFound::new(ResourceKind::Claim, given, name).with_detail(&more))
                }
            }
        }
    }
}

fn volume_path(name: &str) -> String {
    format!("/api/v1/persistentvolumes/{name}")
}

fn claim_path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")
}

/// The claim of this name: in the given namespace, in the default one, or in the only one that has it.
async fn claim(
    session: &Session,
    name: &str,
    given: Option<&str>,
    refused: &mut Vec<String>,
) -> anyhow::Result<Option<Value>> {
    let own = session.connection.default_namespace();
    let result = session.get_opt(&claim_path(given.unwrap_or(own), name)).await;
    if given.is_some() {
        return result.context("reading the claim");
    }
    if let Ok(Some(claim)) = result {
        return Ok(Some(claim));
    }
    let everywhere = format!("/api/v1/persistentvolumeclaims?fieldSelector=metadata.name={name}");
    let mut all = session.items(&everywhere).await.unwrap_or_else(|error| {
        let refusal = describe_refusal(&error, "list persistentvolumeclaims in all namespaces");
        refused.push(format!("{refusal}: it is not known whether another namespace has one."));
        Vec::new()
    });
    if all.len() > 1 {
        let namespaces: Vec<&str> = all.iter().map(|one| str_at(one, "/metadata/namespace")).collect();
        bail!(
            "{} claims are named {name}, in the namespaces {}. Choose one with -n",
            all.len(),
            namespaces.join(" and ")
        );
    }
    Ok(all.pop())
}

/// Reads the pods that use it, and the nodes that may have it mounted.
async fn read_users(
    session: &Session,
    volume: &mut Volume,
    namespace: &str,
    held: Vec<String>,
    refused: &mut Vec<String>,
) {
    match session.items(&format!("/api/v1/namespaces/{namespace}/pods")).await {
        Ok(pods) => volume.pods = Some(pods),
        Err(error) => {
            let refusal = describe_refusal(&error, &format!("list pods in namespace {namespace}"));
            refused.push(format!("{refusal}: it is not known which pods use it."));
        }
    }
    let using = volume.pods.iter().flatten().filter(|pod| volume.is_used_by(pod));
    let on = using.map(|pod| str_at(pod, "/spec/nodeName").to_owned());
    let names: BTreeSet<String> = held.into_iter().chain(on).filter(|name| !name.is_empty()).collect();
    for name in names.into_iter().take(MAX_NODES) {
        if let Ok(node) = session.get_raw(&format!("/api/v1/nodes/{name}")).await {
            volume.nodes.push(node);
        }
    }
}
