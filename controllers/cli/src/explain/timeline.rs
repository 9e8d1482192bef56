//! `pod-safety timeline`: what happened, in order, with durations.

use std::time::Duration;

use anyhow::bail;
use clap::Args as ClapArgs;
use jiff::{SignedDuration, Timestamp};
use pod_safety_explain::{Answer, Moment, elapsed, format_duration, timeline};
use pod_safety_print::answers::{format_time, span_days};
use pod_safety_print::{Paint, Tone};
use pod_safety_shared::client::Target;
use serde::Serialize;

use super::{ClusterSnapshot, NAMESPACE, Subject, SubjectKind, UsageError, explain_object, name, node_or_pod};
use crate::cluster::{ConnectArgs, PrintArgs, Session};
use crate::watch::{Rendered, WatchArgs};
use crate::{API_VERSION, Exit, duration};

/// The default period.
pub(crate) const DAY: Duration = Duration::from_hours(24);

/// Objects record what is long past, Events only the last hour.
const MAX_SINCE: Duration = Duration::from_hours(720);

fn since_when(text: &str) -> Result<Duration, String> {
    duration::between(text, Duration::from_secs(1), MAX_SINCE, "allowed is 1s to 720h, written such as 30m or 3h")
}

fn cutoff(at: Timestamp, since: Duration) -> Timestamp {
    let since = SignedDuration::try_from(since).unwrap_or(SignedDuration::MAX);
    at.saturating_sub(since).unwrap_or(Timestamp::MIN)
}

#[derive(Debug, ClapArgs)]
#[command(after_help = crate::exit::help("timeline"), mut_arg("namespace", |arg| arg.help(NAMESPACE)))]
pub struct TimelineArgs {
    /// The kind: pod (po) or node (no); or kind and name, as in node/NAME; or the name of a node or a pod alone. Without it:
    /// the whole cluster
    #[arg(value_name = "KIND[/NAME]", value_parser = Subject::parse)]
    what: Option<Subject>,

    /// Which one
    #[arg(value_name = "NAME", value_parser = name)]
    name: Option<String>,

    /// Only what happened in so much time until now, such as 3h. Default: of the whole cluster 24h, of one object all of it
    #[arg(long, value_name = "DURATION", value_parser = since_when, allow_hyphen_values = true)]
    since: Option<Duration>,

    #[command(flatten)]
    watch: WatchArgs,

    #[command(flatten)]
    print: PrintArgs,

    #[command(flatten)]
    cluster: ConnectArgs,
}

/// A timeline for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    api_version: &'static str,
    kind: &'static str,
    cluster: &'a Target,
    object: &'a str,
    moments: Vec<Step<'a>>,
    total_seconds: u64,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    missing: &'a [String],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Step<'a> {
    #[serde(flatten)]
    moment: &'a Moment,
    after_seconds: u64,
}

impl TimelineArgs {
    pub(crate) fn main(self) -> anyhow::Result<Exit> {
        let cluster = self.cluster.clone();
        let Some(what) = self.what.clone() else {
            return cluster.with_session("timeline", async |session| self.run(session, None).await);
        };
        let (what, name) = what.with_name(self.name.clone())?;
        if let Some(other) = what.filter(|what| !matches!(what, SubjectKind::Pod | SubjectKind::Node)) {
            bail!(UsageError::NoTimeline(other.kind_name()));
        }
        let Some(name) = name else { bail!(UsageError::NoName(what.map_or("object", SubjectKind::kind_name))) };
        cluster.with_session("timeline", async |session| {
            let what = match what {
                Some(what) => what,
                None => node_or_pod(&session, self.cluster.namespace.as_deref(), &name).await?,
            };
            self.run(session, Some((what, name))).await
        })
    }

