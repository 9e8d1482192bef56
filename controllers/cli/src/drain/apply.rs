//! The drain of one node: cordon, evict, wait, and end in good order whatever happens.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use pod_safety_drain::{Action, Consent, DrainProgress, EvictionRequester, Line, Outcome, Row, Tone};
use pod_safety_shared::authority::{
    Cordoned, Evicted, Eviction, NotEvicted, cordon, cordon_read_node, evict, evict_read_pod,
};
use pod_safety_shared::client::ApiError;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{PodKey, Uid};
use pod_safety_shared::record::error_chain;
use tokio::sync::Semaphore;

use super::output::DrainOutput;
use super::snapshot::DrainSnapshot;
use crate::Exit;
use crate::cluster::Session;
use crate::error_hints::{NotFound, ResourceKind};

/// How often the remaining pods are read. Grace periods are seconds.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long after the first eviction they are first read; then the interval grows.
const FIRST_POLL: Duration = Duration::from_millis(250);

/// How many evictions are in flight at a time: few compared with the hundreds of requests that an API server serves at
/// once.
const EVICTIONS: usize = 64;

/// The shortest pause between two rounds.
const MIN_PAUSE: Duration = Duration::from_millis(50);

/// The pause after an error that may pass.
const AFTER_TROUBLE: Duration = Duration::from_secs(2);

/// How long the final read of the remaining pods may take.
const FINAL_POLL_TIMEOUT: Duration = Duration::from_secs(3);

/// The timeout without `--timeout`.
const NO_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Whether a failed read may succeed later: a drain survives the restart of an API server.
fn is_transient(error: &anyhow::Error) -> bool {
    let api = error.chain().find_map(|cause| cause.downcast_ref::<ApiError>());
    api.is_some_and(|error| error.is_outcome_unknown() || error.code() == Some(429))
}

/// What the drains of all nodes of one `drain --apply` share.
pub(super) struct Apply {
    pub(super) session: Session,
    pub(super) consent: Consent,
    pub(super) snapshot: DrainSnapshot,
    pub(super) timeout: Option<Duration>,
    pub(super) output: DrainOutput,
    /// The requester of evictions, where they can be requested.
    pub(super) requester: Option<EvictionRequester>,
    /// Limits the evictions of all nodes.
    evictions: Semaphore,
    /// On some node no controller handled requests: the nodes after it are drained directly.
    evict_directly: AtomicBool,
}

impl Apply {
    pub(super) fn new(
        session: Session,
        consent: Consent,
        snapshot: DrainSnapshot,
        timeout: Option<Duration>,
        output: DrainOutput,
        requester: Option<EvictionRequester>,
    ) -> Self {
        let (evictions, evict_directly) = (Semaphore::new(EVICTIONS), AtomicBool::new(false));
        Self { session, consent, snapshot, timeout, output, requester, evictions, evict_directly }
    }
}

/// How the drain of a node ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drained {
    pub(crate) exit: Exit,
    /// How many pods were scheduled to the node meanwhile, and stay.
    pub(crate) late_pods: usize,
}

/// The drain of one of the nodes.
pub(super) struct OneNode<'a> {
    pub(super) apply: &'a Apply,
    pub(super) node: &'a str,
}

