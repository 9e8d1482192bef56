//! What a step of fencing can end with.

pub(crate) use pod_safety_leader::outcome::{RequestError, VerifyError, resource_version};

use crate::client::ApiError;

/// The outcome of a step. A step is many requests, so what one of them ended with is not nested in it.
#[derive(Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// The step was taken, and the status was written.
    Written,
    /// The node reported meanwhile: the cache of this process was behind. Nothing was written.
    Heard,
    /// An object of another project that the step needs could not be read, or is not ready yet. The step is retried.
    NotReady(String),
    /// There is no evidence.
    Refused(VerifyError),
    /// See [`RequestError::Gone`].
    Gone,
    /// See [`RequestError::Changed`].
    Changed,
    /// See [`RequestError::Expired`].
    Expired,
    /// See [`RequestError::NotLeader`].
    NotLeader,
    /// See [`RequestError::Failed`].
    Failed(ApiError),
}

impl Outcome {
    /// The name in metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.into()
    }
}

impl From<RequestError> for Outcome {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Gone => Self::Gone,
            RequestError::Changed => Self::Changed,
            RequestError::Expired => Self::Expired,
            RequestError::NotLeader => Self::NotLeader,
            RequestError::Failed(error) => Self::Failed(error),
        }
    }
}

impl From<Result<(), Self>> for Outcome {
    fn from(done: Result<(), Self>) -> Self {
        done.err().unwrap_or(Self::Written)
    }
}
