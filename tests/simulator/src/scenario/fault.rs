//! One entry of `faults`.

mod evictions;

use serde::Deserialize;

use super::field::{Field, FieldError, Place, Text};
use crate::campaign::{Ailment, Fault, Limit, Malfunction, Plan, Trouble};

pub(super) use evictions::EvictionsFile;

/// The longest that anything may last, in seconds.
const MAX_SECONDS: u64 = 3_600;
/// The farthest that a clock may jump: a year.
const FARTHEST: u64 = 31_536_000;
/// The longest delay of a request, in milliseconds.
const SLOWEST: u64 = 60_000;

/// All kinds, for what is said of an unknown one.
pub(super) const KINDS: [&str; 39] = [
    "cut-node",
    "cut-replica",
    "trouble-node",
    "trouble-replica",
    "cut-server",
    "lag-server",
    "restart-server",
    "forget",
    "switch-server",
    "crash-replica",
    "pause-replica",
    "stop-replica",
    "jump-replica",
    "jump-node",
    "power-off",
    "reboot",
    "kill-kubelet",
    "freeze",
    "sicken-node",
    "heal-node",
    "delete-node",
    "taint",
    "delete-pod",
    "evict",
    "deploy",
    "scale",
    "change-budget",
    "stall-workloads",
    "sicken",
    "drain",
    "evict-at-once",
    "add-taint",
    "lift-taint",
    "tolerate",
    "malfunction",
    "confirm-down",
    "request-eviction",
    "withdraw-request",
    "switch-gate-off",
];

/// What a workload may have.
const MOST_WORKLOADS: u64 = 10;
const MOST_REPLICAS: u64 = 30;
const MOST_CLIENTS: u64 = 30;
/// [`TROUBLES`](crate::world::TROUBLES) in a word.
const TAINTS: [(&str, usize); 3] = [("trouble-0", 0), ("trouble-1", 1), ("unreachable", 2)];
/// How devices fail and lie; those with a number get it from a field of its own.
const MALFUNCTIONS: [(&str, Malfunction); 9] = [
    ("done-but-silent", Malfunction::DoneButSilent),
    ("acknowledges-only", Malfunction::AcksOnly),
    ("late-after-failure", Malfunction::LateAfterFailure(0)),
    ("wrong-machine", Malfunction::WrongMachine(0)),
    ("flaps", Malfunction::Flaps),
    ("unreachable", Malfunction::Unreachable),
    ("silent", Malfunction::Silent),
    ("stale-off", Malfunction::StaleOff),
    ("dies-with-it", Malfunction::DiesWithIt),
];
/// What ails a node.
const AILMENTS: [(&str, Ailment); 2] = [("runtime", Ailment::Runtime), ("network", Ailment::Network)];
/// A person's word holds for so long at least (`FenceEvidence.spec.validSeconds`).
const SHORTEST_WORD: u64 = 60;
/// The longest start of a process, in seconds.
const LONGEST_START: u64 = 300;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Step {
    at: Text,
    fault: Text,
    node: Text,
    replica: Text,
    server: Text,
    pod: Text,
    #[serde(rename = "for")]
    lasts: Text,
    back_after: Text,
    by: Text,
    trouble: Text,
    percent: Text,
    answers_lost: Text,
    workload: Text,
    replicas: Text,
    keeps_names: Text,
    start_up: Text,
    min_available: Text,
    max_unavailable: Text,
    careful: Text,
    clients: Text,
    stale: Text,
    taint: Text,
    stamped: Text,
    how: Text,
    late: Text,
    machine: Text,
    ailment: Text,
    wrong: Text,
    client: Text,
}

/// An entry that is being read: which fields were asked for.
struct Reading<'a> {
    step: &'a Step,
    kind: &'a str,
    place: Place,
    plan: &'a Plan,
    asked: Vec<&'static str>,
}

