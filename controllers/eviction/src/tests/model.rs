//! A model check: random histories of pods, requests, responders and other writers, with caches that lag. Each write
//! of `decide` is applied to the API server's objects, by compare-and-swap, if the quorum reads that it requires
//! allow it; and the API server's own validation must accept it. The pod may be in a gang, and the clock of the process
//! may be wrong.

use proptest::prelude::*;

use pod_safety_shared::authority::Precondition;
use pod_safety_shared::model::{IMPERATIVE_EVICTOR, ResponderState, Uid};

use super::port::{is_true, validate};
use super::*;

/// A responder that only another client gives a turn.
const FOREIGN: &str = "example.com/foreign";

#[derive(Clone, Debug)]
enum Step {
    /// Time passes.
    Pass(u16),
    /// The cache receives changes of pods, requests or Evictions.
    Hear([bool; 3]),
    /// The controller decides, and acts.
    Act,
    /// A request is created, changed or deleted.
    Ask {
        number: u8,
        intent: bool,
    },
    Drop(u8),
    /// A request is deleted, and a finalizer keeps it.
    Keep(u8),
    /// A change of the pod.
    Terminates,
    Finishes,
    Goes,
    /// The active responder reports, or is completed.
    Reports(bool),
    /// Another client creates an Eviction, or initializes one.
    Foreign {
        initializes: bool,
    },
    /// This process restarts.
    Anew,
}

fn step() -> impl Strategy<Value = Step> {
    let spans = prop_oneof![Just(1_u16), Just(6), Just(25), Just(200), Just(1_150), Just(1_300)];
    prop_oneof![
        4 => spans.prop_map(Step::Pass),
        6 => any::<[bool; 3]>().prop_map(Step::Hear),
        10 => Just(Step::Act),
        3 => (0..3_u8, any::<bool>()).prop_map(|(number, intent)| Step::Ask { number, intent }),
        1 => (0..3_u8).prop_map(Step::Drop),
        1 => (0..3_u8).prop_map(Step::Keep),
        1 => Just(Step::Terminates),
        1 => Just(Step::Finishes),
        1 => Just(Step::Goes),
        4 => any::<bool>().prop_map(Step::Reports),
        2 => any::<bool>().prop_map(|initializes| Step::Foreign { initializes }),
        1 => Just(Step::Anew),
    ]
}

/// The objects of the API server, and of the cache of a process.
struct Cluster {
    pod: Option<Value>,
    requests: Vec<Value>,
    evictions: Vec<Value>,
    version: u64,
    second: u64,
    /// By so many seconds the clock of the process is ahead.
    ahead: i64,
    world: World,
    /// The objects in the cache, to deliver removals.
    heard: [Vec<String>; 3],
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// Whether a quorum read counts the request: it is not withdrawn, not being deleted, and not invalid.
fn asks(request: &Value) -> bool {
    let deleting = request["metadata"].get("deletionTimestamp").is_some();
    request["spec"]["intent"] == "Eviction" && !deleting && failure(&request["status"]) != Some("EvictionInvalid")
}

/// The reason of `Failed`, if that is `True`.
fn failure(status: &Value) -> Option<&str> {
    let mut all = status["conditions"].as_array().into_iter().flatten();
    all.find(|one| one["type"] == "Failed" && one["status"] == "True")?["reason"].as_str()
}

/// A process that has just started, with this clock.
fn new_process(ahead: i64) -> World {
    let world = World::listed();
    world.set_wall_time(START_SECONDS + ahead, at(0));
    world
}

fn is_final(eviction: &Value) -> bool {
    ["Failed", "TargetEvicted"].iter().any(|kind| is_true(&eviction["status"], kind))
}

/// A strategic merge of lists of named entries.
fn merge(list: &mut Value, key: &str, entry: Value) {
    if list.is_null() {
        *list = json!([]);
    }
    let all = list.as_array_mut().unwrap();
    match all.iter_mut().find(|one| one[key] == entry[key]) {
        Some(one) => entry.as_object().unwrap().iter().for_each(|(field, value)| one[field] = value.clone()),
        None => all.push(entry),
    }
}

impl Cluster {
    fn new(in_gang: bool, ahead: i64) -> Self {
        let asks = json!([{ "name": APP, "priority": 10_000 }, { "name": "example.com/other", "priority": 5_000 }]);
        // The API server permits no responders of a pod in a gang.
        let pod = match in_gang {
            true => pod("p").set("/spec/schedulingGroup", json!({ "podGroupName": "g" })).0,
            false => pod("p").set("/spec/evictionResponders", asks).0,
        };
        let world = new_process(ahead);
        let (requests, evictions, heard) = Default::default();
        let mut cluster = Self { pod: None, requests, evictions, version: 100, second: 1, ahead, world, heard };
        cluster.pod = Some(cluster.next(pod));
        cluster
    }