    async fn run(self, session: Session, of: Option<(SubjectKind, String)>) -> anyhow::Result<Exit> {
        let paint = self.print.paint();
        let render_once = async || {
            let timeline = match &of {
                Some((what, name)) => {
                    let namespace = self.cluster.namespace.as_deref();
                    let mut timeline =
                        Timeline::from_answer(explain_object(&session, *what, name, namespace, false).await?);
                    if let Some(since) = self.since {
                        let (session, _version) = session.with_server_clock().await;
                        let from = cutoff(session.env.clock.wall(), since);
                        timeline.history.retain(|moment| moment.at >= from);
                    }
                    timeline
                }
                None => Timeline::read_cluster(&session, self.since.unwrap_or(DAY)).await?,
            };
            let render = || session.with_header(&timeline.text(paint));
            let text = self.print.output.text(&timeline.document(session.target()), render)?;
            let exit = if timeline.missing.is_empty() { Exit::Fine } else { Exit::Unknown };
            Ok(Rendered { text, line: timeline.line(), exit })
        };
        self.watch.render_loop(&session.env, self.print.output, render_once).await
    }
}

/// What happened, and to which object.
pub(crate) struct Timeline {
    object: String,
    history: Vec<Moment>,
    missing: Vec<String>,
}

impl Timeline {
    /// The timeline of one object, with what happened to earlier pods of the same name.
    fn from_answer(answer: Answer) -> Self {
        let Answer { object, before, history, missing, .. } = answer;
        let mut history: Vec<Moment> =
            before.map(|before| before.history).unwrap_or_default().into_iter().chain(history).collect();
        history.sort_by_key(|moment| moment.at);
        Self { object, history, missing }
    }

    /// What happened in the whole cluster in this period.
    pub(crate) async fn read_cluster(session: &Session, within: Duration) -> anyhow::Result<Self> {
        let mut snapshot = ClusterSnapshot::read(session, Some(session.connection.default_namespace())).await?;
        snapshot.read_all_events(session).await;
        snapshot.read_successors(session).await;
        snapshot.read_pauses(session, None).await;
        let since = cutoff(snapshot.wall, within);
        let history = snapshot.with_context(|ctx| timeline(since, ctx));
        Ok(Self { object: "cluster".to_owned(), history, missing: snapshot.missing() })
    }

    /// The timeline for programs.
    pub(crate) fn document<'a>(&'a self, cluster: &'a Target) -> impl Serialize + use<'a> {
        Document {
            api_version: API_VERSION,
            kind: "Timeline",
            cluster,
            object: &self.object,
            moments: steps(&self.history),
            total_seconds: total(&self.history).as_secs(),
            missing: &self.missing,
        }
    }

    /// The timeline for operators.
    pub(crate) fn text(&self, paint: Paint) -> String {
        page(&self.history, &self.missing, paint)
    }

    fn line(&self) -> String {
        let last = self.history.last().map_or("nothing known".to_owned(), |last| {
            format!("{} {} {}", last.object, last.what, last.detail).trim_start().to_owned()
        });
        format!("{} {last}", self.object)
    }
}

/// Each entry with the time since the one before it.
fn steps(moments: &[Moment]) -> Vec<Step<'_>> {
    let before = std::iter::once(None).chain(moments.iter().map(Some));
    let after = |(moment, before): (&Moment, Option<&Moment>)| {
        before.map_or(0, |before| elapsed(before.at, moment.at).as_secs())
    };
    moments.iter().zip(before).map(|(moment, before)| Step { moment, after_seconds: after((moment, before)) }).collect()
}

fn total(moments: &[Moment]) -> Duration {
    moments.first().zip(moments.last()).map_or(Duration::ZERO, |(first, last)| elapsed(first.at, last.at))
}

