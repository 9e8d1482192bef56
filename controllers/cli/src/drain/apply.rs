//! The act: cordon, evict, wait, and end in good order whatever happens.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context, bail};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use pod_safety_drain::{Action, Consent, Line, Needs, Outcome, Plan, Row, Tone, Work};
use pod_safety_print::Paint;
use pod_safety_shared::authority::{Cordoned, Eviction, cordon, evict};
use pod_safety_shared::client::{ApiError, Call};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::Uid;
use pod_safety_shared::record::error_chain;
use pod_safety_shared::wire;
use tokio::signal::unix::{SignalKind, signal};

use super::live::Live;
use super::look::Look;
use super::page;
use crate::Exit;
use crate::cluster::Session;
use crate::helped::{Named, NotThere};
use crate::print;

/// How often it is looked which pods are there still. Their graces are seconds.
const LOOK_EACH: Duration = Duration::from_secs(1);

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

/// One `drain --apply`.
pub(super) struct Apply {
    pub(super) session: Session,
    pub(super) node: String,
    pub(super) consent: Consent,
    pub(super) paint: Paint,
    pub(super) live: Live,
    pub(super) timeout: Option<Duration>,
    /// Begin whatever cannot be read, or may not go.
    pub(super) all_the_same: bool,
}

/// How a drain ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drained {
    pub(crate) exit: Exit,
    /// So many pods came to the node meanwhile, and stay.
    pub(crate) came: usize,
}

impl Apply {
    /// Does it, unless the plan says that a person must do something first.
    pub(super) async fn run(self, plan: Plan) -> anyhow::Result<Drained> {
        let env = &self.session.env;
        let began = env.now();
        if plan.stops(self.all_the_same) {
            return Ok(Drained { exit: self.refuse(&plan)?, came: 0 });
        }
        let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
        let up = env.clock.sleep_until(began + self.timeout.unwrap_or(FOR_EVER));
        let ended = async {
            tokio::select! {
                biased;
                _ = terminate.recv() => Exit::Interrupted,
                _ = interrupt.recv() => Exit::Interrupted,
                () = up => Exit::TimedOut,
            }
        };
        futures::pin_mut!(ended);
        let cordoned = tokio::select! {
            biased;
            exit = &mut ended => return self.not_even_cordoned(exit),
            cordoned = cordon(&self.session.connection, &self.node, began + FOR_EVER) => cordoned,
        };
        match cordoned.context("cordoning the node")? {
            Cordoned::Now => self.say(Tone::Good, format!("node/{} cordoned", self.node))?,
            Cordoned::Already => self.say(Tone::Good, format!("node/{} was cordoned already", self.node))?,
            Cordoned::NoNode => bail!(NotThere::new(Named::Node, None, &self.node)),
        }
        let mut work = Work::default();
        let done = tokio::select! {
            biased;
            exit = ended => Ok(Drained { exit, came: 0 }),
            done = self.drain(&mut work) => done,
        };
        // What went wrong is said by whoever called us; that the node is cordoned by us.
        let exit = done.as_ref().map_or(Exit::Interrupted, |done| done.exit);
        let exit = self.report(&mut work, exit, began).await?;
        done.map(|done| Drained { exit, ..done })
    }

    /// It ended while the node was being cordoned.
    fn not_even_cordoned(&self, exit: Exit) -> anyhow::Result<Drained> {
        let how = ended_how(exit);
        self.say(
            Tone::Bad,
            format!(
                "node/{0} {how} while it was being cordoned: no pod was evicted; kubectl get node {0} shows whether it is",
                self.node
            ),
        )?;
        Ok(Drained { exit, came: 0 })
    }

    /// Says why nothing is begun.
    fn refuse(&self, plan: &Plan) -> anyhow::Result<Exit> {
        let stops = |row: &&Row| matches!(row.action, Action::Unagreed | Action::Unsafe);
        let rows: Vec<_> = plan.rows.iter().filter(stops).cloned().collect();
        let mut text = self.live.clear().to_owned();
        text.push_str(&format!("{}: {}.\n", self.node, page::summary(&plan.summary())));
        if plan.unreadable > 0 {
            text.push_str("Some pods of this cluster cannot be read, and may be on this node.\n");
        }
        text.push_str(&page::table(&rows, self.paint));
        text.push_str(&format!("Nothing was changed. See the plan: pod-safety drain {}\n", self.node));
        print(&text).context("writing to stdout")?;
        Ok(super::exit_of(plan))
    }

    /// Evicts each pod that is there when the node is cordoned, and waits until they are gone. A pod that comes later is
    /// told of; it is evicted only if the scheduler had not heard of the cordon when it sent the pod.
    async fn drain(&self, work: &mut Work) -> anyhow::Result<Drained> {
        let first = self.look().await?;
        let plan = first.plan(&self.node, &self.consent);
        work.take(&plan.rows, self.session.env.now());
        // The plan that was shown was older.
        let mut returns = first.comes_back(plan);
        loop {
            self.rounds(work).await?;
            let look = self.look().await?;
            let there = look.on(&self.node);
            work.seen(&there).iter().try_for_each(|line| self.tell(line))?;
            let plan = look.plan(&self.node, &self.consent);
            let known = work.all();
            let stays = |row: &Row| matches!(row.action, Action::Stay | Action::Ending);
            let new = |row: &&Row| !stays(row) && !known.contains(&row.pod.uid);
            let new: Vec<Row> = plan.rows.iter().filter(new).cloned().collect();
            let was_sent =
                |row: &&Row| first.needs_of(&row.pod.uid).is_some_and(|needs| !needs.tolerates_cordon());
            let sent: Vec<&Row> = new.iter().filter(was_sent).collect();
            if !sent.is_empty() {
                work.take(sent, self.session.env.now());
                continue;
            }
            if new.is_empty() && std::mem::take(&mut returns) {
                // Its controller and the scheduler take a moment.
                self.session.env.sleep(LOOK_EACH).await;
                continue;
            }
            for row in &new {
                let tolerates = look.needs_of(&row.pod.uid).is_some_and(Needs::tolerates_cordon);
                self.tell(&Work::came(row, &self.node, tolerates))?;
            }
            let exit = match work.outcome() {
                Outcome::Gone => Exit::Fine,
                Outcome::Left => Exit::Blocked,
                Outcome::Refused => Exit::Refused,
            };
            return Ok(Drained { exit, came: new.len() });
        }
    }

