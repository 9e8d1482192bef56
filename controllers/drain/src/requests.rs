//! The requester: sends EvictionRequests, reads their status, and withdraws them.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use pod_safety_shared::authority::operator_requests::eviction_requests::{
    EvictionRequest, create_request, delete_request, list_evictions, list_node_requests, withdraw_request,
};
use pod_safety_shared::client::{ApiError, Connection};
use pod_safety_shared::clock::Env;
use pod_safety_shared::model::PodKey;
use pod_safety_shared::record::error_chain;

use super::work::{DrainProgress, Line, Tone};

/// How often requests are read: a node has a hundred pods or so, and turns of responders take minutes.
const READ_INTERVAL: Duration = Duration::from_secs(2);

/// How many writes are in flight at a time.
const MAX_CONCURRENT_WRITES: usize = 16;

/// Within this time the controllers inform responders that a request was withdrawn.
const CANCELED_WITHIN: Duration = Duration::from_secs(30);

/// Within this time the controllers record that a pod is gone. They wait five seconds for the last report of its
/// responder.
const RECORDED_WITHIN: Duration = Duration::from_secs(6);

/// How often it is checked whether they did.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Requests the eviction of the pods of nodes.
#[derive(Clone, Copy, Debug)]
pub struct EvictionRequester {
    /// The name of the requester.
    pub requester: &'static str,
    /// Pods whose eviction can be requested are never evicted directly, even if no controller handles the requests.
    pub requests_only: bool,
}

impl EvictionRequester {
    /// Sends the requests that are due and reads those that are due. Returns the lines to print.
    pub async fn run_round(
        self,
        connection: &Connection,
        env: &Env,
        node: &str,
        work: &mut DrainProgress,
    ) -> Vec<Line> {
        let (pods, mut lines) = (work.pods_to_request(env.now()), Vec::new());
        if !pods.is_empty() {
            // Without the right to read Evictions, no progress is reported.
            if let Err(error) = list_node_requests(connection, node).await {
                return self.report_unreadable(error, &pods, env, work);
            }
            let send = |pod: PodKey| async move {
                let sent = create_request(connection, self.requester, node, &pod).await;
                (pod, sent)
            };
            let sent: Vec<_> = stream::iter(pods).map(send).buffer_unordered(MAX_CONCURRENT_WRITES).collect().await;
            work.defer_requests(env.now() + READ_INTERVAL);
            let now = env.now();
            lines.extend(
                sent.iter().filter_map(|(pod, sent)| work.record_request(&pod.uid, sent, self.requests_only, now)),
            );
            return lines;
        }
        if work.is_requested() && work.next_request(env.now()).is_some_and(|next| next <= env.now()) {
            lines.extend(self.read_requests(connection, env, node, work).await);
        }
        lines
    }

    /// The requests cannot be read: nothing was sent.
    fn report_unreadable(self, error: ApiError, pods: &[PodKey], env: &Env, work: &mut DrainProgress) -> Vec<Line> {
        let why = error_chain(&error);
        let line = |text: String| vec![Line { tone: Tone::Attention, text }];
        if error.is_outcome_unknown() || error.code() == Some(429) {
            work.defer_requests(env.now() + READ_INTERVAL);
            return line(format!("waits for the API server: {why}"));
        }
        if self.requests_only {
            let (now, refused) = (env.now(), Err(error));
            return pods.iter().filter_map(|pod| work.record_request(&pod.uid, &refused, true, now)).collect();
        }
        work.switch_to_direct(env.now());
        line(format!("evictions are not requested, and pods are evicted directly: {why}"))
    }

