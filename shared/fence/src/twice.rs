//! Two looks at each device, as far apart as it takes, and what must bear them out.

use pod_safety_proof::{LeaseRead, silence};

use super::incident::{act_of, status};
use super::judge::{Seen, judge};
use super::looks::Looked;
use super::met;
use super::render::Facts;
use super::{Acting, Target};
use crate::api::{Attempt, IdentityMatch, Incarnation, Power, Sample, Verified};
use crate::outcome::Outcome;
use crate::transport::Act;
use crate::witness::{look, nonsense};

/// Two looks at each device, and the Lease between them: so far apart that a kubelet that lives renews it meanwhile.
pub(super) async fn look_twice(acting: &Acting<'_>, target: &Target) -> Result<(), Outcome> {
    let mut wanted = (*target.status).clone();
    let last = wanted.attempts.last_mut().ok_or(Outcome::Changed)?;
    let (act, attempt) = (act_of(last), last.clone());
    let facts = acting.looker.reader.facts(&target.spec.node).await.map_err(Outcome::Failed)?;
    let met = &target.status.attempts;
    let looked = looks(acting, &target.spec.node, &attempt, &facts, met);
    let (seen, lease) = acting.while_leading(looked).await??;
    let mut verified = judge(act, &seen, lease);
    if act == Act::Off && verified.power == Power::Off {
        // Boxed, as few ask for it.
        let borne_out = Box::pin(acting.looker.corroborated(&attempt.corroborate, &target.spec.node.name));
        match acting.while_leading(borne_out).await? {
            Ok(facts) => verified.corroborated = facts,
            Err(message) => verified = Verified { power: Power::Unknown, message, ..verified },
        }
    }
    last.verified = Some(verified);
    status(acting, target, target.fence.rv, &wanted).await.map(drop)
}

async fn looks(
    acting: &Acting<'_>,
    node: &Incarnation,
    attempt: &Attempt,
    facts: &Facts,
    attempts: &[Attempt],
) -> Result<(Vec<Seen>, Option<String>), Outcome> {
    let Attempt { devices, objects, .. } = attempt;
    let began = acting.env.now();
    let first = acting.looker.look(devices, facts, objects).await;
    if act_of(attempt) != Act::Off {
        let once = |Looked { check, sample, .. }| Seen { check, samples: vec![sample] };
        return Ok((first.into_iter().map(once).collect(), None));
    }
    let lease = read_lease(acting, node).await?;
    let listen = silence::to_listen(&node.name, &lease, &acting.means.cache.read().view(), acting.env.now());
    let of_provider = first.iter().any(|looked| !looked.sample.instance.is_empty());
    let apart = if of_provider { Verified::INSTANCES_APART } else { Verified::APART };
    acting.env.sleep(listen.max(apart)).await;
    let second = acting.looker.look(devices, facts, objects).await;
    let weighed = |looked| met::weighed(looked, attempts);
    let mut seen: Vec<_> = first
        .into_iter()
        .map(weighed)
        .zip(second.into_iter().map(weighed))
        .map(|(first, second)| Seen { check: first.check, samples: vec![first.sample, second.sample] })
        .collect();
    // A kubelet that speaks while its machine is said to be off: the device reaches another one.
    let (before, after) = (renewed(&lease)?, read_lease(acting, node).await?);
    let is_unmoved = is_unmoved(acting, node, &after, before.as_ref())?;
    let sign = acting.means.cache.read().view().last_sign_of_life(&node.name);
    let spoke = after.is_absent() && sign.is_some_and(|sign| sign.at > began);
    if spoke || !is_unmoved {
        let samples = seen.iter_mut().flat_map(|one| &mut one.samples);
        samples.filter(|sample| sample.is_off()).for_each(contradicted);
    }
    Ok((seen, before))
}

pub(super) fn contradicted(sample: &mut Sample) {
    sample.power = Power::Unknown;
    sample.identity = IdentityMatch::Mismatch;
    sample.said =
        "reported off while the node's kubelet renewed its Lease: it switches another machine".to_owned();
}

async fn read_lease(acting: &Acting<'_>, node: &Incarnation) -> Result<LeaseRead, Outcome> {
    let look = look(acting.means.connection, acting.env, &node.name).await.map_err(Outcome::Failed)?;
    Ok(look.lease)
}

/// Whether the Lease still has this renewTime, or is gone without another renewal: it was collected with its Node, or others deleted
/// it. That the watch has brought, once it has brought its end.
pub(super) fn is_unmoved(
    acting: &Acting<'_>,
    node: &Incarnation,
    lease: &LeaseRead,
    before: Option<&String>,
) -> Result<bool, Outcome> {
    if !lease.is_absent() {
        return Ok(renewed(lease)?.as_ref() == before);
    }
    let is_seen = acting.means.cache.read().view().lease_is_gone(&node.name);
    if is_seen { Ok(true) } else { Err(Outcome::Changed) }
}

fn renewed(lease: &LeaseRead) -> Result<Option<String>, Outcome> {
    let renewed = lease.renewed().map_err(|error| Outcome::Failed(nonsense(error)))?;
    Ok(renewed.map(|time| time.to_string()))
}