    fn now(&self) -> Mono {
        at(self.second)
    }

    /// The second by the API server's clock.
    fn wall(&self) -> i64 {
        START_SECONDS + i64::try_from(self.second).unwrap()
    }

    /// The object with the next resourceVersion.
    fn next(&mut self, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        object
    }

    fn hear(&mut self, which: [bool; 3]) {
        let truth = [self.pod.clone().into_iter().collect::<Vec<_>>(), self.requests.clone(), self.evictions.clone()];
        let kinds = [Kind::Pods, Kind::EvictionRequests, Kind::Evictions];
        for (number, (objects, kind)) in truth.into_iter().zip(kinds).enumerate() {
            if !which[number] {
                continue;
            }
            for object in &objects {
                self.world.apply(kind, object, self.now());
            }
            let uids: Vec<String> = objects.iter().map(|object| text(object, "uid").to_owned()).collect();
            for gone in self.heard[number].iter().filter(|uid| !uids.contains(uid)) {
                self.world.remove(kind, gone, self.now());
            }
            self.heard[number] = uids;
        }
    }

    fn terminal(&self) -> bool {
        self.pod.as_ref().is_some_and(|pod| pod["status"]["phase"] == "Failed")
    }

    fn in_gang(&self) -> bool {
        self.pod.as_ref().is_some_and(|pod| pod["spec"].get("schedulingGroup").is_some())
    }

    fn holds(&self, check: &Precondition) -> bool {
        match check {
            Precondition::Nothing => true,
            Precondition::PodGone => self.pod.is_none(),
            Precondition::PodTerminal => self.terminal(),
            Precondition::PodRunning => self.pod.is_some() && !self.terminal(),
            Precondition::NotRequested => !self.requests.iter().any(asks),
            Precondition::Duplicate { uid, .. } => {
                self.evictions.iter().any(|one| text(one, "uid") == uid.to_string() && !is_final(one))
            }
        }
    }