fn page(moments: &[Moment], missing: &[String], paint: Paint) -> String {
    let with_missing = |mut text: String| {
        missing.iter().for_each(|missing| text.push_str(&paint.with_mark(Tone::Attention, missing)));
        text
    };
    if moments.is_empty() {
        let head = match missing.is_empty() {
            true => "Nothing is known about it. Events are kept for an hour.\n",
            false => "Nothing about it could be read:\n",
        };
        return with_missing(head.to_owned());
    }
    let dated = span_days(moments);
    let several = moments.iter().any(|moment| !moment.object.is_empty());
    let row = |step: &Step<'_>| {
        let after = match step.after_seconds {
            0 => String::new(),
            seconds => format!("+{}", format_duration(Duration::from_secs(seconds))),
        };
        let Moment { at, object, what, detail } = step.moment;
        let mut cells = vec![format_time(*at, dated), after, object.clone(), what.clone(), detail.clone()];
        if !several {
            cells.remove(2);
        }
        (Tone::Plain, cells)
    };
    let rows: Vec<_> = steps(moments).iter().map(row).collect();
    let head: &[&str] = match several {
        true => &["TIME (UTC)", "AFTER", "OBJECT", "WHAT", ""],
        false => &["TIME (UTC)", "AFTER", "WHAT", ""],
    };
    let mut text = paint.table(head, &rows);
    text.push_str(&format!("{} in all\n", format_duration(total(moments))));
    with_missing(text)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pod_safety_explain::explain_node;

    use super::*;
    use crate::fixture::Fixture;

    #[test]
    fn the_cluster_timeline_names_objects_and_respects_since() {
        let mut fixture = Fixture::with_lost_node();
        fixture.policy("Asserted");
        fixture.fence("Fenced", &[("2026-11-21T10:15:10Z", None)]);
        fixture.add_event("node/worker-a1", "FreeDiskSpaceFailed", "no space left");
        let timeline_since = |since: &str| {
            let since = since.parse().unwrap();
            fixture.with_context(|ctx| timeline(since, ctx))
        };
        assert_eq!(
            page(&timeline_since("2026-11-20T10:23:05Z"), &[], Paint::plain()),
            "TIME (UTC)  AFTER   OBJECT             WHAT
10:14:05            node/worker-b1     last heartbeat of worker-b1
10:14:55    +50s    node/worker-b1     worker-b1 counts as lost     50s after its last heartbeat
10:14:55            node/worker-b1     worker-b1 is tainted         node.kubernetes.io/unreachable:NoExecute
10:15:10    +15s    node/worker-b1     switch worker-b1 off         with fence/ipmi-b1
10:15:10            node/worker-b1     its power is Off
10:19:55    +4m45s  pod/shop/orders-1  deletion requested           grace 30s
10:20:25    +30s    pod/shop/orders-1  grace period ended           its kubelet did not confirm
10:22:40    +2m15s  node/worker-a1     FreeDiskSpaceFailed          no space left (3 times, kube-controller-manager)
8m35s in all
"
        );
        assert!(timeline_since("2026-11-21T10:23:05Z").is_empty());
    }

    /// It ended with the removal of the old pod, and its deletion was no longer shown.
    #[test]
    fn bug_the_timeline_ended_before_the_pod_was_ready_again() {
        let mut fixture = Fixture::with_lost_node();
        fixture.set_recovered(true);
        let since = "2026-11-20T10:23:05Z".parse().unwrap();
        let text = page(&fixture.with_context(|ctx| timeline(since, ctx)), &[], Paint::plain());
        let moments = fixture.with_context(|ctx| {
            let pod = ctx.view.all_pods().find(|pod| *pod.key.name == *"orders-1").unwrap();
            Timeline::from_answer(pod_safety_explain::explain_pod(pod, ctx))
        });
        assert_eq!(text, "TIME (UTC)  AFTER   OBJECT             WHAT
10:14:05            node/worker-b1     last heartbeat of worker-b1
10:14:55    +50s    node/worker-b1     worker-b1 counts as lost     50s after its last heartbeat
10:14:55            node/worker-b1     worker-b1 is tainted         node.kubernetes.io/unreachable:NoExecute
10:15:05    +10s    pod/shop/orders-1  NodeNotReady                 Node is not ready (pod-safety)
10:19:55    +4m50s  pod/shop/orders-1  deletion requested
10:20:25    +30s    node/worker-b1     held: NoEvidence             shop/orders-1
10:22:35    +2m10s  pod/shop/orders-1  ForceDeleted                 node worker-b1 was powered off: FenceEvidence worker-b1-e (pod-safety)
10:22:37    +2s     pod/shop/orders-1  scheduled to worker-a1
10:22:45    +8s     pod/shop/orders-1  Ready on worker-a1           orders-1 was away for 8m40s
8m40s in all
");
        assert_eq!(
            moments.text(Paint::plain()),
            "TIME (UTC)  AFTER   WHAT
10:14:05            last heartbeat of worker-b1
10:14:55    +50s    worker-b1 counts as lost     50s after its last heartbeat
10:14:55            worker-b1 is tainted         node.kubernetes.io/unreachable:NoExecute
10:15:05    +10s    NodeNotReady                 Node is not ready (pod-safety)
10:19:55    +4m50s  deletion requested
10:20:25    +30s    held: NoEvidence             node worker-b1
10:22:35    +2m10s  ForceDeleted                 node worker-b1 was powered off: FenceEvidence worker-b1-e (pod-safety)
10:22:37    +2s     scheduled to worker-a1
10:22:45    +8s     Ready on worker-a1           orders-1 was away for 8m40s
8m40s in all
"
        );
    }

    #[test]
    fn bug_a_timeline_without_rights_was_that_of_an_object_without_events() {
        let refused = ["You may not list Events.".to_owned()];
        let shown = page(&[], &refused, Paint::plain());
        assert_eq!(shown, "Nothing about it could be read:\n! You may not list Events.\n");
    }

    #[test]
    fn events_that_repeat_an_incident_are_left_out() {
        let mut fixture = Fixture::with_lost_node();
        fixture.policy("Asserted");
        fixture.add_event("node/worker-b1", "FenceAttempted", "Switching it off");
        let repeats = |fixture: &Fixture| {
            let answer = fixture.with_context(|ctx| explain_node(&Arc::from("worker-b1"), ctx)).unwrap();
            answer.history.iter().any(|one| one.what == "FenceAttempted")
        };
        assert!(repeats(&fixture), "there is no incident");
        fixture.fence("Fenced", &[("2026-11-21T10:15:10Z", None)]);
        assert!(!repeats(&fixture));
    }

    #[test]
    fn a_timeline_of_several_days_has_dates_in_all_rows() {
        let moment = |at: &str| Moment::new(at.parse().unwrap(), "x", "");
        let text = page(&[moment("2026-11-20T23:59:59Z"), moment("2026-11-21T00:00:09Z")], &[], Paint::plain());
        assert!(text.contains("2026-11-20 23:59:59") && text.contains("2026-11-21 00:00:09"), "{text}");
    }

    #[test]
    fn the_timeline_is_in_order_with_durations() {
        let fixture = Fixture::with_lost_node();
        fixture.policy("Asserted");
        fixture.fence("Fenced", &[("2026-11-21T10:15:10Z", None)]);
        let answer = fixture.with_context(|ctx| explain_node(&Arc::from("worker-b1"), ctx)).unwrap();
        let text = page(&answer.history, &[], Paint::plain());
        assert_eq!(
            text,
            "TIME (UTC)  AFTER  WHAT
10:14:05           last heartbeat of worker-b1
10:14:55    +50s   worker-b1 counts as lost     50s after its last heartbeat
10:14:55           worker-b1 is tainted         node.kubernetes.io/unreachable:NoExecute
10:15:10    +15s   switch worker-b1 off         with fence/ipmi-b1
10:15:10           its power is Off
1m05s in all
"
        );
    }
}
