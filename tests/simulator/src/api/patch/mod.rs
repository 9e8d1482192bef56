//! Patches: the four media types, applied to an object as it is stored.

mod json_patch;
mod merge;
mod strategic;

use serde_json::Value;

use super::failure::{Cause, Failure};
use super::kinds::Kind;

pub(crate) use merge::merge;

/// The format of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' own: lists are merged by a key of their items.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl PatchType {
    pub(crate) fn from_content_type(kind: &Kind, content_type: &str) -> Result<Self, Failure> {
        let media = content_type.split(';').next().unwrap_or_default().trim();
        match media {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if kind.has_strategic_merge() => Ok(Self::Strategic),
            "application/apply-patch+yaml" if !kind.has_strategic_merge() => Ok(Self::Apply),
            "application/apply-patch+yaml" => Err(Failure::unimplemented("server-side apply of kinds with a schema")),
            _ => Err(Failure::media_type()),
        }
    }
}

/// Decodes a patch. One that is no JSON is refused before the object is read (`validateAndTranscodePatch`).
pub(crate) fn decode(body: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(body).map_err(|error| Failure::bad_request(format!("error decoding patch: {error}")))
}

/// Applies a patch.
pub(crate) fn apply(how: PatchType, current: &Value, patch: Value) -> Result<Value, Failure> {
    match how {
        PatchType::Json => json_patch::apply(current, &patch),
        PatchType::Merge | PatchType::Strategic | PatchType::Apply if !patch.is_object() => {
            Err(Failure::bad_request("error decoding patch: it is no object"))
        }
        PatchType::Merge => {
            let mut patched = current.clone();
            merge(&mut patched, &patch);
            Ok(patched)
        }
        PatchType::Strategic => strategic::apply(current, patch),
        // Only one field owner: what is applied is merged. Fields that an owner no longer names stay, while the real
        // server removes them.
        PatchType::Apply => {
            let mut patched = current.clone();
            merge(&mut patched, &patch);
            Ok(patched)
        }
    }
}

/// A patch whose result is no object of the kind.
pub(crate) fn leads_to_nonsense(error: &serde_json::Error) -> Failure {
    Failure::invalid_as("", "", "", &[Cause::invalid("patch", &error.to_string())])
}

#[cfg(test)]
mod tests;
