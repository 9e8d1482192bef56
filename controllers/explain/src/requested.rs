//! Evictions that are requested (KEP-4563): who holds one up, since when, until when, and who is next.
//!
//! Nothing here is evidence: states and conditions are what their controllers and responders wrote.

use std::time::Duration;

use pod_safety_shared::authority::people::requests::{
    Condition, EvictionOfPod, EvictionRequest, Report, Turn,
};
use pod_safety_shared::model::{IMPERATIVE_EVICTOR, Pod, RESPONDER_HEARTBEAT_DEADLINE, Uid};

use super::answer::{Answer, Item, Judgement, Moment, Standing, plural, since, span};
use super::pod::explain_pod;
use super::scene::{Scene, object};
use super::{Verdict, Would, explain, would};

/// A controller that runs looks at a request within it.
const LOOKED_AT_WITHIN: Duration = Duration::from_secs(10);

/// A controller that runs ends the turn of a responder so soon after its deadline.
const NEXT_WITHIN: Duration = Duration::from_secs(60);

/// Requests of ours that are older were left behind.
const LEFT_AFTER: Duration = Duration::from_secs(24 * 3600);

/// The requests and Evictions of one pod.
#[derive(Clone, Debug)]
pub struct Requested<'a> {
    namespace: &'a str,
    /// The name of the pod; it is only informative.
    pod: &'a str,
    requests: Vec<&'a EvictionRequest>,
    evictions: Vec<&'a EvictionOfPod>,
    /// The pod, while it is there.
    there: Option<&'a Pod>,
}

impl<'a> Requested<'a> {
    /// Those about the pod of the Eviction, of the EvictionRequest, or of the pod that has this name; none: there is none.
    #[must_use]
    pub fn named(
        namespace: &str,
        name: &str,
        requests: &'a [EvictionRequest],
        evictions: &'a [EvictionOfPod],
        scene: &Scene<'a>,
    ) -> Option<Self> {
        let of_eviction = evictions.iter().map(|one| (&one.metadata, &one.spec.target.pod));
        let of_request = requests.iter().map(|one| (&one.metadata, &one.spec.target.pod));
        let all =
            || of_eviction.clone().chain(of_request.clone()).filter(|(meta, _)| meta.namespace == namespace);
        let by_name = all().find(|(meta, _)| meta.name == name);
        let (_, target) = by_name.or_else(|| all().find(|(_, target)| target.name == name))?;
        Self::of(&target.uid, requests, evictions, scene)
    }

    /// Those about the pod with this UID.
    #[must_use]
    pub fn of(
        uid: &str,
        requests: &'a [EvictionRequest],
        evictions: &'a [EvictionOfPod],
        scene: &Scene<'a>,
    ) -> Option<Self> {
        let requests: Vec<_> = requests.iter().filter(|one| one.spec.target.pod.uid == uid).collect();
        let evictions: Vec<_> = evictions.iter().filter(|one| one.spec.target.pod.uid == uid).collect();
        let (meta, target) = match (requests.first(), evictions.first()) {
            (_, Some(one)) => (&one.metadata, &one.spec.target),
            (Some(one), None) => (&one.metadata, &one.spec.target),
            (None, None) => return None,
        };
        let there = Uid::new(uid).and_then(|uid| scene.view.pod(&uid));
        Some(Self { namespace: &meta.namespace, pod: &target.pod.name, requests, evictions, there })
    }

