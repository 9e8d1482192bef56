//! Eviction: requests that the API server deletes one pod gracefully, if the pod's PodDisruptionBudget allows it.
//!
//! Source of the contract: `pkg/registry/core/pod/storage/eviction.go` and
//! `pkg/registry/core/pod/strategy.go` (v1.37.2).
//!
//! Invariants: a quorum read of the pod comes first, at most a second before, because an eviction that is refused on
//! its UID has already consumed a disruption of the budget. The request names the UID and the resourceVersion that
//! was read, so that it can affect neither a successor nor a pod whose phase became terminal meanwhile (the API
//! server removes those at once). The grace period is never zero. A pod that is terminating already is not evicted,
//! as a second request could only shorten its grace period. Nothing here retries: [`NotEvicted::retry_delay`] states
//! when the caller may.

use std::time::Duration;

use serde_json::json;

use crate::cache::{self, parse_selector};
use crate::client::{ApiError, Call, Connection, Method, WriteCall as _};
use crate::clock::{Env, Mono};
use crate::model::{DEFAULT_GRACE, Kind, Labels, PodKey, Rv};
use crate::record::error_chain;
use crate::wire;

/// The shortest grace period: zero would remove the pod while its processes run.
pub const MIN_GRACE_SECONDS: i64 = 1;

/// How long after a refusal by a budget the eviction is repeated, if the API server states no Retry-After. The budget
/// changes when a pod becomes Ready.
const BUDGET_RETRY: Duration = Duration::from_secs(1);

/// A list of pods may be used for their evictions for this long.
pub const MAX_READ_AGE: Duration = Duration::from_secs(1);

/// After a conflict the pod is read again after this time.
const CONFLICT_RETRY: Duration = Duration::from_millis(100);

/// The delay after a failure that may pass.
const ERROR_RETRY: Duration = Duration::from_secs(2);

/// A webhook whose pod moves to another node is available again within this time, and disruptions that were not
/// confirmed expire.
const ERROR_RETRY_LIMIT: Duration = Duration::from_secs(60);

/// One eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The pod, by its UID.
    pub pod: PodKey,
    /// A server-side dry run: nothing is changed, and no disruption is consumed.
    pub dry_run: bool,
}

/// The pod needs no (further) eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// The API server accepted the eviction: the pod terminates within its grace period. In a dry run: it would.
    Terminates {
        /// The grace period in seconds.
        grace: i64,
    },
    /// The pod was deleted gracefully before.
    AlreadyTerminating,
    /// The pod's phase is terminal, and no container runs: there is nothing to evict.
    Finished,
    /// The pod does not exist.
    Gone,
    /// Another pod has its name.
    Replaced,
}

