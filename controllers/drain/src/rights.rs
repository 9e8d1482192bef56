//! What carrying a plan out takes.

use std::collections::BTreeSet;

use pod_safety_shared::authority::{NotEvicted, Right, may};
use pod_safety_shared::client::{ApiError, Connection};

/// A right on a kind, in all namespaces.
#[must_use]
pub fn right(verb: &str, resource: &str) -> Right {
    Right { verb: verb.to_owned(), resource: resource.to_owned(), ..Right::default() }
}

/// The right to evict, which the API server names in its refusal.
fn evictions() -> Right {
    Right { subresource: "eviction".to_owned(), ..right("create", "pods") }
}

/// The right for want of which an eviction was refused, if so.
#[must_use]
pub fn lacked(error: &NotEvicted) -> Option<Right> {
    let NotEvicted::Failed(ApiError::Refused { code: 403, message, .. }) = error else { return None };
    let of = |right: Right, resource: &str| {
        message.contains(&format!("cannot {} resource \"{resource}\"", right.verb)).then_some(right)
    };
    of(evictions(), "pods/eviction").or_else(|| of(right("get", "pods"), "pods"))
}

/// Which rights to carry a drain out are missing. What the API server does not say is not missing.
pub async fn lacking_for_drain(connection: &Connection, namespaces: &BTreeSet<&str>) -> Vec<Right> {
    let lacks = async |right: &Right| matches!(may(connection, None, right).await, Ok(false));
    let mut lacking = Vec::new();
    for right in [right("get", "nodes"), right("patch", "nodes"), right("get", "pods"), evictions()] {
        if !lacks(&right).await {
            continue;
        }
        if right.resource == "nodes" {
            lacking.push(right);
            continue;
        }
        for namespace in namespaces {
            let there = Right { namespace: (*namespace).to_owned(), ..right.clone() };
            if lacks(&there).await {
                lacking.push(there);
            }
        }
    }
    lacking
}
