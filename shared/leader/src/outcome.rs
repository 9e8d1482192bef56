//! How an intent ended, and why there was no evidence for it.

use std::time::Duration;

use pod_safety_proof::{Evidence, EvidenceKind, Refusal, RefusalReason};
use strum::VariantNames as _;

use crate::client::ApiError;
use crate::clock::Mono;
use crate::model::Rv;
use crate::wire;

/// How an intent ended.
#[derive(Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// The pod is removed.
    Released(EvidenceKind),
    /// The pod is removed as far as we may: finalizers keep the object.
    FinalizersRemain(EvidenceKind),
    /// The pod ends within its own grace.
    Ending,
    /// The status is written.
    Written,
    /// The API server took the status, and what it stores is as it was: somebody
    /// between (a webhook, an admission policy) undid it. No event follows.
    NoEffect,
    /// The node was heard of meanwhile: the cache was behind, so it is us. Nothing
    /// was written.
    Heard,
    /// When its turn came, nobody wanted it any more.
    Withdrawn,
    /// Somebody else removed it first.
    Gone,
    /// It is not what the evidence was about any more; the next event decides.
    Changed,
    /// There is no evidence.
    Refused(VerifyError),
    /// The evidence, or the term, ran out before the act was done.
    Expired,
    /// We do not lead.
    NotLeader,
    /// An object of another project that it needs could not be read, or is not as it must be yet. It is tried again.
    NotReady(String),
    /// A request failed; whether it was applied may be unknown.
    Failed(ApiError),
}

impl Outcome {
    /// Its name in metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// What a request came to that the API server answered with this error.
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

/// The code of an answer that came so late that nothing could be sent for it.
pub const READS_TOO_SLOW: &str = "ReadsTooSlow";

/// Why there is no evidence.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The judge refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A live read failed.
    #[error("a live read failed")]
    Read(#[source] ApiError),
    /// What was read holds, and was too old to act on when the last answer came.
    #[error(
        "reading what it rests on took too long: it had expired {:.1}s before the last answer came, so nothing was sent",
        by.as_secs_f64()
    )]
    Late {
        /// For how long it had expired.
        by: Duration,
    },
}

impl VerifyError {
    /// The reason in one CamelCase word.
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

    /// A live read whose answer cannot be decoded.
    #[must_use]
    pub fn undecodable(error: wire::WireError) -> Self {
        Self::Read(ApiError::Undecodable(error))
    }

    /// Evidence that expired before anything was sent is a refusal. Reading it again in the same way would take as long, and no
    /// Event would say why the pod stays.
    ///
    /// # Errors
    /// It was over at `now`.
    pub fn check_not_late<S>(evidence: Evidence<S>, now: Mono) -> Result<Evidence<S>, Self> {
        let expires = evidence.expires();
        if now < expires { Ok(evidence) } else { Err(Self::Late { by: now.since(expires) }) }
    }

    /// Whether it is a sign that the kubelet runs.
    #[must_use]
    pub const fn refutes_absence(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.refutes_absence())
    }
}

/// The version of an object, if the API server named one.
#[must_use]
pub fn resource_version(meta: &wire::ObjectMeta) -> Option<Rv> {
    meta.resource_version.as_deref()?.parse().ok()
}
