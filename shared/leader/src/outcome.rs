//! What every request can end with, and why there was no evidence.

use std::time::Duration;

use pod_safety_proof::{Evidence, Refusal, RefusalReason};
use strum::VariantNames as _;

use crate::client::ApiError;
use crate::clock::Mono;
use crate::model::Rv;
use crate::wire;

/// Why a request had no effect: the part of an outcome that all requests share. The types of outcomes add what a request of
/// their kind alone can end with.
#[derive(Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum RequestError {
    /// Another client removed the object first.
    Gone,
    /// The object changed since the decision; the next watch event causes a new decision.
    Changed,
    /// The evidence or the term ended before the request was sent.
    Expired,
    /// This process does not lead.
    NotLeader,
    /// A request to the API server failed; it may have been applied.
    Failed(ApiError),
}

impl RequestError {
    /// The error of a request that the API server answered with this error.
    #[must_use]
    pub fn from_error(error: ApiError) -> Self {
        if error.is_not_found() {
            Self::Gone
        } else if error.is_changed() {
            Self::Changed
        } else {
            Self::Failed(error)
        }
    }
}

/// The code of evidence that had expired before its last read was answered.
pub const READS_TOO_SLOW: &str = "ReadsTooSlow";

/// Why there is no evidence.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The judge refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A quorum read failed.
    #[error("a live read failed")]
    Read(#[source] ApiError),
    /// The evidence is valid, but it had expired when the last answer came.
    #[error(
        "reading what it rests on took too long: it had expired {:.1}s before the last answer came, so nothing was sent",
        by.as_secs_f64()
    )]
    Late {
        /// How long before that it had expired.
        by: Duration,
    },
}

impl VerifyError {
    /// The reason as one CamelCase word.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.reason(),
            Self::Read(_) => "ReadFailed",
            Self::Late { .. } => READS_TOO_SLOW,
        }
    }

    /// Every reason, for metrics that must exist before they count.
    #[must_use]
    pub fn reasons() -> Vec<&'static str> {
        RefusalReason::VARIANTS.iter().copied().chain(["ReadFailed", READS_TOO_SLOW]).collect()
    }

    /// The error of a quorum read whose answer cannot be decoded.
    #[must_use]
    pub fn undecodable(error: wire::WireError) -> Self {
        Self::Read(ApiError::Undecodable(error))
    }

    /// Turns evidence that has expired before anything was sent into a refusal. Otherwise the same reads would be repeated,
    /// would take as long, and no Event would show why the pod stays.
    ///
    /// # Errors
    /// The evidence had expired at `now`.
    pub fn check_not_late<S>(evidence: Evidence<S>, now: Mono) -> Result<Evidence<S>, Self> {
        let expires = evidence.expires();
        if now < expires { Ok(evidence) } else { Err(Self::Late { by: now.since(expires) }) }
    }

    /// Whether it shows that the kubelet runs.
    #[must_use]
    pub const fn refutes_absence(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.refutes_absence())
    }
}

/// The resourceVersion in an object's metadata.
#[must_use]
pub fn resource_version(meta: &wire::ObjectMeta) -> Option<Rv> {
    meta.resource_version.as_deref()?.parse().ok()
}

/// The version in the answer. A write that changed nothing returns the old version.
#[must_use]
pub fn version_of(answer: &wire::Raw) -> Option<Rv> {
    resource_version(&answer.decode::<wire::OnlyMeta>().ok()?.metadata?)
}