    async fn read_requests(
        self,
        connection: &Connection,
        env: &Env,
        node: &str,
        work: &mut DrainProgress,
    ) -> Vec<Line> {
        work.defer_requests(env.now() + READ_INTERVAL);
        // What cannot be read now is read later: the requests remain.
        let Ok(all) = self.list_own(connection, node).await else { return Vec::new() };
        // Without the right to read Evictions, the drain reports less.
        let following = list_evictions(connection, None, self.requester).await.ok().flatten().unwrap_or_default();
        let mut lines = work.apply_requests(&all, &following, env.now());
        if !work.is_unanswered(env.now()) {
            return lines;
        }
        if self.requests_only {
            let text = "no controller answers EvictionRequests: kubectl get evictionrequests -A shows them as Pending";
            let line = work.take_unanswered_notice();
            lines.extend(line.then(|| Line { tone: Tone::Attention, text: text.to_owned() }));
            return lines;
        }
        self.withdraw_all(connection, &all).await;
        work.switch_to_direct(env.now());
        let text =
            "no controller answers EvictionRequests within 10s: they are withdrawn, and pods are evicted directly";
        lines.push(Line { tone: Tone::Attention, text: text.to_owned() });
        lines
    }

    /// The requests of this requester for pods of a node.
    async fn list_own(self, connection: &Connection, node: &str) -> Result<Vec<EvictionRequest>, ApiError> {
        let mut all = list_node_requests(connection, node).await?;
        all.retain(|request| request.spec.requester == self.requester);
        Ok(all)
    }

    /// Requests that cannot be withdrawn or deleted now remain, and `status` lists them.
    async fn withdraw_all(self, connection: &Connection, all: &[EvictionRequest]) {
        let both = |request| async move {
            if withdraw_request(connection, request).await.is_ok() {
                drop(delete_request(connection, request).await);
            }
        };
        stream::iter(all).for_each_concurrent(MAX_CONCURRENT_WRITES, both).await;
    }

    /// Deletes the requests that are done, once the controllers have recorded that.
    pub async fn delete_completed(self, connection: &Connection, env: &Env, node: &str, work: &DrainProgress) {
        let (gone, deadline) = (work.gone_pods(), env.now() + RECORDED_WITHIN);
        let is_done = |request: &EvictionRequest| {
            let invalid = request.failed_condition().is_some_and(|failed| failed.reason == "EvictionInvalid");
            request.evicted_condition().is_some() || invalid
        };
        loop {
            let Ok(mut all) = self.list_own(connection, node).await else { return };
            all.retain(|request| is_done(request) || gone.contains(&request.spec.target.pod.uid));
            let recorded = all.iter().all(|request| is_done(request) || !request.is_observed());
            if recorded || env.now() >= deadline {
                let delete = |request| async move { drop(delete_request(connection, request).await) };
                stream::iter(&all).for_each_concurrent(MAX_CONCURRENT_WRITES, delete).await;
                return;
            }
            env.sleep(POLL_INTERVAL).await;
        }
    }
}

/// The withdrawn requests of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Withdrawn {
    /// The pods whose evictions were requested, as namespace and name.
    pub pods: BTreeSet<String>,
    /// How many requests no controller has recorded as withdrawn.
    pub unrecorded: usize,
}

/// Withdraws all requests of drains of a node, waits until responders can see that, and deletes them.
///
/// # Errors
/// They could not be read or written.
pub async fn withdraw(connection: &Connection, env: &Env, node: &str) -> Result<Withdrawn, ApiError> {
    let all = list_node_requests(connection, node).await?;
    for request in &all {
        withdraw_request(connection, request).await?;
    }
    let deadline = env.now() + CANCELED_WITHIN;
    let own_uids: BTreeSet<&str> = all.iter().map(|request| &*request.metadata.uid).collect();
    let unrecorded = loop {
        let remaining = list_node_requests(connection, node).await?;
        let open = |request: &&EvictionRequest| {
            let is_over = request.failed_condition().is_some() || request.evicted_condition().is_some();
            own_uids.contains(&*request.metadata.uid) && !is_over
        };
        let open = remaining.iter().filter(open).count();
        // A request that no controller has observed has no consequences.
        if remaining.iter().all(|request| request.status.observed_generation.is_none()) || open == 0 {
            break 0;
        }
        if env.now() >= deadline {
            break open;
        }
        env.sleep(POLL_INTERVAL).await;
    };
    for request in &all {
        delete_request(connection, request).await?;
    }
    let pods = all.iter().map(|one| format!("{}/{}", one.metadata.namespace, one.spec.target.pod.name));
    Ok(Withdrawn { pods: pods.collect(), unrecorded })
}

#[cfg(test)]
mod tests;
