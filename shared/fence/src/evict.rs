//! Eviction: asks the API server to end one pod by its own grace, if the pod's
//! budget lets it through.
//!
//! Source of the contract: `pkg/registry/core/pod/storage/eviction.go` and
//! `pkg/registry/core/pod/strategy.go` (v1.37.2).
//!
//! Invariants: a quorum read of the pod comes first, at most a second before, for an
//! eviction that is refused on its UID has taken one from the budget already; what is sent names the UID and
//! the version that was read, so that it cannot meet a successor, nor a pod that was
//! called finished meanwhile (the API server removes those at once); the grace is
//! never zero; a pod that ends already is left alone, for a second request could
//! only shorten its grace. Nothing here retries: [`NotEvicted::retry_delay`] says when the
//! caller may.

use std::time::Duration;

use serde_json::json;

use crate::cache::{self, parse_selector};
use crate::client::{ApiError, Call, Connection, Method, WriteCall as _};
use crate::clock::{Env, Mono};
use crate::model::{DEFAULT_GRACE, Kind, Labels, PodKey, Rv};
use crate::record::error_chain;
use crate::wire;

/// The shortest grace: zero would remove the pod while its processes run.
pub const MIN_GRACE_SECONDS: i64 = 1;

/// A budget that lets nothing through is asked again so much later, where the API
/// server does not say when. It changes when a pod becomes Ready.
const BUDGET_RETRY: Duration = Duration::from_secs(1);

/// A list of pods is good for their evictions for so long.
pub const MAX_READ_AGE: Duration = Duration::from_secs(1);

/// What changed while we read it is read again.
const CONFLICT_RETRY: Duration = Duration::from_millis(100);

/// After a failure that may pass.
const ERROR_RETRY: Duration = Duration::from_secs(2);

/// A webhook that moves to another node is back within it, and so are disruptions that were not confirmed.
const ERROR_RETRY_LIMIT: Duration = Duration::from_secs(60);

/// One eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Which pod, and which of those that had its name.
    pub pod: PodKey,
    /// Only ask what would come of it: nothing is changed, no budget is used.
    pub dry_run: bool,
}

/// Nobody needs to evict this pod any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// The API server let it through: the pod ends within its grace. In a dry run:
    /// it would.
    Terminates {
        /// The seconds that its processes have.
        grace: i64,
    },
    /// Somebody asked it to end before.
    AlreadyTerminating,
    /// It ran to its end: there is nothing to evict.
    Finished,
    /// It is not there.
    Gone,
    /// Another pod has its name.
    Replaced,
}

