//! Requested evictions (KEP-4563): which responder is active, since when, until when, and which is next.
//!
//! Nothing here is evidence: states and conditions are what controllers and responders wrote.

use std::time::Duration;

use pod_safety_shared::authority::operator_requests::eviction_requests::{
    Condition, EvictionOfPod, EvictionRequest, ResponderStatus, TargetResponder,
};
use pod_safety_shared::model::{
    CANCELED, EVICTION_INVALID, IMPERATIVE_EVICTOR, Pod, RESPONDER_HEARTBEAT_DEADLINE, ResponderState, Uid,
};

use super::answer::{Answer, Item, Judgement, Moment, Verdict, elapsed, format_duration, pluralize};
use super::context::{ExplainContext, object_ref};
use super::pod::explain_pod;
use super::{BudgetVerdict, EvictionAnswer, explain_budget, predict_eviction};

/// A running controller handles a new request within this time.
const OBSERVED_WITHIN: Duration = Duration::from_secs(10);

/// A running controller ends the turn of a responder this soon after its deadline.
const NEXT_WITHIN: Duration = Duration::from_secs(60);

/// Requests of pod-safety that are older are abandoned.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 3600);

/// The reasons of Evictions that the controller of pod-safety holds: no turn follows.
const UNKNOWN_STATE: &str = "UnknownState";
/// See [`UNKNOWN_STATE`].
const PREFILLED: &str = "ResponderPrefilled";

/// The requests and Evictions of one pod.
#[derive(Clone, Debug)]
pub struct RequestedEviction<'a> {
    namespace: &'a str,
    /// The name of the pod; it is only informative.
    pod: &'a str,
    requests: Vec<&'a EvictionRequest>,
    evictions: Vec<&'a EvictionOfPod>,
    /// The pod, while it exists.
    live_pod: Option<&'a Pod>,
}

impl<'a> RequestedEviction<'a> {
    /// The requests and Evictions about the pod of the Eviction or EvictionRequest of this name, or about the pod of
    /// this name; `None`: there are none.
    #[must_use]
    pub fn find_by_name(
        namespace: &str,
        name: &str,
        requests: &'a [EvictionRequest],
        evictions: &'a [EvictionOfPod],
        ctx: &ExplainContext<'a>,
    ) -> Option<Self> {
        let of_eviction = evictions.iter().map(|one| (&one.metadata, &one.spec.target.pod));
        let of_request = requests.iter().map(|one| (&one.metadata, &one.spec.target.pod));
        let all = || of_eviction.clone().chain(of_request.clone()).filter(|(meta, _)| meta.namespace == namespace);
        let by_name = all().find(|(meta, _)| meta.name == name);
        let (_, target) = by_name.or_else(|| all().find(|(_, target)| target.name == name))?;
        Self::find_by_uid(&target.uid, requests, evictions, ctx)
    }

    /// The requests and Evictions about the pod with this UID.
    #[must_use]
    pub fn find_by_uid(
        uid: &str,
        requests: &'a [EvictionRequest],
        evictions: &'a [EvictionOfPod],
        ctx: &ExplainContext<'a>,
    ) -> Option<Self> {
        let requests: Vec<_> = requests.iter().filter(|one| one.spec.target.pod.uid == uid).collect();
        let evictions: Vec<_> = evictions.iter().filter(|one| one.spec.target.pod.uid == uid).collect();
        let (meta, target) = match (requests.first(), evictions.first()) {
            (_, Some(one)) => (&one.metadata, &one.spec.target),
            (Some(one), None) => (&one.metadata, &one.spec.target),
            (None, None) => return None,
        };
        let live_pod = Uid::new(uid).and_then(|uid| ctx.view.pod(&uid));
        Some(Self { namespace: &meta.namespace, pod: &target.pod.name, requests, evictions, live_pod })
    }

