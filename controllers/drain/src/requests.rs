//! The requester: sends EvictionRequests, reads how far they are, and withdraws them.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use pod_safety_shared::authority::people::requests::{
    EvictionRequest, delete_request, evictions, request, requests_of, withdraw_request,
};
use pod_safety_shared::client::{ApiError, Connection};
use pod_safety_shared::clock::Env;
use pod_safety_shared::model::PodKey;
use pod_safety_shared::record::error_chain;

use super::work::{Line, Tone, Work};

/// How often requests are read: a node has some hundred, and turns of responders are minutes.
const READ_EACH: Duration = Duration::from_secs(2);

/// So many writes are under way together.
const TOGETHER: usize = 16;

/// The controllers tell responders within it that a request was withdrawn.
const CANCELED_WITHIN: Duration = Duration::from_secs(30);

/// Within it the controllers record that a pod is gone. They wait for the last word of its responder for five seconds.
const RECORDED_WITHIN: Duration = Duration::from_secs(6);

/// How often it is looked whether they did.
const LOOK_EACH: Duration = Duration::from_secs(1);

/// Requests evictions of the pods of nodes.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// As whom.
    pub requester: &'static str,
    /// Nothing is evicted directly that can be requested, also if nobody answers.
    pub only: bool,
}

impl Asker {
    /// Sends what is to be requested and reads what is due. Gives back what there is to say.
    pub async fn round(self, connection: &Connection, env: &Env, node: &str, work: &mut Work) -> Vec<Line> {
        let (pods, mut lines) = (work.to_request(env.now()), Vec::new());
        if !pods.is_empty() {
            // Who may not read them is not told how far they are.
            if let Err(error) = requests_of(connection, node).await {
                return self.unreadable(error, &pods, env, work);
            }
            let send = |pod: PodKey| async move {
                let sent = request(connection, self.requester, node, &pod).await;
                (pod, sent)
            };
            let sent: Vec<_> = stream::iter(pods).map(send).buffer_unordered(TOGETHER).collect().await;
            work.requests_rest(env.now() + READ_EACH);
            let now = env.now();
            lines.extend(
                sent.iter().filter_map(|(pod, sent)| work.was_requested(&pod.uid, sent, self.only, now)),
            );
            return lines;
        }
        if work.is_requested() && work.next_request(env.now()).is_some_and(|next| next <= env.now()) {
            lines.extend(self.read(connection, env, node, work).await);
        }
        lines
    }

    /// The requests cannot be read: nothing was sent.
    fn unreadable(self, error: ApiError, pods: &[PodKey], env: &Env, work: &mut Work) -> Vec<Line> {
        let why = error_chain(&error);
        let line = |text: String| vec![Line { tone: Tone::Attention, text }];
        if error.outcome_unknown() || error.code() == Some(429) {
            work.requests_rest(env.now() + READ_EACH);
            return line(format!("waits for the API server: {why}"));
        }
        if self.only {
            let (now, refused) = (env.now(), Err(error));
            return pods.iter().filter_map(|pod| work.was_requested(&pod.uid, &refused, true, now)).collect();
        }
        work.go_directly(env.now());
        line(format!("evictions are not requested, and pods are evicted directly: {why}"))
    }

    async fn read(self, connection: &Connection, env: &Env, node: &str, work: &mut Work) -> Vec<Line> {
        work.requests_rest(env.now() + READ_EACH);
        // What cannot be read now is read later: the requests stand.
        let Ok(all) = self.own(connection, node).await else { return Vec::new() };
        // Without the right to read them the drain is told less.
        let following = evictions(connection, None, self.requester).await.ok().flatten().unwrap_or_default();
        let mut lines = work.hear(&all, &following, env.now());
        if !work.is_unanswered(env.now()) {
            return lines;
        }
        if self.only {
            let text = "no controller answers EvictionRequests: kubectl get evictionrequests -A shows them as Pending";
            let line = work.tells_that_nobody_answers();
            lines.extend(line.then(|| Line { tone: Tone::Attention, text: text.to_owned() }));
            return lines;
        }
        self.withdraw_all(connection, &all).await;
        work.go_directly(env.now());
        let text = "no controller answers EvictionRequests within 10s: they are withdrawn, and pods are evicted directly";
        lines.push(Line { tone: Tone::Attention, text: text.to_owned() });
        lines
    }

    /// The requests of this requester for pods of a node.
    async fn own(self, connection: &Connection, node: &str) -> Result<Vec<EvictionRequest>, ApiError> {
        let mut all = requests_of(connection, node).await?;
        all.retain(|request| request.spec.requester == self.requester);
        Ok(all)
    }

    /// What cannot be withdrawn or deleted now stands, and is listed by `status`.
    async fn withdraw_all(self, connection: &Connection, all: &[EvictionRequest]) {
        let both = |request| async move {
            if withdraw_request(connection, request).await.is_ok() {
                drop(delete_request(connection, request).await);
            }
        };
        stream::iter(all).for_each_concurrent(TOGETHER, both).await;
    }

    /// Deletes the requests that are done, when the controllers have recorded that.
    pub async fn tidy(self, connection: &Connection, env: &Env, node: &str, work: &Work) {
        let (gone, ends) = (work.gone(), env.now() + RECORDED_WITHIN);
        let is_done = |request: &EvictionRequest| {
            let invalid = request.failed().is_some_and(|failed| failed.reason == "EvictionInvalid");
            request.evicted().is_some() || invalid
        };
        loop {
            let Ok(mut all) = self.own(connection, node).await else { return };
            all.retain(|request| is_done(request) || gone.contains(&request.spec.target.pod.uid));
            let recorded = all.iter().all(|request| is_done(request) || !request.is_observed());
            if recorded || env.now() >= ends {
                let delete = |request| async move { drop(delete_request(connection, request).await) };
                stream::iter(&all).for_each_concurrent(TOGETHER, delete).await;
                return;
            }
            env.sleep(LOOK_EACH).await;
        }
    }
}

/// What was withdrawn of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Withdrawn {
    /// The pods whose evictions were requested, as namespace and name.
    pub pods: BTreeSet<String>,
    /// So many requests no controller has recorded as withdrawn.
    pub unrecorded: usize,
}

/// Withdraws all requests of drains of a node, waits until responders can see that, and deletes them.
///
/// # Errors
/// They could not be read or written.
pub async fn withdraw(connection: &Connection, env: &Env, node: &str) -> Result<Withdrawn, ApiError> {
    let all = requests_of(connection, node).await?;
    for request in &all {
        withdraw_request(connection, request).await?;
    }
    let ends = env.now() + CANCELED_WITHIN;
    let ours: BTreeSet<&str> = all.iter().map(|request| &*request.metadata.uid).collect();
    let unrecorded = loop {
        let left = requests_of(connection, node).await?;
        let open = |request: &&EvictionRequest| {
            let is_over = request.failed().is_some() || request.evicted().is_some();
            ours.contains(&*request.metadata.uid) && !is_over
        };
        let open = left.iter().filter(open).count();
        // A request that nobody has looked at is followed by nothing.
        if left.iter().all(|request| request.status.observed_generation.is_none()) || open == 0 {
            break 0;
        }
        if env.now() >= ends {
            break open;
        }
        env.sleep(LOOK_EACH).await;
    };
    for request in &all {
        delete_request(connection, request).await?;
    }
    let pods = all.iter().map(|one| format!("{}/{}", one.metadata.namespace, one.spec.target.pod.name));
    Ok(Withdrawn { pods: pods.collect(), unrecorded })
}

#[cfg(test)]
mod tests;