/// Why a pod was not evicted.
#[derive(Debug, thiserror::Error)]
pub enum NotEvicted {
    /// Its budget lets nothing through now.
    #[error("{why}")]
    Blocked {
        /// The API server's sentence, with its numbers.
        why: String,
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// Nobody has calculated its budget since it was changed; or the pod became
    /// Ready in that moment.
    #[error("{why}")]
    Processing {
        /// The API server's sentence.
        why: String,
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// The API server evicts no pod that several budgets choose.
    #[error("{} PodDisruptionBudgets select the pod ({}), and the API server evicts no such pod", budgets.len(), budgets.join(", "))]
    SeveralBudgets {
        /// Their names; empty if they could not be read.
        budgets: Vec<String>,
    },
    /// Its namespace is being deleted: the API server takes no eviction there, and deletes the pod itself.
    #[error("{why}")]
    NamespaceTerminating {
        /// The API server's sentence.
        why: String,
    },
    /// Too many evictions were let through that nobody has looked after.
    #[error("{why}")]
    TooManyDisrupted {
        /// The API server's sentence.
        why: String,
    },
    /// Its phase says ended, its containers say running: the API server would
    /// remove it at once.
    #[error(
        "its phase says that it terminated, but its last report shows a running container: an eviction would remove it at once, while it may run"
    )]
    Unsafe,
    /// It changed between the read and the eviction.
    #[error("it changed while it was being evicted")]
    Changed,
    /// What is there under this name cannot be read.
    #[error("the pod cannot be read: {0}")]
    Unreadable(String),
    /// An admission webhook that the API server asks does not answer it.
    #[error("the API server asks the admission webhook {name} first, and that fails: {why}")]
    WebhookFails {
        /// Its name.
        name: String,
        /// The API server's sentence about it.
        why: String,
    },
    /// The API server was asked to evict it, and failed.
    #[error("the API server fails to evict it")]
    Failing(#[source] ApiError),
    /// There was no answer that says whether it was done.
    #[error("whether the pod was evicted is unknown")]
    Unknown(#[source] ApiError),
    /// It was refused, for another reason than budgets.
    #[error("the API server does not evict it")]
    Failed(#[source] ApiError),
}

impl NotEvicted {
    /// When it makes sense to try again; `None`: not before a person did something.
    #[must_use]
    pub fn retry_delay(&self) -> Option<Duration> {
        match self {
            Self::Blocked { retry_after, .. } | Self::Processing { retry_after, .. } => {
                Some(retry_after.unwrap_or(BUDGET_RETRY))
            }
            Self::Changed => Some(CONFLICT_RETRY),
            Self::Failing(ApiError::Refused { retry_after, .. }) => Some(retry_after.unwrap_or(ERROR_RETRY)),
            Self::TooManyDisrupted { .. }
            | Self::NamespaceTerminating { .. }
            | Self::WebhookFails { .. }
            | Self::Failing(_)
            | Self::Unknown(_) => Some(ERROR_RETRY),
            Self::Failed(ApiError::Refused { code: 429, retry_after, .. }) => {
                Some(retry_after.unwrap_or(ERROR_RETRY))
            }
            Self::SeveralBudgets { .. } | Self::Unsafe | Self::Unreadable(_) | Self::Failed(_) => None,
        }
    }

    /// For how long trying again makes sense, where that is not up to whoever waits: what fails so may fail for ever, and
    /// there is no budget, namespace or outage behind it that would end.
    #[must_use]
    pub const fn retry_limit(&self) -> Option<Duration> {
        match self {
            Self::WebhookFails { .. } | Self::Failing(_) | Self::TooManyDisrupted { .. } => {
                Some(ERROR_RETRY_LIMIT)
            }
            Self::Blocked { .. }
            | Self::Processing { .. }
            | Self::SeveralBudgets { .. }
            | Self::NamespaceTerminating { .. }
            | Self::Unsafe
            | Self::Changed
            | Self::Unreadable(_)
            | Self::Unknown(_)
            | Self::Failed(_) => None,
        }
    }

    /// One CamelCase word, for programs.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Blocked { .. } => "BudgetBlocks",
            Self::Processing { .. } => "BudgetBeingProcessed",
            Self::SeveralBudgets { .. } => "MultipleBudgets",
            Self::TooManyDisrupted { .. } => "TooManyDisrupted",
            Self::NamespaceTerminating { .. } => "NamespaceTerminating",
            Self::Unsafe => "TerminalButRunning",
            Self::Changed => "Changed",
            Self::Unreadable(_) => "Unreadable",
            Self::WebhookFails { .. } => "WebhookFails",
            Self::Failing(_) => "Failing",
            Self::Unknown(_) => "Unknown",
            Self::Failed(_) => "Failed",
        }
    }
}

/// What the read said.
struct EvictablePod {
    rv: Rv,
    grace: i64,
    labels: Labels,
}

/// Evicts a pod, or says why not. Gives up at `deadline`.
///
/// # Errors
/// The pod was not evicted, or that is unknown.
pub async fn evict(
    connection: &Connection,
    env: &Env,
    eviction: &Eviction,
    deadline: Mono,
) -> Result<Evicted, NotEvicted> {
    let read = read(connection, env, &eviction.pod, deadline).await?;
    evict_checked(connection, env, eviction, read, deadline).await
}

/// The same of a pod of a quorum read that was made at most [`MAX_READ_AGE`] before: of the list of a node's pods.
///
/// # Errors
/// As [`evict`].
pub async fn evict_read_pod(
    connection: &Connection,
    env: &Env,
    eviction: &Eviction,
    read: &wire::Raw,
    deadline: Mono,
) -> Result<Evicted, NotEvicted> {
    let read = check_evictable(read, env, &eviction.pod)?;
    evict_checked(connection, env, eviction, read, deadline).await
}

async fn evict_checked(
    connection: &Connection,
    env: &Env,
    eviction: &Eviction,
    read: Result<EvictablePod, Evicted>,
    deadline: Mono,
) -> Result<Evicted, NotEvicted> {
    let pod = &eviction.pod;
    let read = match read {
        Ok(read) => read,
        Err(done) => return Ok(done),
    };
    match connection.send(eviction_call(eviction, &read).with_deadline(deadline)).await {
        Ok(_) => Ok(Evicted::Terminates { grace: read.grace }),
        // A webhook may refuse with any code.
        Err(error) if error.is_not_found() => match self::read(connection, env, pod, deadline).await? {
            Ok(_) => Err(NotEvicted::Failed(error)),
            Err(done) => Ok(done),
        },
        Err(error) if error.is_changed() && !is_denial(&error) => Err(NotEvicted::Changed),
        Err(error) => match classify_refusal(error) {
            NotEvicted::SeveralBudgets { .. } => {
                let budgets =
                    matching_budgets(connection, pod, &read.labels, deadline).await.unwrap_or_default();
                Err(NotEvicted::SeveralBudgets { budgets })
            }
            why => Err(why),
        },
    }
}

fn path(pod: &PodKey) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name)
}

/// Reads the pod. `Err` in `Ok`: there is nothing to evict.
async fn read(
    connection: &Connection,
    env: &Env,
    pod: &PodKey,
    deadline: Mono,
) -> Result<Result<EvictablePod, Evicted>, NotEvicted> {
    let raw = match connection.send(Call::get(path(pod)).with_deadline(deadline)).await {
        Ok(raw) => raw,
        Err(error) if error.is_not_found() => return Ok(Err(Evicted::Gone)),
        Err(error) if error.is_outcome_unknown() => return Err(NotEvicted::Unknown(error)),
        Err(error) => return Err(NotEvicted::Failed(error)),
    };
    check_evictable(&raw, env, pod)
}