    /// The Eviction to explain: one that succeeded, else the oldest one in progress, else the latest that failed.
    fn relevant_eviction(&self) -> Option<&'a EvictionOfPod> {
        let begun = |one: &&EvictionOfPod| (one.metadata.creation_timestamp, one.metadata.name.clone());
        let all = || self.evictions.iter().copied();
        let done = all().find(|one| one.evicted_condition().is_some());
        let goes_on = || all().filter(|one| one.failed_condition().is_none()).min_by_key(begun);
        done.or_else(goes_on).or_else(|| all().max_by_key(begun))
    }

    fn active_requests(&self) -> impl Iterator<Item = &'a EvictionRequest> {
        self.requests.iter().copied().filter(|one| one.is_active())
    }

    /// `eviction/NAMESPACE/NAME`, or the request where there is no Eviction.
    fn object(&self) -> String {
        let (kind, meta) = match (self.relevant_eviction(), self.requests.first()) {
            (Some(one), _) => ("eviction", Some(&one.metadata)),
            (None, one) => ("evictionrequest", one.map(|one| &one.metadata)),
        };
        object_ref(kind, self.namespace, meta.map_or("", |meta| &meta.name))
    }

    fn judge(&self, ctx: &ExplainContext<'_>) -> Judgement {
        let mut verdict = self.judge_eviction(ctx);
        if !verdict.message.ends_with('.') {
            verdict.message.push('.');
        }
        verdict
    }

    fn judge_eviction(&self, ctx: &ExplainContext<'_>) -> Judgement {
        let pod = self.pod;
        let Some(eviction) = self.relevant_eviction() else { return self.judge_unfollowed(ctx) };
        if let Some(done) = eviction.evicted_condition() {
            let message = match &*done.reason {
                "PodTerminal" => {
                    format!("pod {pod} is in a terminal phase. That alone does not prove that its processes ended")
                }
                _ => format!("pod {pod} is gone"),
            };
            return Judgement::new(Verdict::Free, "Evicted", message);
        }
        if let Some(failed) = eviction.failed_condition() {
            // It is canceled, too, if all its requests were invalid: they were not withdrawn.
            let mut ended = self.active_requests().filter_map(EvictionRequest::failed_condition);
            let invalid = ended.find(|one| one.reason == EVICTION_INVALID).filter(|_| failed.reason == CANCELED);
            return self.judge_failed(invalid.unwrap_or(failed));
        }
        if let Some(held) = self.judge_held(eviction) {
            return held;
        }
        match eviction.active_responder() {
            Some((turn, report)) => self.judge_active(eviction, turn, report, ctx),
            None => self.judge_unfollowed(ctx),
        }
    }

    /// No Eviction is in progress.
    fn judge_unfollowed(&self, ctx: &ExplainContext<'_>) -> Judgement {
        if let Some(failed) = self.requests.iter().find_map(|one| one.failed_condition()) {
            return self.judge_failed(failed);
        }
        let Some(oldest) = self.active_requests().filter_map(|one| one.metadata.creation_timestamp).min() else {
            return Judgement::new(Verdict::Free, "Withdrawn", "nobody requests this eviction any more");
        };
        let waits = elapsed(oldest, ctx.wall);
        if waits < OBSERVED_WITHIN {
            return Judgement::new(Verdict::Waiting, "Pending", "the request was made just now");
        }
        let message = format!(
            "no controller has acted on the request of {} ago. Kubernetes 1.37 has none; pod-safety has one (controllers.eviction.enabled of the chart)",
            format_duration(waits)
        );
        Judgement::new(Verdict::Blocked, "NoController", message)
    }

    fn judge_failed(&self, failed: &Condition) -> Judgement {
        let pod = self.pod;
        match &*failed.reason {
            CANCELED => {
                let message = format!("the requests are withdrawn. Pod {pod} stays, unless it terminates already");
                Judgement::new(Verdict::Free, "Withdrawn", message)
            }
            "NoFurtherResponder" if self.active_requests().next().is_some() => {
                let message = format!(
                    "every responder is done, and pod {pod} is still there. A new Eviction follows within 15 minutes"
                );
                Judgement::new(Verdict::Waiting, "NoFurtherResponder", message)
            }
            "NoFurtherResponder" => {
                let message = format!("every responder is done, pod {pod} is still there, and nobody requests more");
                Judgement::new(Verdict::Free, "NoFurtherResponder", message)
            }
            _ => {
                let message = format!("the request is invalid and stays so: {}", failed.message);
                Judgement::new(Verdict::Blocked, EVICTION_INVALID, message)
            }
        }
    }

    /// What holds the controller of pod-safety back, as far as the Eviction shows it (its `Hold`).
    fn judge_held(&self, eviction: &EvictionOfPod) -> Option<Judgement> {
        let turns = &eviction.status.target_responders;
        if turns.iter().any(|turn| ResponderState::parse(&turn.state) == ResponderState::Other) {
            let message = "the Eviction has states that this version of pod-safety does not know";
            return Some(Judgement::new(Verdict::Blocked, UNKNOWN_STATE, message));
        }
        // A pod that goes and a withdrawal end the Eviction all the same.
        let goes = self.live_pod.is_none_or(|pod| pod.deletion.is_some() || pod.phase.is_terminal());
        let is_open =
            |one: &EvictionRequest| one.failed_condition().is_none_or(|failed| failed.reason != EVICTION_INVALID);
        if goes || !self.active_requests().any(is_open) {
            return None;
        }
        let prefilled = turns.iter().find(|turn| is_prefilled(turn, eviction))?;
        let message = format!(
            "{} has a report before its turn: whoever wrote it would let all responders be passed over. Delete the Eviction: a new one is created",
            prefilled.title()
        );
        Some(Judgement::new(Verdict::Blocked, PREFILLED, message))
    }

    /// A responder is active.
    fn judge_active(
        &self,
        eviction: &EvictionOfPod,
        turn: &TargetResponder,
        report: &ResponderStatus,
        ctx: &ExplainContext<'_>,
    ) -> Judgement {
        let (responder, report_text) = (turn.title(), describe_report(report, ctx));
        if let Some(late) = report.deadline().map(|at| elapsed(at, ctx.wall)).filter(|late| *late > NEXT_WITHIN) {
            let message = format!(
                "the turn of {responder} ended {} ago because it is silent, and no controller has begun the next",
                format_duration(late)
            );
            return Judgement::new(Verdict::Blocked, "NoController", message);
        }
        if let Some(pod) = self.live_pod.filter(|pod| pod.deletion.is_some()) {
            let of_pod = explain_pod(pod, ctx).judgement;
            let message = format!("{responder} waits for pod {} to terminate: {}", self.pod, of_pod.message);
            return Judgement::new(of_pod.verdict.max(Verdict::Waiting), "PodTerminating", message);
        }
        let until = report.deadline().map(|at| format!(". If it stays silent, {} at {at:.0}", describe_next(eviction)));
        let message = format!("it is the turn of {responder}, {report_text}{}", until.unwrap_or_default());
        if turn.name == IMPERATIVE_EVICTOR && self.is_refused(ctx) {
            return Judgement::new(Verdict::Blocked, "BudgetBlocks", message);
        }
        Judgement::new(Verdict::Waiting, "ResponderActive", message)
    }

    /// Whether budgets refuse its eviction until an operator changes something.
    fn is_refused(&self, ctx: &ExplainContext<'_>) -> bool {
        let Some(pod) = self.live_pod else { return false };
        match predict_eviction(pod, ctx.view.budgets_of_pod(pod)) {
            EvictionAnswer::Fail(_) => true,
            EvictionAnswer::Refuse(budget, _) => {
                explain_budget(budget, &ctx.view, ctx.now).verdict == BudgetVerdict::Never
            }
            EvictionAnswer::AlreadyTerminating
            | EvictionAnswer::AlreadyFinished
            | EvictionAnswer::Unguarded(_)
            | EvictionAnswer::Allow(_)
            | EvictionAnswer::AllowUncounted(..) => false,
        }
    }

    fn list_facts(&self) -> Vec<String> {
        let by = |one: &&EvictionRequest| {
            let state = match (one.is_active(), &one.metadata.deletion_timestamp) {
                (true, _) => "",
                (false, Some(_)) => " (deleted, and kept by a finalizer)",
                (false, None) => " (withdrawn)",
            };
            format!("{}{state}", one.spec.requester)
        };
        let by: Vec<String> = self.requests.iter().map(by).collect();
        let mut facts = vec![object_ref("pod", self.namespace, self.pod)];
        if self.live_pod.is_none() {
            facts.push("no such pod".to_owned());
        }
        facts.push(if by.is_empty() { "no request".to_owned() } else { format!("requested by {}", by.join(", ")) });
        facts
    }

    /// The responders in their order.
    fn list_items(&self, ctx: &ExplainContext<'_>) -> Vec<Item> {
        let Some(eviction) = self.relevant_eviction() else { return Vec::new() };
        let item = |turn: &TargetResponder| {
            let report = eviction.responder_status(&turn.name).cloned().unwrap_or_default();
            let (verdict, reason) = match &*turn.state {
                "Active" => (Verdict::Waiting, "Active"),
                "Completed" => (Verdict::Free, "Completed"),
                "Interrupted" => (Verdict::Free, "Interrupted"),
                "Canceled" => (Verdict::Free, "Canceled"),
                _ => (Verdict::Waiting, "Inactive"),
            };
            let message = match report.start_time {
                Some(_) => describe_report(&report, ctx),
                None => format!("its turn has not come, priority {}", turn.priority),
            };
            Item { object: turn.name.clone(), judgement: Judgement::new(verdict, reason, message) }
        };
        eviction.sorted_responders().into_iter().map(item).collect()
    }

    fn history(&self) -> Vec<Moment> {
        let mut all = Vec::new();
        for request in &self.requests {
            let requested_at = request.metadata.creation_timestamp;
            all.extend(requested_at.map(|at| Moment::new(at, "eviction requested", request.spec.requester.clone())));
        }
        for eviction in &self.evictions {
            for report in &eviction.status.responders {
                let ResponderStatus { name, start_time, completion_time, message, .. } = report;
                all.extend(start_time.map(|at| Moment::new(at, format!("turn of {name}"), "")));
                all.extend(completion_time.map(|at| Moment::new(at, format!("{name} is done"), message.clone())));
            }
            for ended in [eviction.failed_condition(), eviction.evicted_condition()].into_iter().flatten() {
                let at = ended.last_transition_time;
                all.extend(at.map(|at| Moment::new(at, ended.r#type.clone(), ended.reason.clone())));
            }
        }
        all.sort_by_key(|moment| moment.at);
        all
    }

    /// How long it takes at most until the evictor's turn, if no responder reports.
    fn worst_wait(&self, ctx: &ExplainContext<'_>) -> Duration {
        let Some(eviction) = self.relevant_eviction() else { return Duration::ZERO };
        let of = |turn: &&TargetResponder| match &*turn.state {
            _ if turn.name == IMPERATIVE_EVICTOR => Duration::ZERO,
            "Active" => {
                let deadline = eviction.responder_status(&turn.name).and_then(ResponderStatus::deadline);
                deadline.map_or(RESPONDER_HEARTBEAT_DEADLINE, |deadline| elapsed(ctx.wall, deadline))
            }
            "Inactive" => RESPONDER_HEARTBEAT_DEADLINE,
            _ => Duration::ZERO,
        };
        eviction.status.target_responders.iter().map(|turn| of(&turn)).sum()
    }

    /// The explanation.
    #[must_use]
    pub fn to_answer(&self, ctx: &ExplainContext<'_>) -> Answer {
        let mut answer = Answer::new(self.object(), self.judge(ctx));
        (answer.facts, answer.items, answer.history) = (self.list_facts(), self.list_items(ctx), self.history());
        let goes_on = answer.judgement.verdict != Verdict::Free;
        let is_held = [UNKNOWN_STATE, PREFILLED].contains(&answer.judgement.reason);
        let worst = self.worst_wait(ctx);
        if goes_on && !is_held && !worst.is_zero() {
            answer.notes.push(format!(
                "The evictor's turn comes within {}, even if all others are silent.",
                format_duration(worst)
            ));
        }
        let active =
            self.evictions.iter().filter(|one| one.failed_condition().is_none() && one.evicted_condition().is_none());
        if let Some(more) = active.count().checked_sub(2) {
            answer.notes.push(format!("{} for the same pod: the oldest counts.", pluralize(more + 2, "Eviction")));
        }
        if answer.judgement.reason == "NoController" {
            answer.add_next_step("Find out whether a controller of evictions runs", "pod-safety doctor");
        }
        if let Some(pod) = self.live_pod.filter(|_| goes_on) {
            let (namespace, name) = (&pod.key.namespace, &pod.key.name);
            for budget in ctx.view.budgets_of_pod(pod) {
                let command = format!("pod-safety explain pdb -n {namespace} {}", budget.key.name);
                answer.add_next_step("Show what its PodDisruptionBudget allows", command);
            }
            answer.add_next_step("Show the pod", format!("pod-safety explain pod -n {namespace} {name}"));
        }
        if let Some(own_request) = self.active_requests().find(|one| goes_on && one.is_own()) {
            let command = format!("pod-safety drain {} --withdraw", own_request.node());
            answer.add_next_step("To withdraw all requests for its node", command);
        }
        answer
    }

    /// The note for the explanation of the pod; `None`: no eviction is in progress.
    #[must_use]
    pub fn describe_note(&self, ctx: &ExplainContext<'_>) -> Option<String> {
        let by: Vec<&str> = self.active_requests().map(|one| &*one.spec.requester).collect();
        let verdict = self.judge(ctx);
        let goes_on = verdict.verdict != Verdict::Free && verdict.reason != "PodTerminating";
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

/// What happens to an Eviction if the active responder does not report.
fn describe_next(eviction: &EvictionOfPod) -> String {
    let next = eviction.sorted_responders().into_iter().find(|turn| turn.state == "Inactive");
    next.map_or_else(|| "the Eviction fails".to_owned(), |turn| format!("the turn of {} begins", turn.title()))
}

/// Whether a responder has a report from before its turn.
fn is_prefilled(turn: &TargetResponder, eviction: &EvictionOfPod) -> bool {
    let report = eviction.responder_status(&turn.name).filter(|_| turn.state == "Inactive");
    report.is_some_and(|report| {
        let ResponderStatus { start_time, heartbeat_time, expected_completion_time, completion_time, .. } = report;
        [start_time, heartbeat_time, expected_completion_time, completion_time].into_iter().any(Option::is_some)
    })
}

/// "since 10:00:00Z, last heartbeat 2m00s ago: moves data".
fn describe_report(report: &ResponderStatus, ctx: &ExplainContext<'_>) -> String {
    let ago = |at| format_duration(elapsed(at, ctx.wall));
    let begun = report.start_time.map(|at| format!("for {}", ago(at)));
    let last_report = match (report.completion_time, report.heartbeat_time) {
        (Some(at), _) => format!("done {} ago", ago(at)),
        (None, Some(at)) => format!("last heartbeat {} ago", ago(at)),
        (None, None) => "no heartbeat yet".to_owned(),
    };
    let mut parts: Vec<String> = begun.into_iter().chain([last_report]).collect();
    if let Some(at) = report.expected_completion_time.filter(|_| report.completion_time.is_none()) {
        parts.push(format!("expects to be done at {at:.0}"));
    }
    let message = report.message.split_whitespace().collect::<Vec<_>>().join(" ");
    if message.is_empty() { parts.join(", ") } else { format!("{}: {message}", parts.join(", ")) }
}

/// The requests of pod-safety that were abandoned a day ago or earlier: their pods may still be evicted.
#[must_use]
pub fn find_abandoned(requests: &[EvictionRequest], wall: jiff::Timestamp) -> Vec<&EvictionRequest> {
    let is_abandoned = |one: &&EvictionRequest| {
        one.is_own() && one.metadata.creation_timestamp.is_some_and(|at| elapsed(at, wall) >= ABANDONED_AFTER)
    };
    requests.iter().filter(is_abandoned).collect()
}
