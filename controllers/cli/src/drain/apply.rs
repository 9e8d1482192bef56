//! The act on one node: cordon, evict, wait, and end in good order whatever happens.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use pod_safety_drain::{Action, Asker, Consent, Line, Outcome, Row, Tone, Work};
use pod_safety_shared::authority::{
    Cordoned, Evicted, Eviction, NotEvicted, cordon, cordon_as_read, evict, evict_as_read,
};
use pod_safety_shared::client::ApiError;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{PodKey, Uid};
use pod_safety_shared::record::error_chain;
use tokio::sync::Semaphore;

use super::look::Look;
use super::said::Said;
use crate::Exit;
use crate::cluster::Session;
use crate::helped::{Named, NotThere};

/// How often it is looked which pods are there still. Their graces are seconds.
const LOOK_EACH: Duration = Duration::from_secs(1);

/// So long after the first eviction it is looked first; then ever more rarely.
const FIRST_LOOK: Duration = Duration::from_millis(250);

/// So many evictions are under way together: a few requests of a person beside the hundreds that an API server takes.
pub(super) const EVICTIONS: usize = 64;

/// The shortest pause between two rounds.
const BREATH: Duration = Duration::from_millis(50);

/// After a failure that may pass.
const AFTER_TROUBLE: Duration = Duration::from_secs(2);

/// How long a drain that ends looks for what is left.
const LAST_LOOK: Duration = Duration::from_secs(3);

/// Without `--timeout`.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Whether a failed read may succeed the next time: a drain outlives the restart of
/// an API server.
fn passes(error: &anyhow::Error) -> bool {
    let api = error.chain().find_map(|cause| cause.downcast_ref::<ApiError>());
    api.is_some_and(|error| error.outcome_unknown() || error.code() == Some(429))
}

/// What every node of one `drain --apply` is drained with.
pub(super) struct Apply {
    pub(super) session: Session,
    pub(super) consent: Consent,
    pub(super) look: Look,
    pub(super) timeout: Option<Duration>,
    pub(super) said: Said,
    /// Turns of evictions, of all nodes.
    pub(super) evictions: Semaphore,
    /// Who requests evictions, where that is possible.
    pub(super) asker: Option<Asker>,
    /// On some node nobody answered requests: the nodes after it are drained directly at once.
    pub(super) directly: AtomicBool,
}

/// How the drain of a node ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drained {
    pub(crate) exit: Exit,
    /// So many pods came to the node meanwhile, and stay.
    pub(crate) came: usize,
}

/// One of the nodes.
pub(super) struct OneNode<'a> {
    pub(super) apply: &'a Apply,
    pub(super) node: &'a str,
}