impl Step {
    fn fields(&self) -> [(&'static str, &Text); 27] {
        [
            ("node", &self.node),
            ("replica", &self.replica),
            ("server", &self.server),
            ("pod", &self.pod),
            ("for", &self.lasts),
            ("back-after", &self.back_after),
            ("by", &self.by),
            ("trouble", &self.trouble),
            ("percent", &self.percent),
            ("answers-lost", &self.answers_lost),
            ("workload", &self.workload),
            ("replicas", &self.replicas),
            ("keeps-names", &self.keeps_names),
            ("start-up", &self.start_up),
            ("min-available", &self.min_available),
            ("max-unavailable", &self.max_unavailable),
            ("careful", &self.careful),
            ("clients", &self.clients),
            ("stale", &self.stale),
            ("taint", &self.taint),
            ("stamped", &self.stamped),
            ("how", &self.how),
            ("late", &self.late),
            ("machine", &self.machine),
            ("ailment", &self.ailment),
            ("wrong", &self.wrong),
            ("client", &self.client),
        ]
    }

    /// When, and what.
    pub(super) fn decode(&self, place: Place, plan: &Plan) -> Result<(u64, Fault), FieldError> {
        let lacks = |name: &str, allowed: &str| place.error(&format!("field `{name}`: missing, allowed {allowed}"));
        let at = Field::new("at", &self.at).ok_or_else(|| lacks("at", "is a time such as 45s"))?;
        let kinds = || format!("is one of: {}", KINDS.join(", "));
        let kind = Field::new("fault", &self.fault).ok_or_else(|| lacks("fault", &kinds()))?;
        if !KINDS.contains(&kind.text) {
            return Err(kind.error(&kinds()));
        }
        let when = at.seconds(MAX_SECONDS)?;
        if when >= plan.heal_at {
            return Err(at.error(&format!("is a time before `heal-at`, which is {}s", plan.heal_at)));
        }
        if matches!(kind.text, "malfunction" | "confirm-down") && plan.with.fencing.is_none() {
            return Err(kind.error("only where `fencing` is given"));
        }
        if evictions::KINDS.contains(&kind.text) && plan.with.evictions.is_none() {
            return Err(kind.error("only where `evictions` is given"));
        }
        let mut reading = Reading { step: self, kind: kind.text, place, plan, asked: Vec::new() };
        let fault = reading.fault()?;
        let stray = self.fields().into_iter().find(|(name, text)| text.is_some() && !reading.asked.contains(name));
        let stray = stray.and_then(|(name, text)| Field::new(name, text));
        match stray {
            Some(field) if reading.asked.is_empty() => Err(field.error(&format!("with `{}` is nothing", kind.text))),
            Some(field) => Err(field.error(&format!("with `{}` are {}", kind.text, reading.asked.join(", ")))),
            None => Ok((when, fault)),
        }
    }
}

impl<'a> Reading<'a> {
    fn field(&mut self, name: &'static str) -> Option<Field<'a>> {
        self.asked.push(name);
        let text = self.step.fields().into_iter().find(|(known, _)| *known == name)?.1;
        Field::new(name, text)
    }

    fn needed(&mut self, name: &'static str) -> Result<Field<'a>, FieldError> {
        let (place, kind) = (self.place, self.kind);
        self.field(name).ok_or_else(|| place.error(&format!("field `{name}`: missing, `{kind}` needs it")))
    }

    fn node(&mut self) -> Result<usize, FieldError> {
        let count = self.plan.nodes;
        self.needed("node")?.index(count, "nodes")
    }

    fn replica(&mut self) -> Result<usize, FieldError> {
        let count = self.plan.replicas;
        self.needed("replica")?.index(count, "replicas of pod-safety")
    }

    fn server(&mut self) -> Result<usize, FieldError> {
        let count = self.plan.servers;
        self.needed("server")?.index(count, "API servers")
    }

    fn pod(&mut self) -> Result<usize, FieldError> {
        let count = self.plan.pods;
        self.needed("pod")?.index(count, "pods")
    }

    fn lasts(&mut self) -> Result<u64, FieldError> {
        self.needed("for")?.seconds(MAX_SECONDS)
    }

    fn word_lasts(&mut self) -> Result<u64, FieldError> {
        let field = self.needed("for")?;
        let allowed = format!("is {SHORTEST_WORD}s to {MAX_SECONDS}s, as for `--valid-for`");
        field.seconds(MAX_SECONDS).and_then(|valid| match valid {
            SHORTEST_WORD.. => Ok(valid),
            _ => Err(field.error(&allowed)),
        })
    }

    fn workload(&mut self) -> Result<usize, FieldError> {
        Ok(usize::try_from(self.needed("workload")?.number(0, MOST_WORKLOADS - 1)?).unwrap_or(0))
    }

    fn replicas(&mut self) -> Result<u64, FieldError> {
        self.needed("replicas")?.number(0, MOST_REPLICAS)
    }

    fn truth(&mut self, name: &'static str, otherwise: bool) -> Result<bool, FieldError> {
        let choices = [("true", true), ("false", false)];
        self.field(name).map_or(Ok(otherwise), |field| field.one_of(&choices))
    }

    /// One of the taints that people add, by its number.
    fn taint(&mut self) -> Result<usize, FieldError> {
        self.needed("taint")?.one_of(&TAINTS)
    }

    /// `min-available` or `max-unavailable`, as a number or a percentage.
    fn limit(&mut self) -> Result<Limit, FieldError> {
        let (least, most) = (self.field("min-available"), self.field("max-unavailable"));
        let field = match (&least, &most) {
            (Some(field), Some(_)) => {
                return Err(field.error("is one of the two: not with `max-unavailable`"));
            }
            (Some(field), None) | (None, Some(field)) => field,
            (None, None) => {
                let missing = "field `min-available`: missing, allowed is that or `max-unavailable`";
                return Err(self.place.error(missing));
            }
        };
        let percent = field.text.strip_suffix('%');
        let (text, most_of_it) = percent.map_or((field.text, MOST_REPLICAS), |text| (text, 100));
        let number = Field { name: field.name, text, place: field.place }.number(0, most_of_it)?;
        Ok(match (least.is_some(), percent.is_some()) {
            (true, false) => Limit::MinAvailable(number),
            (true, true) => Limit::MinPercent(number),
            (false, false) => Limit::MaxUnavailable(number),
            (false, true) => Limit::MaxPercent(number),
        })
    }

    fn percent(&mut self) -> Result<u64, FieldError> {
        self.field("percent").map_or(Ok(100), |field| field.number(1, 100))
    }

    fn trouble(&mut self) -> Result<Trouble, FieldError> {
        let field = self.needed("trouble")?;
        if let Some(delay) = field.text.strip_prefix("delay ") {
            let delay = Field { name: "trouble", text: delay, place: field.place };
            return delay.milliseconds(SLOWEST).map(Trouble::Delay);
        }
        let code = field.text.strip_prefix("error ").and_then(|code| code.parse().ok());
        match (field.text, code) {
            ("lose-answer", _) => Ok(Trouble::LoseAnswer),
            ("cut-answer", _) => Ok(Trouble::CutAnswer),
            ("drop-request", _) => Ok(Trouble::DropRequest),
            (_, Some(code @ 400..=599)) => Ok(Trouble::Error(code)),
            _ => {
                Err(field
                    .error("is lose-answer, cut-answer, drop-request, error 400 to error 599, or delay with a time"))
            }
        }
    }

    /// How a device fails or lies.
    fn how(&mut self) -> Result<Malfunction, FieldError> {
        let field = self.needed("how")?;
        Ok(match field.one_of(&MALFUNCTIONS)? {
            Malfunction::LateAfterFailure(_) => {
                Malfunction::LateAfterFailure(self.needed("late")?.seconds(MAX_SECONDS)?)
            }
            Malfunction::WrongMachine(_) => {
                let count = self.plan.nodes;
                Malfunction::WrongMachine(self.needed("machine")?.index(count, "nodes")?)
            }
            how => how,
        })
    }

    fn fault(&mut self) -> Result<Fault, FieldError> {
        Ok(match self.kind {
            "cut-replica" => Fault::CutReplica { replica: self.replica()?, seconds: self.lasts()? },
            "trouble-replica" => Fault::TroubleReplica {
                replica: self.replica()?,
                trouble: self.trouble()?,
                percent: self.percent()?,
                seconds: self.lasts()?,
            },
            "cut-server" => {
                let answers_lost = self.truth("answers-lost", false)?;
                Fault::CutServer { server: self.server()?, answers_lost, seconds: self.lasts()? }
            }
            "lag-server" => Fault::LagServer { server: self.server()?, seconds: self.lasts()? },
            "restart-server" => Fault::RestartServer { server: self.server()? },
            "forget" => Fault::Forget,
            "switch-server" => Fault::SwitchServer { replica: self.replica()? },
            "crash-replica" => Fault::CrashReplica { replica: self.replica()?, seconds: self.lasts()? },
            "pause-replica" => Fault::PauseReplica { replica: self.replica()?, seconds: self.lasts()? },
            "stop-replica" => Fault::StopReplica { replica: self.replica()?, seconds: self.lasts()? },
            "jump-replica" => {
                Fault::JumpReplica { replica: self.replica()?, seconds: self.needed("by")?.signed_seconds(FARTHEST)? }
            }
            "tolerate" => Fault::Tolerate {
                pod: self.pod()?,
                key: self.taint()?,
                seconds: self.field("for").map(|field| field.seconds(MAX_SECONDS)).transpose()?,
            },
            "delete-pod" => Fault::DeletePod { pod: self.pod()? },
            "evict" => Fault::Evict { pod: self.pod()? },
            "request-eviction" | "withdraw-request" | "switch-gate-off" => return self.deed_of_evictions(),
            "deploy" | "scale" | "change-budget" | "stall-workloads" | "sicken" | "evict-at-once" => {
                return self.deed_of_budgets();
            }
            _ => return self.fault_of_node(),
        })
    }

    /// What people do to workloads with a budget.
    fn deed_of_budgets(&mut self) -> Result<Fault, FieldError> {
        Ok(match self.kind {
            "deploy" => Fault::Deploy {
                workload: self.workload()?,
                replicas: self.replicas()?,
                keeps_names: self.truth("keeps-names", true)?,
                start_up: self.field("start-up").map_or(Ok(0), |field| field.seconds(LONGEST_START))?,
                limit: self.limit()?,
            },
            "scale" => Fault::Scale { workload: self.workload()?, replicas: self.replicas()? },
            "change-budget" => Fault::ChangeBudget { workload: self.workload()?, limit: self.limit()? },
            "stall-workloads" => Fault::StallWorkloads { seconds: self.lasts()? },
            "sicken" => {
                let workload = self.workload()?;
                let pod = self.needed("pod")?.number(0, MOST_REPLICAS - 1)?;
                Fault::Sicken { workload, pod: usize::try_from(pod).unwrap_or(0), seconds: self.lasts()? }
            }
            _ => {
                let workload = self.workload()?;
                let clients = self.needed("clients")?.number(1, MOST_CLIENTS)?;
                let stale = self.truth("stale", false)?;
                Fault::EvictAtOnce { workload, clients: usize::try_from(clients).unwrap_or(1), stale }
            }
        })
    }

    fn fault_of_node(&mut self) -> Result<Fault, FieldError> {
        Ok(match self.kind {
            "cut-node" => Fault::CutNode { node: self.node()?, seconds: self.lasts()? },
            "trouble-node" => Fault::TroubleNode {
                node: self.node()?,
                trouble: self.trouble()?,
                percent: self.percent()?,
                seconds: self.lasts()?,
            },
            "jump-node" => {
                Fault::JumpNode { node: self.node()?, seconds: self.needed("by")?.signed_seconds(FARTHEST)? }
            }
            "power-off" => {
                let back = self.field("back-after").map(|field| field.seconds(MAX_SECONDS)).transpose()?;
                Fault::PowerOff { node: self.node()?, back }
            }
            "reboot" => Fault::Reboot { node: self.node()? },
            "kill-kubelet" => Fault::KillKubelet { node: self.node()?, seconds: self.lasts()? },
            "freeze" => Fault::Freeze { node: self.node()?, seconds: self.lasts()? },
            "sicken-node" => {
                let (node, seconds) = (self.node()?, self.lasts()?);
                Fault::SickenNode { node, ailment: self.needed("ailment")?.one_of(&AILMENTS)?, seconds }
            }
            "heal-node" => Fault::HealNode { node: self.node()? },
            "delete-node" => Fault::DeleteNode { node: self.node()? },
            "drain" => {
                let (node, seconds) = (self.node()?, self.lasts()?);
                Fault::Drain { node, careful: self.truth("careful", true)?, seconds }
            }
            "add-taint" => {
                let (node, key) = (self.node()?, self.taint()?);
                Fault::AddTaint { node, key, stamped: self.truth("stamped", true)? }
            }
            "malfunction" => {
                let node = self.node()?;
                Fault::Malfunction { node, how: self.how()?, seconds: self.lasts()? }
            }
            "confirm-down" => {
                let (node, wrong) = (self.node()?, self.truth("wrong", false)?);
                Fault::Confirm { node, wrong, valid: self.word_lasts()? }
            }
            "lift-taint" => Fault::LiftTaint { node: self.node()?, key: self.taint()? },
            _ => Fault::Taint { node: self.node()? },
        })
    }
}