/// Why a pod was not evicted.
#[derive(Debug, thiserror::Error, strum::IntoStaticStr)]
pub enum NotEvicted {
    /// Its budget allows no disruption now.
    #[error("{why}")]
    #[strum(serialize = "BudgetBlocks")]
    Blocked {
        /// The API server's message, with its numbers.
        why: String,
        /// The Retry-After of the answer.
        retry_after: Option<Duration>,
    },
    /// The disruption controller has not processed the budget since it was changed, or the pod became Ready in that
    /// moment.
    #[error("{why}")]
    #[strum(serialize = "BudgetBeingProcessed")]
    Processing {
        /// The API server's message.
        why: String,
        /// The Retry-After of the answer.
        retry_after: Option<Duration>,
    },
    /// The API server evicts no pod that several budgets select.
    #[error("{} PodDisruptionBudgets select the pod ({}), and the API server evicts no such pod", budgets.len(), budgets.join(", "))]
    #[strum(serialize = "MultipleBudgets")]
    SeveralBudgets {
        /// Their names; empty if they could not be read.
        budgets: Vec<String>,
    },
    /// Its namespace is being deleted: the API server accepts no eviction there, and deletes the pod itself.
    #[error("{why}")]
    NamespaceTerminating {
        /// The API server's message.
        why: String,
    },
    /// More evictions were allowed than the disruption controller has confirmed.
    #[error("{why}")]
    TooManyDisrupted {
        /// The API server's message.
        why: String,
    },
    /// Its phase is terminal while its containers are reported running: the API server would remove it at once.
    #[error(
        "its phase says that it terminated, but its last report shows a running container: an eviction would remove it at once, while it may run"
    )]
    #[strum(serialize = "TerminalButRunning")]
    Unsafe,
    /// It changed between the read and the eviction.
    #[error("it changed while it was being evicted")]
    Changed,
    /// The object that has this name cannot be decoded.
    #[error("the pod cannot be read: {0}")]
    Unreadable(String),
    /// An admission webhook that the API server calls does not answer.
    #[error("the API server asks the admission webhook {name} first, and that fails: {why}")]
    WebhookFails {
        /// Its name.
        name: String,
        /// The API server's message about it.
        why: String,
    },
    /// The API server failed to evict it.
    #[error("the API server fails to evict it")]
    Failing(#[source] ApiError),
    /// Whether the eviction was executed is unknown.
    #[error("whether the pod was evicted is unknown")]
    Unknown(#[source] ApiError),
    /// The API server refused it for a reason other than a budget.
    #[error("the API server does not evict it")]
    Failed(#[source] ApiError),
}

impl NotEvicted {
    /// When to try again; `None`: not before an operator has changed something.
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
            Self::Failed(ApiError::Refused { code: 429, retry_after, .. }) => Some(retry_after.unwrap_or(ERROR_RETRY)),
            Self::SeveralBudgets { .. } | Self::Unsafe | Self::Unreadable(_) | Self::Failed(_) => None,
        }
    }

    /// For how long to try again, where the caller has no limit of its own: such a failure may be permanent, and no
    /// budget, namespace or outage behind it would end.
    #[must_use]
    pub const fn retry_limit(&self) -> Option<Duration> {
        match self {
            Self::WebhookFails { .. } | Self::Failing(_) | Self::TooManyDisrupted { .. } => Some(ERROR_RETRY_LIMIT),
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

    /// The reason as one CamelCase word, for programs.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.into()
    }
}

/// The pod as it was read, if it can be evicted.
struct EvictablePod {
    rv: Rv,
    grace: i64,
    labels: Labels,
}

/// Evicts a pod, or returns why not. Gives up at `deadline`.
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

/// As [`evict`], for a pod from a quorum read at most [`MAX_READ_AGE`] ago: from the list of a node's pods.
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
        // An admission webhook may deny with any code.
        Err(error) if error.is_not_found() => match self::read(connection, env, pod, deadline).await? {
            Ok(_) => Err(NotEvicted::Failed(error)),
            Err(done) => Ok(done),
        },
        Err(error) if error.is_changed() && !is_denial(&error) => Err(NotEvicted::Changed),
        Err(error) => match classify_refusal(error) {
            NotEvicted::SeveralBudgets { .. } => {
                let budgets = matching_budgets(connection, pod, &read.labels, deadline).await.unwrap_or_default();
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

/// Checks whether a pod as it was read can be evicted. `Err` in `Ok`: there is nothing to evict.
fn check_evictable(raw: &wire::Raw, env: &Env, pod: &PodKey) -> Result<Result<EvictablePod, Evicted>, NotEvicted> {
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

/// Not kube's own eviction call: that drops `deleteOptions`, and with them the UID.
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
        // Admission webhooks receive the dry run by the query only; both must agree.
        body["deleteOptions"]["dryRun"] = json!(["All"]);
        path.push_str("?dryRun=All");
    }
    Call::write(Method::Post, path, &body)
}

/// Whether an admission webhook denied the request, with whatever code.
fn is_denial(error: &ApiError) -> bool {
    matches!(error, ApiError::Refused { message, .. } if message.contains("admission webhook \"") && message.contains(" denied the request"))
}

/// The webhook that failed, and how: `failed calling webhook "NAME": WHY`.
fn failed_webhook(message: &str) -> Option<(&str, &str)> {
    let (_, rest) = message.split_once("failed calling webhook \"")?;
    rest.split_once("\": ")
}

/// Classifies a refusal. The API server has no reasons of their own for most of them, so messages are compared.
fn classify_refusal(error: ApiError) -> NotEvicted {
    let ApiError::Refused { code, message, causes, retry_after, .. } = &error else {
        return if error.is_outcome_unknown() { NotEvicted::Unknown(error) } else { NotEvicted::Failed(error) };
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

/// The names of the budgets that select these labels: the API server's message does not contain them.
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