/// What a pod as it was read says. `Err` in `Ok`: there is nothing to evict.
fn check_evictable(
    raw: &wire::Raw,
    env: &Env,
    pod: &PodKey,
) -> Result<Result<EvictablePod, Evicted>, NotEvicted> {
    let unreadable = |error: ApiError| NotEvicted::Unreadable(error_chain(&error));
    let wire: wire::Pod = raw.decode().map_err(|error| unreadable(ApiError::Undecodable(error)))?;
    let grace = wire.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    let observed = cache::pod_from_wire(wire, env.now())
        .map_err(|undecodable| NotEvicted::Unreadable(undecodable.reason().to_owned()))?;
    if observed.key.uid != pod.uid {
        return Ok(Err(Evicted::Replaced));
    }
    if observed.deletion.is_some() {
        return Ok(Err(Evicted::AlreadyTerminating));
    }
    match (observed.phase.is_terminal(), observed.running_containers > 0) {
        (true, true) => Err(NotEvicted::Unsafe),
        (true, false) => Ok(Err(Evicted::Finished)),
        (false, _) => {
            let grace = grace.unwrap_or(DEFAULT_GRACE).max(MIN_GRACE_SECONDS);
            Ok(Ok(EvictablePod { rv: observed.rv, grace, labels: observed.labels }))
        }
    }
}

/// kube's own eviction drops its `deleteOptions`, the UID among them: this is ours.
fn eviction_call(eviction: &Eviction, read: &EvictablePod) -> Call {
    let Eviction { pod, dry_run } = eviction;
    let mut body = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "namespace": pod.namespace, "name": pod.name },
        "deleteOptions": {
            "gracePeriodSeconds": read.grace,
            "preconditions": { "uid": pod.uid, "resourceVersion": read.rv },
        },
    });
    let mut path = format!("{}/eviction", path(pod));
    if *dry_run {
        // Admission webhooks hear of it by the query only; both must agree.
        body["deleteOptions"]["dryRun"] = json!(["All"]);
        path.push_str("?dryRun=All");
    }
    Call::write(Method::Post, path, &body)
}

/// Whether an admission webhook said no, with whatever code it chose.
fn is_denial(error: &ApiError) -> bool {
    matches!(error, ApiError::Refused { message, .. } if message.contains("admission webhook \"") && message.contains(" denied the request"))
}

/// The webhook that failed, and how: `failed calling webhook "NAME": WHY`.
fn failed_webhook(message: &str) -> Option<(&str, &str)> {
    let (_, rest) = message.split_once("failed calling webhook \"")?;
    rest.split_once("\": ")
}

/// Tells refusals apart. The API server has no reasons of their own for most of
/// them: sentences must do.
fn classify_refusal(error: ApiError) -> NotEvicted {
    let ApiError::Refused { code, message, causes, retry_after, .. } = &error else {
        return if error.is_outcome_unknown() {
            NotEvicted::Unknown(error)
        } else {
            NotEvicted::Failed(error)
        };
    };
    let retry_after = *retry_after;
    let about_budget = causes.iter().find(|cause| cause.contains("disruption budget"));
    match (code, about_budget) {
        (429, Some(why)) if why.contains("still being processed") => {
            NotEvicted::Processing { why: why.clone(), retry_after }
        }
        (429, Some(why)) => NotEvicted::Blocked { why: why.clone(), retry_after },
        (500, _) if message.contains("more than one PodDisruptionBudget") => {
            NotEvicted::SeveralBudgets { budgets: Vec::new() }
        }
        (403, _) if let Some(why) = causes.iter().find(|cause| cause.contains("is being terminated")) => {
            NotEvicted::NamespaceTerminating { why: why.clone() }
        }
        (403, _) if message.contains("DisruptedPods map too big") => {
            NotEvicted::TooManyDisrupted { why: message.clone() }
        }
        (403, _) if message.contains("disruptions allowed is negative") => {
            NotEvicted::Blocked { why: message.clone(), retry_after }
        }
        (500.., _) if is_denial(&error) => NotEvicted::Failed(error),
        (500.., _) => match failed_webhook(message) {
            Some((name, why)) => NotEvicted::WebhookFails { name: name.to_owned(), why: why.to_owned() },
            None => NotEvicted::Failing(error),
        },
        _ => NotEvicted::Failed(error),
    }
}

/// The names of the budgets that choose these labels, which the API server does not say.
async fn matching_budgets(
    connection: &Connection,
    pod: &PodKey,
    labels: &Labels,
    deadline: Mono,
) -> Result<Vec<String>, ApiError> {
    let mut names = Vec::new();
    let path = Kind::Budgets.path_in(Some(&pod.namespace));
    let mut page = connection.list(Call::get(path).with_deadline(deadline)).await?;
    while let Some(raw) = page.next().await? {
        let Ok(wire::Budget { metadata: Some(meta), spec: Some(spec), .. }) = raw.decode() else { continue };
        if matches!(parse_selector(spec.selector), Ok(Some(selector)) if selector.matches(labels)) {
            names.extend(meta.name);
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests;