    fn act(&mut self) -> Result<(), TestCaseError> {
        self.world.confirm_all(self.now());
        self.world.set_wall_time(self.wall() + self.ahead, self.now());
        let decision = decide(&Key::Target(target()), &self.world.read().view(), self.now());
        for intent in decision.intents {
            let Intent::Update(Update::Eviction(update)) = intent else { continue };
            self.carry_out(&update)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, update: &EvictionUpdate) -> Result<(), TestCaseError> {
        match &update.change {
            EvictionChange::Create { number, owners, labels } => self.create(*number, owners.len(), labels.len()),
            EvictionChange::Request { observed, conditions: stand } => {
                let stand = stand.clone();
                self.request(update, *observed, stand.as_deref());
                Ok(())
            }
            EvictionChange::Refuse { observed, .. } => {
                // A quorum read finds the pod in a gang; or gone, and no Eviction of it.
                if self.in_gang() || self.pod.is_none() && self.evictions.is_empty() {
                    let stated = |holds, reason: &str| ConditionChange {
                        is_true: holds,
                        reason: reason.to_owned(),
                        message: String::new(),
                        transition: true,
                    };
                    let stand = ConditionChanges {
                        failed: stated(true, "EvictionInvalid"),
                        evicted: stated(false, "EvictionFailed"),
                    };
                    self.request(update, *observed, Some(&stand));
                }
                Ok(())
            }
            EvictionChange::Collect => {
                self.evictions.retain(|one| {
                    text(one, "uid") != update.uid.to_string() || text(one, "resourceVersion") != update.rv.to_string()
                });
                Ok(())
            }
            change => self.write(&update.uid, &update.rv.to_string(), change),
        }
    }

    fn create(&mut self, number: u32, owners: usize, labels: usize) -> Result<(), TestCaseError> {
        prop_assert!(owners > 0 && labels > 0);
        let name = format!("pod-{number}-p");
        // There is an Eviction of this name and pod: the cache is behind.
        if self.evictions.iter().any(|one| text(one, "name") == name) {
            return Ok(());
        }
        let owned = eviction(&name, "p")
            .uid(&format!("uid-{name}-{}", self.version))
            .labels(json!({ "app.kubernetes.io/managed-by": "pod-safety" }));
        let stamped = owned.set("/metadata/creationTimestamp", json!(timestamp(self.second))).0;
        let made = self.next(stamped);
        self.evictions.push(made);
        Ok(())
    }

    fn request(&mut self, update: &EvictionUpdate, observed: i64, stand: Option<&ConditionChanges>) {
        let (uid, rv, now) = (update.uid.to_string(), update.rv.to_string(), timestamp(self.second));
        let Some(at) =
            self.requests.iter().position(|one| text(one, "uid") == uid && text(one, "resourceVersion") == rv)
        else {
            return;
        };
        let mut request = self.requests[at].clone();
        request["status"]["observedGeneration"] = json!(observed);
        if let Some(stand) = stand {
            conditions(&mut request["status"], stand, &now);
        }
        self.requests[at] = self.next(request);
    }

    /// Writes to an Eviction.
    fn write(&mut self, uid: &Uid, rv: &str, change: &EvictionChange) -> Result<(), TestCaseError> {
        let Some(at) = self
            .evictions
            .iter()
            .position(|one| text(one, "uid") == uid.to_string() && text(one, "resourceVersion") == rv)
        else {
            return Ok(());
        };
        let mut written = self.evictions[at].clone();
        let now = timestamp(self.second);
        match change {
            EvictionChange::Status(change) => {
                if !self.holds(&change.check) {
                    return Ok(());
                }
                status(&mut written["status"], change, &now);
            }
            EvictionChange::Report(made) => report(&mut written["status"], made.complete, &now, made.floor),
            EvictionChange::Evict { floor, .. } => {
                prop_assert!(is_active(&written, IMPERATIVE_EVICTOR), "{written}");
                if let Some(pod) = self.pod.clone().filter(|pod| pod["metadata"].get("deletionTimestamp").is_none()) {
                    let gone = Obj(pod).terminating().0;
                    self.pod = Some(self.next(gone));
                }
                report(&mut written["status"], false, &now, *floor);
            }
            EvictionChange::Mark { labels, .. } => {
                for (key, role) in labels {
                    written["metadata"]["labels"][&**key] = json!(role.map(|role| role.name()));
                }
                written["metadata"]["labels"].as_object_mut().unwrap().retain(|_, role| !role.is_null());
                for request in &self.requests {
                    let owner = json!({ "apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "EvictionRequest", "uid": text(request, "uid") });
                    merge(&mut written["metadata"]["ownerReferences"], "uid", owner);
                }
            }
            _ => {}
        }
        let before = &self.evictions[at]["status"];
        let taken = validate(before, &written["status"], self.wall());
        prop_assert!(taken.is_ok(), "{change:?}\n{before}\n{}: {taken:?}", written["status"]);
        self.invariants(before.clone(), &written["status"])?;
        self.evictions[at] = self.next(written);
        Ok(())
    }

    /// Invariants of every final write.
    fn invariants(&self, before: Value, after: &Value) -> Result<(), TestCaseError> {
        let became = |kind: &str| !is_true(&before, kind) && is_true(after, kind);
        if became("TargetEvicted") {
            prop_assert!(self.pod.is_none() || self.terminal(), "evicted while it runs");
        }
        if became("Failed") && failure(after) == Some("CanceledDueToNoRequesters") {
            prop_assert!(!self.requests.iter().any(asks), "canceled while somebody asks");
        }
        Ok(())
    }

    fn apply_step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Pass(seconds) => self.second += u64::from(seconds),
            Step::Hear(which) => self.hear(which),
            Step::Act => self.act()?,
            Step::Ask { number, intent } => self.ask(number, intent),
            Step::Drop(number) => self.requests.retain(|one| text(one, "name") != format!("r{number}")),
            Step::Keep(number) => self.keep(number),
            Step::Terminates => self.change_pod(Obj::terminating),
            Step::Finishes => self.change_pod(|pod| pod.phase("Failed")),
            Step::Goes => self.pod = None,
            Step::Reports(done) => self.reports(done),
            Step::Foreign { initializes } => self.foreign(initializes),
            Step::Anew => {
                self.world = new_process(self.ahead);
                self.heard = Default::default();
                self.hear([true; 3]);
            }
        }
        Ok(())
    }

    fn change_pod(&mut self, change: impl FnOnce(Obj) -> Obj) {
        if let Some(pod) = self.pod.take() {
            let changed = change(Obj(pod)).0;
            self.pod = Some(self.next(changed));
        }
    }

    fn ask(&mut self, number: u8, intent: bool) {
        let (name, word) = (format!("r{number}"), if intent { "Eviction" } else { "Withdrawn" });
        let at = self.requests.iter().position(|one| text(one, "name") == name);
        let known = at.map(|at| self.requests.remove(at));
        let mut request = known.unwrap_or_else(|| {
            eviction_request(&name, "p", &format!("example.com/{number}"))
                .uid(&format!("uid-{name}-{}", self.version))
                .0
        });
        request["spec"]["intent"] = json!(word);
        request["metadata"]["generation"] = json!(request["metadata"]["generation"].as_i64().unwrap() + 1);
        let request = self.next(request);
        self.requests.push(request);
    }

    fn keep(&mut self, number: u8) {
        let name = format!("r{number}");
        let Some(at) = self.requests.iter().position(|one| text(one, "name") == name) else { return };
        let mut request = self.requests[at].clone();
        request["metadata"]["deletionTimestamp"] = json!(timestamp(self.second));
        request["metadata"]["finalizers"] = json!(["example.com/keep"]);
        request["metadata"]["generation"] = json!(request["metadata"]["generation"].as_i64().unwrap() + 1);
        self.requests[at] = self.next(request);
    }

    /// The active responder reports, if the API server accepts it.
    fn reports(&mut self, done: bool) {
        let Some(at) = self.evictions.iter().position(|one| active(one).is_some_and(|name| name != EVICTOR)) else {
            return;
        };
        let mut written = self.evictions[at].clone();
        let (name, now) = (active(&written).unwrap().to_owned(), timestamp(self.second));
        let field = if done { "completionTime" } else { "heartbeatTime" };
        merge(&mut written["status"]["responders"], "name", json!({ "name": name, field: now }));
        if validate(&self.evictions[at]["status"], &written["status"], self.wall()).is_ok() {
            self.evictions[at] = self.next(written);
        }
    }

    /// Creates an Eviction; or initializes the last one that is not, or a new one, even beside an active one.
    fn foreign(&mut self, initializes: bool) {
        let is_new = |one: &Value| !is_final(one) && one["status"]["targetResponders"].is_null();
        let at = self.evictions.iter().rposition(is_new).filter(|_| initializes).unwrap_or_else(|| {
            let name = format!("foreign-{}", self.version);
            let one = eviction(&name, "p").set("/metadata/creationTimestamp", json!(timestamp(self.second)));
            let one = self.next(one.0);
            self.evictions.push(one);
            self.evictions.len() - 1
        });
        if !initializes {
            return;
        }
        let mut written = self.evictions[at].clone();
        let responders = vec![(FOREIGN.into(), 10_000), (EVICTOR.into(), 100)];
        let states = vec![(FOREIGN.into(), ResponderState::Active)];
        let starts = Some(FOREIGN.into());
        let change = StatusChange { observed: 1, responders, states, starts, ..StatusChange::default() };
        status(&mut written["status"], &change, &timestamp(self.second));
        let taken = validate(&self.evictions[at]["status"], &written["status"], self.wall());
        assert!(taken.is_ok(), "{}: {taken:?}", written["status"]);
        self.evictions[at] = self.next(written);
    }
}

/// Whether another client gave the first turn.
fn is_foreign(eviction: &Value) -> bool {
    eviction["status"]["targetResponders"].as_array().is_some_and(|all| all.iter().any(|one| one["name"] == FOREIGN))
}

fn active(eviction: &Value) -> Option<&str> {
    let all = eviction["status"]["targetResponders"].as_array()?;
    all.iter().find(|one| one["state"] == "Active")?["name"].as_str()
}

fn is_active(eviction: &Value, name: &str) -> bool {
    active(eviction) == Some(name)
}

fn conditions(status: &mut Value, stand: &ConditionChanges, now: &str) {
    for (kind, stated) in [("Failed", &stand.failed), ("TargetEvicted", &stand.evicted)] {
        let word = if stated.is_true { "True" } else { "False" };
        let mut entry = json!({ "type": kind, "status": word, "reason": stated.reason, "message": stated.message });
        if stated.transition {
            entry["lastTransitionTime"] = json!(now);
        }
        merge(&mut status["conditions"], "type", entry);
    }
}

fn status(status: &mut Value, change: &StatusChange, now: &str) {
    status["observedGeneration"] = json!(change.observed);
    for (name, priority) in &change.responders {
        merge(
            &mut status["targetResponders"],
            "name",
            json!({ "name": name, "priority": priority, "state": "Inactive" }),
        );
        merge(&mut status["responders"], "name", json!({ "name": name }));
    }
    for (name, state) in &change.states {
        let state: &ResponderState = state;
        merge(&mut status["targetResponders"], "name", json!({ "name": name, "state": state.name() }));
    }
    if let Some(name) = &change.starts {
        merge(&mut status["responders"], "name", json!({ "name": name, "startTime": now }));
    }
    for one in &change.requesters {
        merge(&mut status["requesters"], "name", json!({ "name": one.name, "intent": one.intent.name() }));
    }
    if let Some(stand) = &change.conditions {
        conditions(status, stand, now);
    }
}

fn report(status: &mut Value, done: bool, now: &str, floor: i64) {
    let name = active(&json!({ "status": status })).unwrap().to_owned();
    let floor = jiff::Timestamp::from_second(floor).unwrap().to_string();
    let now = if floor.as_str() > now { floor.as_str() } else { now };
    let field = if done { "completionTime" } else { "heartbeatTime" };
    merge(&mut status["responders"], "name", json!({ "name": name, field: now }));
}

fn settle(cluster: &mut Cluster) -> Result<(), TestCaseError> {
    for _ in 0..12 {
        cluster.hear([true; 3]);
        cluster.act()?;
        cluster.second += 1_300;
    }
    cluster.hear([true; 3]);
    cluster.act()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// No write is refused, none violates the invariants, and in the end every request shows its result.
    #[test]
    fn all_histories_keep_the_invariants(
        steps in proptest::collection::vec(step(), 1..80),
        in_gang in prop::bool::weighted(0.25),
        ahead in prop::sample::select(vec![-31_i64, 0, 31]),
    ) {
        let mut cluster = Cluster::new(in_gang, ahead);
        for step in steps {
            cluster.apply_step(step)?;
            // Another client may give a turn beside the controller's.
            let going = cluster.evictions.iter().filter(|one| active(one).is_some() && !is_foreign(one));
            prop_assert!(going.clone().count() <= 1, "{:?}", going.collect::<Vec<_>>());
        }
        // Close to the deadline of a responder that does not report, and beyond.
        for pass in [0, 1, 1, 1_150, 60, 1_150, 60] {
            cluster.second += pass;
            cluster.hear([true; 3]);
            cluster.act()?;
        }
        settle(&mut cluster)?;
        let going: Vec<_> = cluster.evictions.iter().filter(|one| !is_final(one)).collect();
        let is_requested = cluster.requests.iter().any(asks) && !cluster.in_gang();
        prop_assert!(is_requested || going.is_empty(), "canceled: {going:?}");
        prop_assert!(going.iter().filter(|one| active(one).is_some()).count() <= 1, "{going:?}");
        cluster.pod = None;
        settle(&mut cluster)?;
        let left = cluster.evictions.iter().filter(|one| !is_final(one)).count();
        prop_assert_eq!(left, 0, "Evictions of a pod that is gone have ended: {:?}", cluster.evictions);
        for request in &cluster.requests {
            let status = &request["status"];
            let said = is_true(status, "TargetEvicted") || is_true(status, "Failed");
            prop_assert!(said || !asks(request), "{request}");
        }
    }
}