impl OneNode<'_> {
    /// Cordons the node.
    pub(super) async fn cordon(&self) -> anyhow::Result<()> {
        let Session { connection, env } = &self.apply.session;
        let deadline = env.now() + NO_TIMEOUT;
        let cordoned = match self.apply.snapshot.node(self.node) {
            Some(read) => cordon_read_node(connection, self.node, &read, deadline).await,
            None => cordon(connection, self.node, deadline).await,
        };
        match cordoned.context("cordoning the node")? {
            Cordoned::Now => self.print_message(Tone::Good, format!("node/{} cordoned", self.node)),
            Cordoned::Already => self.print_message(Tone::Good, format!("node/{} was cordoned already", self.node)),
            Cordoned::NoNode => bail!(NotFound::new(ResourceKind::Node, None, self.node)),
        }
    }

    /// Drains the node, once it is cordoned, until the timeout or until `stopped` ends. `sent`: the pods that were on
    /// no node when it was cordoned.
    pub(super) async fn run(
        &self,
        sent: &BTreeSet<Uid>,
        stopped: impl Future<Output = Exit>,
    ) -> anyhow::Result<Drained> {
        let env = &self.apply.session.env;
        let began = env.now();
        let up = env.clock.sleep_until(began + self.apply.timeout.unwrap_or(NO_TIMEOUT));
        let requests = self.apply.requester.is_some() && !self.apply.evict_directly.load(Ordering::Relaxed);
        let mut work = if requests { DrainProgress::with_requests() } else { DrainProgress::default() };
        let done = tokio::select! {
            biased;
            exit = stopped => Ok(Drained { exit, late_pods: 0 }),
            () = up => Ok(Drained { exit: Exit::TimedOut, late_pods: 0 }),
            done = self.drain(&mut work, sent) => done,
        };
        // The caller prints the error; this prints that the node stays cordoned.
        let exit = done.as_ref().map_or(Exit::Interrupted, |done| done.exit);
        let exit = self.report(&mut work, exit, began).await?;
        done.map(|done| Drained { exit, ..done })
    }

    /// Evicts each pod that exists when the node is cordoned, and waits until they are gone. A pod that comes later is
    /// reported. It is evicted only if the scheduler bound it before it observed the cordon.
    async fn drain(&self, work: &mut DrainProgress, sent: &BTreeSet<Uid>) -> anyhow::Result<Drained> {
        let snapshot = &self.apply.snapshot;
        self.reread().await?;
        let plan = snapshot.plan(self.node, &self.apply.consent);
        work.add_rows(&plan.rows, self.apply.session.env.now());
        let mut returns = snapshot.may_come_back(&plan);
        loop {
            if !self.evict_until_done(work).await? {
                let present = self.reread().await?;
                self.print_lines(work.record_present(&present))?;
            }
            let plan = snapshot.plan(self.node, &self.apply.consent);
            let existing = work.uids();
            let stays = |row: &Row| matches!(row.action, Action::Stay | Action::Ending);
            let new = |row: &&Row| !stays(row) && !existing.contains(&row.pod.uid);
            let new: Vec<Row> = plan.rows.iter().filter(new).cloned().collect();
            let was_sent = |row: &&Row| sent.contains(&row.pod.uid) && !snapshot.tolerates_cordon(&row.pod.uid);
            let late: Vec<&Row> = new.iter().filter(was_sent).collect();
            if !late.is_empty() {
                work.add_rows(late, self.apply.session.env.now());
                continue;
            }
            if new.is_empty() && std::mem::take(&mut returns) {
                // The controller of the pod and the scheduler need a moment.
                self.apply.session.env.sleep(POLL_INTERVAL).await;
                continue;
            }
            if let Some(requester) = self.apply.requester {
                let Session { connection, env } = &self.apply.session;
                requester.delete_completed(connection, env, self.node, work).await;
            }
            for row in &new {
                self.print_line(&DrainProgress::describe_late_pod(
                    row,
                    self.node,
                    snapshot.tolerates_cordon(&row.pod.uid),
                ))?;
            }
            let exit = match work.outcome() {
                Outcome::Gone => Exit::Fine,
                Outcome::Incomplete => Exit::Blocked,
                Outcome::Refused => Exit::Refused,
            };
            return Ok(Drained { exit, late_pods: new.len() });
        }
    }

    /// Reads the node's pods, and retries while the API server fails.
    async fn reread(&self) -> anyhow::Result<BTreeSet<Uid>> {
        loop {
            match self.apply.snapshot.reread_pods(&self.apply.session, self.node).await {
                Err(error) if is_transient(&error) => self.report_trouble(&error).await?,
                result => return result,
            }
        }
    }

    /// Evicts and waits until every pod is gone or stopped. Returns whether the node was read since.
    async fn evict_until_done(&self, work: &mut DrainProgress) -> anyhow::Result<bool> {
        let env = &self.apply.session.env;
        let (mut pause, mut look_at, mut is_read) = (FIRST_POLL, None, false);
        let mut sent = FuturesUnordered::new();
        while !work.is_over() {
            if let Some(requester) = self.apply.requester.filter(|_| work.sends_requests()) {
                let lines = requester.run_round(&self.apply.session.connection, env, self.node, work).await;
                self.apply.evict_directly.fetch_or(!work.sends_requests(), Ordering::Relaxed);
                self.print_lines(lines)?;
            }
            for (index, pod) in work.due(env.now()) {
                work.mark_sent(index);
                sent.push(async move { (index, self.evict(pod).await) });
            }
            let poll_at = work.has_terminating().then(|| *look_at.get_or_insert(env.now() + pause));
            if poll_at.is_some_and(|at| env.now() >= at) {
                let present = self.reread().await?;
                self.print_lines(work.record_present(&present))?;
                (is_read, pause) = (true, (pause * 3 / 2).min(POLL_INTERVAL));
                look_at = None;
                continue;
            }
            self.apply.output.show_progress(self.node, work.count())?;
            let next_request = work.next_request(env.now());
            let next = work.next_due().into_iter().chain(poll_at).chain(next_request).min();
            let next = next.unwrap_or(env.now() + POLL_INTERVAL);
            let breath: Mono = env.now() + MIN_PAUSE;
            tokio::select! {
                biased;
                Some((index, answer)) = sent.next() => {
                    is_read = false;
                    self.print_lines(work.record_answer(index, &answer, env.now()))?;
                }
                () = env.clock.sleep_until(next.max(breath)) => {}
            }
        }
        Ok(is_read)
    }

    /// Sends one eviction, of a pod that was just listed or is read again.
    async fn evict(&self, pod: PodKey) -> Result<Evicted, NotEvicted> {
        let Apply { session: Session { connection, env }, snapshot, evictions, .. } = self.apply;
        // The semaphore is never closed.
        let _turn = evictions.acquire().await.ok();
        let (listed, deadline) = (snapshot.listed(&pod.uid, env.now()), env.now() + NO_TIMEOUT);
        let eviction = Eviction { pod, dry_run: false };
        match listed {
            Some(read) => evict_read_pod(connection, env, &eviction, &read, deadline).await,
            None => evict(connection, env, &eviction, deadline).await,
        }
    }

    /// The API server fails: prints that, and waits.
    async fn report_trouble(&self, error: &anyhow::Error) -> anyhow::Result<()> {
        let text = format!("waits for the API server: {}", error_chain(error.as_ref()));
        self.print_message(Tone::Attention, text)?;
        self.apply.session.env.sleep(AFTER_TROUBLE).await;
        Ok(())
    }

    /// Prints how the drain ended and what remains: pods that are reported to exist are read now.
    async fn report(&self, work: &mut DrainProgress, exit: Exit, began: Mono) -> anyhow::Result<Exit> {
        let Apply { session, snapshot, .. } = self.apply;
        let env = &session.env;
        let mut is_read = true;
        if exit != Exit::Fine && work.count().gone < work.count().total {
            let present = tokio::select! {
                biased;
                present = snapshot.reread_pods(session, self.node) => present.ok(),
                () = env.sleep(FINAL_POLL_TIMEOUT) => None,
            };
            is_read = present.is_some();
            self.print_lines(work.record_present(&present.unwrap_or_else(|| work.uids())))?;
        }
        let count = work.count();
        let seconds = env.now().since(began).as_secs();
        let is_done = count.total > 0 && count.gone == count.total;
        if exit == Exit::Fine || is_done {
            self.print_message(Tone::Good, format!("node/{} drained: {} gone in {seconds}s", self.node, count.gone))?;
            return Ok(Exit::Fine);
        }
        self.print_lines(work.describe_remaining(is_read))?;
        let (how, remaining) = (describe_exit(exit), count.total - count.gone);
        let text =
            format!("node/{} not drained{how} after {seconds}s: {} gone, {remaining} left", self.node, count.gone);
        self.print_message(Tone::Bad, text)?;
        let text =
            format!("node/{0} stays cordoned. The same command continues; to undo: kubectl uncordon {0}", self.node);
        self.print_message(Tone::Attention, text)?;
        if work.is_requested() {
            let text = format!(
                "what is requested goes on without this command; to withdraw it: pod-safety drain {} --withdraw",
                self.node
            );
            self.print_message(Tone::Attention, text)?;
        }
        Ok(exit)
    }

    fn print_message(&self, tone: Tone, text: String) -> anyhow::Result<()> {
        self.print_line(&Line { tone, text })
    }

    fn print_lines(&self, lines: impl IntoIterator<Item = Line>) -> anyhow::Result<()> {
        lines.into_iter().try_for_each(|line| self.print_line(&line))
    }

    fn print_line(&self, line: &Line) -> anyhow::Result<()> {
        self.apply.output.print_line(self.node, line, self.apply.session.env.clock.wall())
    }
}

/// Why the drain ended before every pod was gone.
const fn describe_exit(exit: Exit) -> &'static str {
    match exit {
        Exit::TimedOut => ", the time is up",
        Exit::Interrupted => ", stopped",
        Exit::Fine | Exit::Blocked | Exit::Refused | Exit::Unknown => "",
    }
}
