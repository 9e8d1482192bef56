//! What each kind of request can end with, besides [`RequestError`], which they share. Steps of fencing: `StepOutcome`.

use pod_safety_leader::outcome::{RequestError, VerifyError};
use pod_safety_proof::EvidenceKind;

/// The outcome of a force deletion.
#[derive(Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ForceOutcome {
    /// The pod was removed.
    Released(EvidenceKind),
    /// The pod was deleted with grace period 0, but finalizers keep the object.
    FinalizersRemain(EvidenceKind),
    /// There is no evidence.
    Refused(VerifyError),
    /// A request had no effect.
    #[strum(transparent)]
    Error(RequestError),
}

/// The outcome of a graceful deletion.
#[derive(Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum DeleteOutcome {
    /// The pod terminates within its own grace period.
    Ending,
    /// The request was no longer needed when its turn came.
    Withdrawn,
    /// A request had no effect.
    #[strum(transparent)]
    Error(RequestError),
}

/// The outcome of an update.
#[derive(Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum UpdateOutcome {
    /// The status was written.
    Written,
    /// The API server accepted the status, but the stored object is unchanged: a webhook or an admission policy reverted
    /// it. No watch event follows.
    NoEffect,
    /// The node reported meanwhile: the cache of this process was behind. Nothing was written.
    Heard,
    /// There is no evidence.
    Refused(VerifyError),
    /// A request had no effect.
    #[strum(transparent)]
    Error(RequestError),
}

macro_rules! around_request_error {
    ($($outcome:ident)*) => {$(
        impl $outcome {
            /// The name in metrics.
            #[must_use]
            pub fn name(&self) -> &'static str {
                self.into()
            }
        }

        impl From<RequestError> for $outcome {
            fn from(error: RequestError) -> Self {
                Self::Error(error)
            }
        }
    )*};
}

around_request_error!(ForceOutcome DeleteOutcome UpdateOutcome);