    /// The Eviction that counts: one that succeeded, else the oldest that goes on, else the latest that failed.
    fn relevant(&self) -> Option<&'a EvictionOfPod> {
        let begun = |one: &&EvictionOfPod| (one.metadata.creation_timestamp, one.metadata.name.clone());
        let all = || self.evictions.iter().copied();
        let done = all().find(|one| one.evicted().is_some());
        let goes_on = || all().filter(|one| one.failed().is_none()).min_by_key(begun);
        done.or_else(goes_on).or_else(|| all().max_by_key(begun))
    }

    fn asking(&self) -> impl Iterator<Item = &'a EvictionRequest> {
        self.requests.iter().copied().filter(|one| one.asks())
    }

    /// `eviction/NAMESPACE/NAME`, or the request where there is none.
    fn object(&self) -> String {
        let (kind, meta) = match (self.relevant(), self.requests.first()) {
            (Some(one), _) => ("eviction", Some(&one.metadata)),
            (None, one) => ("evictionrequest", one.map(|one| &one.metadata)),
        };
        object(kind, self.namespace, meta.map_or("", |meta| &meta.name))
    }

    fn verdict(&self, scene: &Scene<'_>) -> Judgement {
        let mut verdict = self.judged(scene);
        if !verdict.message.ends_with('.') {
            verdict.message.push('.');
        }
        verdict
    }

    fn judged(&self, scene: &Scene<'_>) -> Judgement {
        let pod = self.pod;
        let Some(eviction) = self.relevant() else { return self.unfollowed(scene) };
        if let Some(done) = eviction.evicted() {
            let message = match &*done.reason {
                "PodTerminal" => format!(
                    "pod {pod} is in a terminal phase. That alone does not prove that its processes ended"
                ),
                _ => format!("pod {pod} is gone"),
            };
            return Judgement::new(Standing::Free, "Evicted", message);
        }
        if let Some(failed) = eviction.failed() {
            return self.failed(failed);
        }
        match eviction.active() {
            Some((turn, report)) => self.active(eviction, turn, report, scene),
            None => self.unfollowed(scene),
        }
    }

    /// No Eviction goes on.
    fn unfollowed(&self, scene: &Scene<'_>) -> Judgement {
        if let Some(failed) = self.requests.iter().find_map(|one| one.failed()) {
            return self.failed(failed);
        }
        let Some(oldest) = self.asking().filter_map(|one| one.metadata.creation_timestamp).min() else {
            return Judgement::new(Standing::Free, "Withdrawn", "nobody requests this eviction any more");
        };
        let waits = since(oldest, scene.wall);
        if waits < LOOKED_AT_WITHIN {
            return Judgement::new(Standing::Waiting, "Pending", "the request was made just now");
        }
        let message = format!(
            "no controller has acted on the request of {} ago. Kubernetes 1.37 has none; pod-safety has one (controllers.eviction.enabled of the chart)",
            span(waits)
        );
        Judgement::new(Standing::Blocked, "NoController", message)
    }

    fn failed(&self, failed: &Condition) -> Judgement {
        let pod = self.pod;
        match &*failed.reason {
            "CanceledDueToNoRequesters" => {
                let message =
                    format!("the requests are withdrawn. Pod {pod} stays, unless it terminates already");
                Judgement::new(Standing::Free, "Withdrawn", message)
            }
            "NoFurtherResponder" if self.asking().next().is_some() => {
                let message = format!(
                    "every responder is done, and pod {pod} is still there. A new Eviction follows within 15 minutes"
                );
                Judgement::new(Standing::Waiting, "NoFurtherResponder", message)
            }
            "NoFurtherResponder" => {
                let message =
                    format!("every responder is done, pod {pod} is still there, and nobody requests more");
                Judgement::new(Standing::Free, "NoFurtherResponder", message)
            }
            _ => {
                let message = format!("the request is invalid and stays so: {}", failed.message);
                Judgement::new(Standing::Blocked, "EvictionInvalid", message)
            }
        }
    }

    /// It is the turn of a responder.
    fn active(&self, eviction: &EvictionOfPod, turn: &Turn, report: &Report, scene: &Scene<'_>) -> Judgement {
        let (who, said) = (turn.title(), said(report, scene));
        if let Some(late) =
            report.deadline().map(|at| since(at, scene.wall)).filter(|late| *late > NEXT_WITHIN)
        {
            let message = format!(
                "the turn of {who} ended {} ago because it is silent, and no controller has begun the next",
                span(late)
            );
            return Judgement::new(Standing::Blocked, "NoController", message);
        }
        if let Some(pod) = self.there.filter(|pod| pod.deletion.is_some()) {
            let of_pod = explain_pod(pod, scene).verdict;
            let message = format!("{who} waits for pod {} to terminate: {}", self.pod, of_pod.message);
            return Judgement::new(of_pod.standing.max(Standing::Waiting), "PodTerminating", message);
        }
        let until =
            report.deadline().map(|at| format!(". If it stays silent, {} at {at:.0}", next_of(eviction)));
        let message = format!("it is the turn of {who}, {said}{}", until.unwrap_or_default());
        if turn.name == IMPERATIVE_EVICTOR && self.is_refused(scene) {
            return Judgement::new(Standing::Blocked, "BudgetBlocks", message);
        }
        Judgement::new(Standing::Waiting, "ResponderActive", message)
    }

    /// Whether budgets refuse its eviction until somebody changes something.
    fn is_refused(&self, scene: &Scene<'_>) -> bool {
        let Some(pod) = self.there else { return false };
        match would(pod, scene.view.budgets_of_pod(pod)) {
            Would::Fail(_) => true,
            Would::Refuse(budget, _) => explain(budget, &scene.view, scene.now).verdict == Verdict::Never,
            Would::Nothing | Would::Remove | Would::Free(_) | Would::Allow(_) | Would::NotCount(..) => false,
        }
    }

    fn facts(&self) -> Vec<String> {
        let by = |one: &&EvictionRequest| {
            let state = match (one.asks(), &one.metadata.deletion_timestamp) {
                (true, _) => "",
                (false, Some(_)) => " (deleted, and kept by a finalizer)",
                (false, None) => " (withdrawn)",
            };
            format!("{}{state}", one.spec.requester)
        };
        let by: Vec<String> = self.requests.iter().map(by).collect();
        let mut facts = vec![object("pod", self.namespace, self.pod)];
        if self.there.is_none() {
            facts.push("no such pod".to_owned());
        }
        facts.push(if by.is_empty() {
            "no request".to_owned()
        } else {
            format!("requested by {}", by.join(", "))
        });
        facts
    }

    /// The responders in their order.
    fn items(&self, scene: &Scene<'_>) -> Vec<Item> {
        let Some(eviction) = self.relevant() else { return Vec::new() };
        let item = |turn: &Turn| {
            let report = eviction.report(&turn.name).cloned().unwrap_or_default();
            let (standing, reason) = match &*turn.state {
                "Active" => (Standing::Waiting, "Active"),
                "Completed" => (Standing::Free, "Completed"),
                "Interrupted" => (Standing::Free, "Interrupted"),
                "Canceled" => (Standing::Free, "Canceled"),
                _ => (Standing::Waiting, "Inactive"),
            };
            let message = match report.start_time {
                Some(_) => said(&report, scene),
                None => format!("its turn has not come, priority {}", turn.priority),
            };
            Item { object: turn.name.clone(), verdict: Judgement::new(standing, reason, message) }
        };
        eviction.turns().into_iter().map(item).collect()
    }

    fn history(&self) -> Vec<Moment> {
        let mut all = Vec::new();
        for request in &self.requests {
            let asked = request.metadata.creation_timestamp;
            all.extend(asked.map(|at| Moment::new(at, "eviction requested", request.spec.requester.clone())));
        }
        for eviction in &self.evictions {
            for report in &eviction.status.responders {
                let Report { name, start_time, completion_time, message, .. } = report;
                all.extend(start_time.map(|at| Moment::new(at, format!("turn of {name}"), "")));
                all.extend(
                    completion_time.map(|at| Moment::new(at, format!("{name} is done"), message.clone())),
                );
            }
            for ended in [eviction.failed(), eviction.evicted()].into_iter().flatten() {
                let at = ended.last_transition_time;
                all.extend(at.map(|at| Moment::new(at, ended.r#type.clone(), ended.reason.clone())));
            }
        }
        all.sort_by_key(|moment| moment.at);
        all
    }

    /// How long it may take at most until the evictor's turn, if all responders are silent.
    fn worst_wait(&self, scene: &Scene<'_>) -> Duration {
        let Some(eviction) = self.relevant() else { return Duration::ZERO };
        let of = |turn: &&Turn| match &*turn.state {
            _ if turn.name == IMPERATIVE_EVICTOR => Duration::ZERO,
            "Active" => {
                let ends = eviction.report(&turn.name).and_then(Report::deadline);
                ends.map_or(RESPONDER_HEARTBEAT_DEADLINE, |ends| since(scene.wall, ends))
            }
            "Inactive" => RESPONDER_HEARTBEAT_DEADLINE,
            _ => Duration::ZERO,
        };
        eviction.status.target_responders.iter().map(|turn| of(&turn)).sum()
    }

    /// The answer.
    #[must_use]
    pub fn answer(&self, scene: &Scene<'_>) -> Answer {
        let mut answer = Answer::new(self.object(), self.verdict(scene));
        (answer.facts, answer.items, answer.history) = (self.facts(), self.items(scene), self.history());
        let goes_on = answer.verdict.standing != Standing::Free;
        let worst = self.worst_wait(scene);
        if goes_on && !worst.is_zero() {
            answer.notes.push(format!(
                "The evictor's turn comes within {}, even if all others are silent.",
                span(worst)
            ));
        }
        let active = self.evictions.iter().filter(|one| one.failed().is_none() && one.evicted().is_none());
        if let Some(more) = active.count().checked_sub(2) {
            answer
                .notes
                .push(format!("{} for the same pod: the oldest counts.", plural(more + 2, "Eviction")));
        }
        if answer.verdict.reason == "NoController" {
            answer.next("Find out whether a controller of evictions runs", "pod-safety doctor");
        }
        if let Some(pod) = self.there.filter(|_| goes_on) {
            let (namespace, name) = (&pod.key.namespace, &pod.key.name);
            for budget in scene.view.budgets_of_pod(pod) {
                let command = format!("pod-safety explain pdb -n {namespace} {}", budget.key.name);
                answer.next("Show what its PodDisruptionBudget allows", command);
            }
            answer.next("Show the pod", format!("pod-safety explain pod -n {namespace} {name}"));
        }
        if let Some(ours) = self.asking().find(|one| goes_on && one.is_ours()) {
            let command = format!("pod-safety drain {} --withdraw", ours.node());
            answer.next("To withdraw all requests for its node", command);
        }
        answer
    }

    /// What is said of it where the pod is explained; none: nothing goes on.
    #[must_use]
    pub fn note(&self, scene: &Scene<'_>) -> Option<String> {
        let by: Vec<&str> = self.asking().map(|one| &*one.spec.requester).collect();
        let verdict = self.verdict(scene);
        let goes_on = verdict.standing != Standing::Free && verdict.reason != "PodTerminating";
        (goes_on && !by.is_empty()).then(|| {
            let name = self.object().rsplit('/').next().unwrap_or_default().to_owned();
            format!(
                "Its eviction is requested by {}: {} (pod-safety explain eviction -n {} {name})",
                by.join(", "),
                verdict.message.trim_end_matches('.'),
                self.namespace
            )
        })
    }
}

/// What becomes of an Eviction when the active responder is silent.
fn next_of(eviction: &EvictionOfPod) -> String {
    let next = eviction.turns().into_iter().find(|turn| turn.state == "Inactive");
    next.map_or_else(
        || "the Eviction fails".to_owned(),
        |turn| format!("the turn of {} begins", turn.title()),
    )
}

/// "since 10:00:00Z, last heartbeat 2m00s ago: moves data".
fn said(report: &Report, scene: &Scene<'_>) -> String {
    let ago = |at| span(since(at, scene.wall));
    let begun = report.start_time.map(|at| format!("for {}", ago(at)));
    let heard = match (report.completion_time, report.heartbeat_time) {
        (Some(at), _) => format!("done {} ago", ago(at)),
        (None, Some(at)) => format!("last heartbeat {} ago", ago(at)),
        (None, None) => "no heartbeat yet".to_owned(),
    };
    let mut parts: Vec<String> = begun.into_iter().chain([heard]).collect();
    if let Some(at) = report.expected_completion_time.filter(|_| report.completion_time.is_none()) {
        parts.push(format!("expects to be done at {at:.0}"));
    }
    let message = report.message.split_whitespace().collect::<Vec<_>>().join(" ");
    if message.is_empty() { parts.join(", ") } else { format!("{}: {message}", parts.join(", ")) }
}

/// The requests of ours that were left behind a day ago or longer: their pods may still be evicted.
#[must_use]
pub fn left_behind(requests: &[EvictionRequest], wall: jiff::Timestamp) -> Vec<&EvictionRequest> {
    let is_left = |one: &&EvictionRequest| {
        one.is_ours() && one.metadata.creation_timestamp.is_some_and(|at| since(at, wall) >= LEFT_AFTER)
    };
    requests.iter().filter(is_left).collect()
}
