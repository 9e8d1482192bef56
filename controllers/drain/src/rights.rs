//! The rights that a drain needs.

use std::collections::BTreeSet;

use pod_safety_shared::authority::{AccessRight, NotEvicted, is_allowed};
use pod_safety_shared::client::{ApiError, Connection};

/// A right on a kind, in all namespaces.
#[must_use]
pub fn right(verb: &str, resource: &str) -> AccessRight {
    AccessRight { verb: verb.to_owned(), resource: resource.to_owned(), ..AccessRight::default() }
}

/// The right to evict, which the API server names when it refuses.
fn eviction_right() -> AccessRight {
    AccessRight { subresource: "eviction".to_owned(), ..right("create", "pods") }
}

/// The right that is missing, if an eviction was refused for that.
#[must_use]
pub fn missing_right(error: &NotEvicted) -> Option<AccessRight> {
    let NotEvicted::Failed(ApiError::Refused { code: 403, message, .. }) = error else { return None };
    let of = |right: AccessRight, resource: &str| {
        message.contains(&format!("cannot {} resource \"{resource}\"", right.verb)).then_some(right)
    };
    of(eviction_right(), "pods/eviction").or_else(|| of(right("get", "pods"), "pods"))
}

/// Which rights to execute a drain are missing. A right that the API server does not answer for is not missing.
pub async fn missing_drain_rights(connection: &Connection, namespaces: &BTreeSet<&str>) -> Vec<AccessRight> {
    let lacks = async |right: &AccessRight| matches!(is_allowed(connection, None, right).await, Ok(false));
    let mut lacking = Vec::new();
    for right in [right("get", "nodes"), right("patch", "nodes"), right("get", "pods"), eviction_right()] {
        if !lacks(&right).await {
            continue;
        }
        if right.resource == "nodes" {
            lacking.push(right);
            continue;
        }
        for namespace in namespaces {
            let namespaced = AccessRight { namespace: (*namespace).to_owned(), ..right.clone() };
            if lacks(&namespaced).await {
                lacking.push(namespaced);
            }
        }
    }
    lacking
}