    /// Reads the cluster, however long the API server is in trouble.
    async fn look(&self) -> anyhow::Result<Look> {
        loop {
            match Look::at(&self.session, &self.node).await {
                Err(error) if passes(&error) => self.trouble(&error).await?,
                look => return look,
            }
        }
    }

    /// Evicts and waits until everything that was taken on is gone or given up.
    async fn rounds(&self, work: &mut Work) -> anyhow::Result<()> {
        let env = &self.session.env;
        let mut look_at = env.now();
        let mut sent = FuturesUnordered::new();
        while !work.is_over() {
            for (index, pod) in work.due(env.now()) {
                work.asked(index);
                sent.push(async move {
                    let eviction = Eviction { pod, dry_run: false };
                    let deadline = env.now() + FOR_EVER;
                    (index, evict(&self.session.connection, env, &eviction, deadline).await)
                });
            }
            if work.ends() && env.now() >= look_at {
                match self.there().await {
                    Ok(there) => work.seen(&there).iter().try_for_each(|line| self.tell(line))?,
                    Err(error) if passes(&error) => self.trouble(&error).await?,
                    Err(error) => return Err(error),
                }
                look_at = env.now() + LOOK_EACH;
            }
            self.show(work)?;
            let look = work.ends().then_some(look_at);
            let next = work.next_due().into_iter().chain(look).min().unwrap_or(look_at);
            let breath: Mono = env.now() + BREATH;
            tokio::select! {
                biased;
                Some((index, answer)) = sent.next() => {
                    work.answered(index, &answer, env.now()).iter().try_for_each(|line| self.tell(line))?;
                }
                () = env.clock.sleep_until(next.max(breath)) => {}
            }
        }
        Ok(())
    }

    /// The API server is in trouble: says so, and gives it time.
    async fn trouble(&self, error: &anyhow::Error) -> anyhow::Result<()> {
        let text = format!("waits for the API server: {}", error_chain(error.as_ref()));
        self.say(Tone::Attention, text)?;
        self.session.env.sleep(AFTER_TROUBLE).await;
        Ok(())
    }

    /// The pods that are on the node now.
    async fn there(&self) -> anyhow::Result<BTreeSet<Uid>> {
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName={}", self.node);
        let mut page =
            self.session.connection.list(Call::get(path)).await.context("listing the node's pods")?;
        let mut uids = BTreeSet::new();
        while let Some(raw) = page.next().await.context("listing the node's pods")? {
            let meta = raw.decode::<wire::OnlyMeta>().ok().and_then(|only| only.metadata);
            uids.extend(meta.and_then(|meta| meta.uid.as_deref().and_then(Uid::new)));
        }
        Ok(uids)
    }

    /// How it ended, and what is left as it is: what is said to exist was read now.
    async fn report(&self, work: &mut Work, exit: Exit, began: Mono) -> anyhow::Result<Exit> {
        let env = &self.session.env;
        let mut seen = true;
        if exit != Exit::Fine && work.count().gone < work.count().all {
            let there = tokio::select! {
                biased;
                there = self.there() => there.ok(),
                () = env.sleep(LAST_LOOK) => None,
            };
            seen = there.is_some();
            work.seen(&there.unwrap_or_else(|| work.all())).iter().try_for_each(|line| self.tell(line))?;
        }
        let count = work.count();
        let seconds = env.now().since(began).as_secs();
        let is_done = count.all > 0 && count.gone == count.all;
        if exit == Exit::Fine || is_done {
            let text = format!("node/{} drained: {} gone in {seconds}s", self.node, count.gone);
            self.say(Tone::Good, text)?;
            return Ok(Exit::Fine);
        }
        work.left(seen).iter().try_for_each(|line| self.tell(line))?;
        let (how, left) = (ended_how(exit), count.all - count.gone);
        let text = format!(
            "node/{0} {how} after {seconds}s: {1} gone, {left} left. It stays cordoned. To undo that: kubectl uncordon {0}",
            self.node, count.gone
        );
        self.say(Tone::Bad, text)?;
        Ok(exit)
    }

    /// One line for a change.
    fn say(&self, tone: Tone, text: String) -> anyhow::Result<()> {
        self.tell(&Line { tone, text })
    }

    fn tell(&self, line: &Line) -> anyhow::Result<()> {
        let text = self.live.line(line, self.session.env.clock.wall());
        print(&text).context("writing to stdout")
    }

    /// How far it is, for whoever watches.
    fn show(&self, work: &Work) -> anyhow::Result<()> {
        print(&self.live.progress(work.count()))?;
        std::io::stdout().flush().context("writing to stdout")
    }
}

/// Why it ended before everything was gone.
const fn ended_how(exit: Exit) -> &'static str {
    match exit {
        Exit::TimedOut => "the time is up",
        Exit::Interrupted => "stopped",
        Exit::Fine | Exit::Blocked | Exit::Refused | Exit::Unknown => "not drained",
    }
}