impl OneNode<'_> {
    /// Cordons it.
    pub(super) async fn cordon(&self) -> anyhow::Result<()> {
        let Session { connection, env } = &self.apply.session;
        let deadline = env.now() + FOR_EVER;
        let cordoned = match self.apply.look.node(self.node) {
            Some(read) => cordon_as_read(connection, self.node, &read, deadline).await,
            None => cordon(connection, self.node, deadline).await,
        };
        match cordoned.context("cordoning the node")? {
            Cordoned::Now => self.say(Tone::Good, format!("node/{} cordoned", self.node)),
            Cordoned::Already => self.say(Tone::Good, format!("node/{} was cordoned already", self.node)),
            Cordoned::NoNode => bail!(NotThere::new(Named::Node, None, self.node)),
        }
    }

    /// Empties it, once it is cordoned, until its time is up or `stopped` ends. `sent`: the pods that were on no node when
    /// it was cordoned.
    pub(super) async fn run(
        &self,
        sent: &BTreeSet<Uid>,
        stopped: impl Future<Output = Exit>,
    ) -> anyhow::Result<Drained> {
        let env = &self.apply.session.env;
        let began = env.now();
        let up = env.clock.sleep_until(began + self.apply.timeout.unwrap_or(FOR_EVER));
        let asks = self.apply.asker.is_some() && !self.apply.directly.load(Ordering::Relaxed);
        let mut work = if asks { Work::by_requests() } else { Work::default() };
        let done = tokio::select! {
            biased;
            exit = stopped => Ok(Drained { exit, came: 0 }),
            () = up => Ok(Drained { exit: Exit::TimedOut, came: 0 }),
            done = self.drain(&mut work, sent) => done,
        };
        // What went wrong is said by whoever called us; that the node is cordoned by us.
        let exit = done.as_ref().map_or(Exit::Interrupted, |done| done.exit);
        let exit = self.report(&mut work, exit, began).await?;
        done.map(|done| Drained { exit, ..done })
    }

    /// Evicts each pod that is there when the node is cordoned, and waits until they are gone. A pod that comes later is
    /// told of; it is evicted only if the scheduler had not heard of the cordon when it sent the pod.
    async fn drain(&self, work: &mut Work, sent: &BTreeSet<Uid>) -> anyhow::Result<Drained> {
        let look = &self.apply.look;
        self.again().await?;
        let plan = look.plan(self.node, &self.apply.consent);
        work.take(&plan.rows, self.apply.session.env.now());
        let mut returns = look.comes_back(&plan);
        loop {
            if !self.rounds(work).await? {
                let there = self.again().await?;
                self.tell_all(work.seen(&there))?;
            }
            let plan = look.plan(self.node, &self.apply.consent);
            let known = work.all();
            let stays = |row: &Row| matches!(row.action, Action::Stay | Action::Ending);
            let new = |row: &&Row| !stays(row) && !known.contains(&row.pod.uid);
            let new: Vec<Row> = plan.rows.iter().filter(new).cloned().collect();
            let was_sent = |row: &&Row| sent.contains(&row.pod.uid) && !look.tolerates_cordon(&row.pod.uid);
            let late: Vec<&Row> = new.iter().filter(was_sent).collect();
            if !late.is_empty() {
                work.take(late, self.apply.session.env.now());
                continue;
            }
            if new.is_empty() && std::mem::take(&mut returns) {
                // Its controller and the scheduler take a moment.
                self.apply.session.env.sleep(LOOK_EACH).await;
                continue;
            }
            if let Some(asker) = self.apply.asker {
                let Session { connection, env } = &self.apply.session;
                asker.tidy(connection, env, self.node, work).await;
            }
            for row in &new {
                self.tell(&Work::came(row, self.node, look.tolerates_cordon(&row.pod.uid)))?;
            }
            let exit = match work.outcome() {
                Outcome::Gone => Exit::Fine,
                Outcome::Left => Exit::Blocked,
                Outcome::Refused => Exit::Refused,
            };
            return Ok(Drained { exit, came: new.len() });
        }
    }

    /// Reads the node's pods, however long the API server is in trouble.
    async fn again(&self) -> anyhow::Result<BTreeSet<Uid>> {
        loop {
            match self.apply.look.again(&self.apply.session, self.node).await {
                Err(error) if passes(&error) => self.trouble(&error).await?,
                there => return there,
            }
        }
    }

    /// Evicts and waits until everything that was taken on is gone or given up. Gives back whether the node was read since.
    async fn rounds(&self, work: &mut Work) -> anyhow::Result<bool> {
        let env = &self.apply.session.env;
        let (mut pause, mut look_at, mut is_read) = (FIRST_LOOK, None, false);
        let mut sent = FuturesUnordered::new();
        while !work.is_over() {
            if let Some(asker) = self.apply.asker.filter(|_| work.sends_requests()) {
                let lines = asker.round(&self.apply.session.connection, env, self.node, work).await;
                self.apply.directly.fetch_or(!work.sends_requests(), Ordering::Relaxed);
                self.tell_all(lines)?;
            }
            for (index, pod) in work.due(env.now()) {
                work.asked(index);
                sent.push(async move { (index, self.evict(pod).await) });
            }
            let look = work.ends().then(|| *look_at.get_or_insert(env.now() + pause));
            if look.is_some_and(|at| env.now() >= at) {
                let there = self.again().await?;
                self.tell_all(work.seen(&there))?;
                (is_read, pause) = (true, (pause * 3 / 2).min(LOOK_EACH));
                look_at = None;
                continue;
            }
            self.apply.said.show(self.node, work.count())?;
            let asks = work.next_request(env.now());
            let next = work.next_due().into_iter().chain(look).chain(asks).min();
            let next = next.unwrap_or(env.now() + LOOK_EACH);
            let breath: Mono = env.now() + BREATH;
            tokio::select! {
                biased;
                Some((index, answer)) = sent.next() => {
                    is_read = false;
                    self.tell_all(work.answered(index, &answer, env.now()))?;
                }
                () = env.clock.sleep_until(next.max(breath)) => {}
            }
        }
        Ok(is_read)
    }

    /// One eviction, of a pod that was listed just now or is read again.
    async fn evict(&self, pod: PodKey) -> Result<Evicted, NotEvicted> {
        let Apply { session: Session { connection, env }, look, evictions, .. } = self.apply;
        // It is never closed.
        let _turn = evictions.acquire().await.ok();
        let (listed, deadline) = (look.listed(&pod.uid, env.now()), env.now() + FOR_EVER);
        let eviction = Eviction { pod, dry_run: false };
        match listed {
            Some(read) => evict_as_read(connection, env, &eviction, &read, deadline).await,
            None => evict(connection, env, &eviction, deadline).await,
        }
    }

    /// The API server is in trouble: says so, and gives it time.
    async fn trouble(&self, error: &anyhow::Error) -> anyhow::Result<()> {
        let text = format!("waits for the API server: {}", error_chain(error.as_ref()));
        self.say(Tone::Attention, text)?;
        self.apply.session.env.sleep(AFTER_TROUBLE).await;
        Ok(())
    }

    /// How it ended, and what is left as it is: what is said to exist was read now.
    async fn report(&self, work: &mut Work, exit: Exit, began: Mono) -> anyhow::Result<Exit> {
        let Apply { session, look, .. } = self.apply;
        let env = &session.env;
        let mut seen = true;
        if exit != Exit::Fine && work.count().gone < work.count().all {
            let there = tokio::select! {
                biased;
                there = look.again(session, self.node) => there.ok(),
                () = env.sleep(LAST_LOOK) => None,
            };
            seen = there.is_some();
            self.tell_all(work.seen(&there.unwrap_or_else(|| work.all())))?;
        }
        let count = work.count();
        let seconds = env.now().since(began).as_secs();
        let is_done = count.all > 0 && count.gone == count.all;
        if exit == Exit::Fine || is_done {
            self.say(Tone::Good, format!("node/{} drained: {} gone in {seconds}s", self.node, count.gone))?;
            return Ok(Exit::Fine);
        }
        self.tell_all(work.left(seen))?;
        let (how, left) = (ended_how(exit), count.all - count.gone);
        let text =
            format!("node/{} not drained{how} after {seconds}s: {} gone, {left} left", self.node, count.gone);
        self.say(Tone::Bad, text)?;
        let text = format!(
            "node/{0} stays cordoned. The same command continues; to undo: kubectl uncordon {0}",
            self.node
        );
        self.say(Tone::Attention, text)?;
        if work.is_requested() {
            let text = format!(
                "what is requested goes on without this command; to withdraw it: pod-safety drain {} --withdraw",
                self.node
            );
            self.say(Tone::Attention, text)?;
        }
        Ok(exit)
    }

    fn say(&self, tone: Tone, text: String) -> anyhow::Result<()> {
        self.tell(&Line { tone, text })
    }

    fn tell_all(&self, lines: impl IntoIterator<Item = Line>) -> anyhow::Result<()> {
        lines.into_iter().try_for_each(|line| self.tell(&line))
    }

    fn tell(&self, line: &Line) -> anyhow::Result<()> {
        self.apply.said.tell(self.node, line, self.apply.session.env.clock.wall())
    }
}

/// Why it ended before everything was gone.
const fn ended_how(exit: Exit) -> &'static str {
    match exit {
        Exit::TimedOut => ", the time is up",
        Exit::Interrupted => ", stopped",
        Exit::Fine | Exit::Blocked | Exit::Refused | Exit::Unknown => "",
    }
}
