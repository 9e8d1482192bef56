//! A scenario from the text of its file.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_saphyr::{Error, Spanned};

use super::contender::Contender;
use super::fault::{EvictionsFile, Step};
use super::field::{Field, FieldError, Place, Text};
use super::{Expect, Scenario};
use crate::campaign::{Evictions, Extras, Fault, Fencing, Keeper, Plan};
use crate::checker::Invariant;

/// What a world may have: more says nothing new, and takes long.
const MOST_NODES: u64 = 50;
const MOST_PODS: u64 = 100;
const MOST_SERVERS: u64 = 5;
const MOST_REPLICAS: u64 = 9;
/// The longest plan, in seconds.
const LONGEST: u64 = 3_600;

/// How long a Lease outlives its Node, in seconds, if a scenario does not say: garbage collection follows its owner.
const COLLECTED_AFTER: u64 = 2;

/// The rules by the names that files use.
const RULES: [(&str, Invariant); 29] = [
    ("S1", Invariant::AtMostOne),
    ("S2", Invariant::Evidence),
    ("S4", Invariant::Identity),
    ("S5", Invariant::Grace),
    ("S6", Invariant::Graceful),
    ("S7", Invariant::Budget),
    ("S8", Invariant::Storage),
    ("S9", Invariant::Term),
    ("S10", Invariant::Fence),
    ("S11", Invariant::Truth),
    ("S12", Invariant::Hygiene),
    ("S13-panic", Invariant::NoPanic),
    ("S13-loop", Invariant::HotLoop),
    ("S14", Invariant::Tolerance),
    ("S15", Invariant::Heard),
    ("S16", Invariant::Kept),
    ("S20", Invariant::Verdict),
    ("S21", Invariant::Turn),
    ("L1", Invariant::Liveness),
    ("L3", Invariant::Ended),
    ("L4", Invariant::Rest),
    ("L5", Invariant::Refused),
    ("L6", Invariant::Recovered),
    ("L8", Invariant::Failover),
    ("L9", Invariant::Reported),
    ("L10", Invariant::Evicted),
    ("L11", Invariant::Lost),
    ("L13", Invariant::Answered),
    ("simulator", Invariant::Simulator),
];

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct File {
    name: Text,
    title: Text,
    about: Text,
    seed: Text,
    api_servers: Text,
    nodes: Text,
    pods: Text,
    other_pods: Text,
    replicas: Text,
    lease_collected_after: Text,
    node_lifecycle: Text,
    fencing: Option<FencingFile>,
    evictions: Option<EvictionsFile>,
    heal_at: Text,
    subject: Text,
    expect: Option<ExpectFile>,
    #[serde(default)]
    faults: Vec<Spanned<Step>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct FencingFile {
    when: Text,
    identity: Text,
    backup: Text,
    recovery: Text,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ExpectFile {
    broken: Text,
    stuck: Text,
}

/// Reads a scenario; `file` is the name that errors carry.
///
/// # Errors
/// The first thing that is wrong, with its place and what is allowed.
pub fn parse(file: &str, text: &str) -> Result<Scenario, FieldError> {
    let read = || {
        let read = serde_saphyr::from_str::<File>(text);
        read.map_err(|error| not_read(&error)).and_then(scenario)
    };
    let name = file.rsplit('/').next().and_then(|name| name.split('.').next()).unwrap_or_default();
    match read() {
        Ok(scenario) if scenario.name.is_empty() => Ok(Scenario { name: name.to_owned(), ..scenario }),
        Ok(scenario) => Ok(scenario),
        Err(wrong) => Err(FieldError { file: file.to_owned(), ..wrong }),
    }
}

/// What the YAML reader says, in a line of ours.
fn not_read(error: &Error) -> FieldError {
    let place = error.location().map_or(Place { line: 1, column: 1 }, |location| Place {
        line: location.line().max(1),
        column: location.column().max(1),
    });
    let what = match error.without_snippet() {
        Error::SerdeUnknownField { field, expected, .. } => {
            format!("field `{field}`: unknown here, allowed are {}", expected.join(", "))
        }
        other => {
            // One line, without the place that stands in front already.
            let said = other.to_string();
            let said = said.lines().next().unwrap_or_default();
            format!("not a scenario: {}", said.split(" at line ").next().unwrap_or_default())
        }
    };
    place.error(&what)
}

fn missing(name: &str, allowed: &str) -> FieldError {
    Place { line: 1, column: 1 }.error(&format!("field `{name}`: missing, allowed {allowed}"))
}

fn scenario(file: File) -> Result<Scenario, FieldError> {
    let number = |name, text: &Text, least, most, otherwise| match Field::new(name, text) {
        Some(field) => field.number(least, most),
        None => Ok(otherwise),
    };
    let needed = |name, text: &Text, most| match Field::new(name, text) {
        Some(field) => field.number(1, most),
        None => Err(missing(name, &format!("is a whole number from 1 to {most}"))),
    };
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let heal = Field::new("heal-at", &file.heal_at)
        .ok_or_else(|| missing("heal-at", "is a time after the last fault, such as 150s"))?;
    let mut plan = Plan {
        seed: number("seed", &file.seed, 0, u64::MAX, 1)?,
        servers: count(number("api-servers", &file.api_servers, 1, MOST_SERVERS, 1)?),
        nodes: count(needed("nodes", &file.nodes, MOST_NODES)?),
        replicas: count(number("replicas", &file.replicas, 1, MOST_REPLICAS, 2)?),
        pods: count(needed("pods", &file.pods, MOST_PODS)?),
        lease_collected_after: match Field::new("lease-collected-after", &file.lease_collected_after) {
            Some(field) => field.seconds(LONGEST)?,
            None => COLLECTED_AFTER,
        },
        heal_at: heal.seconds(LONGEST)?,
        // How is read below: whether there are devices decides which faults there can be.
        with: Extras {
            fencing: file.fencing.as_ref().map(|_| Fencing::default()),
            evictions: file.evictions.as_ref().map(|_| Evictions::default()),
            ..Extras::default()
        },
        faults: Vec::new(),
    };
    for step in &file.faults {
        let fault = step.value.decode(Place::from_spanned(step), &plan)?;
        plan.faults.push(fault);
    }
    plan.faults.sort_by_key(|(at, _)| *at);
    plan.with = extras(&file.node_lifecycle, &plan.faults)?;
    plan.with.no_other_pods = !Field::new("other-pods", &file.other_pods)
        .map_or(Ok(true), |field| field.one_of(&[("true", true), ("false", false)]))?;
    if let Some(fencing) = &file.fencing {
        plan.with = fenced(plan.with, fencing, &file.node_lifecycle)?;
    }
    plan.with.evictions = file.evictions.as_ref().map(EvictionsFile::read).transpose()?;
    let text = |text: &Text| text.as_ref().map(|text| text.value.trim().to_owned()).unwrap_or_default();
    Ok(Scenario {
        name: text(&file.name),
        title: text(&file.title),
        about: text(&file.about),
        plan,
        subject: subject(&file.subject)?,
        expect: match &file.expect {
            Some(expect) => expected(expect)?,
            None => Expect::default(),
        },
    })
}

/// What the world has beside machines: taints that end pods where somebody keeps or adds some.
fn extras(node_lifecycle: &Text, faults: &[(u64, Fault)]) -> Result<Extras, FieldError> {
    let choices = [("none", Keeper::Theirs), ("guard", Keeper::Guarded), ("replace", Keeper::Ours)];
    let field = Field::new("node-lifecycle", node_lifecycle);
    let nodes = field.as_ref().map_or(Ok(Keeper::Theirs), |field| field.one_of(&choices))?;
    let has = |wanted: fn(&Fault) -> bool| faults.iter().any(|(_, fault)| wanted(fault));
    let of_taints =
        |fault: &Fault| matches!(fault, Fault::AddTaint { .. } | Fault::LiftTaint { .. } | Fault::Tolerate { .. });
    let taints = nodes == Keeper::Ours || has(of_taints);
    match field {
        // There nobody of ours keeps budgets, or ends pods for taints.
        Some(field) if nodes == Keeper::Guarded && (taints || has(|fault| matches!(fault, Fault::Deploy { .. }))) => {
            Err(field.error("is none or replace, because a fault deploys a workload or taints a node"))
        }
        _ => Ok(Extras { taints, nodes, ..Extras::default() }),
    }
}

/// Nodes are fenced that somebody calls lost.
fn fenced(with: Extras, file: &FencingFile, node_lifecycle: &Text) -> Result<Extras, FieldError> {
    if with.nodes != Keeper::Ours {
        let Some(field) = Field::new("node-lifecycle", node_lifecycle) else {
            return Err(missing("node-lifecycle", "is replace, because nodes are fenced"));
        };
        return Err(field.error("is replace, because nodes are fenced"));
    }
    let choice = |name, text: &Text, choices: [(&str, bool); 2], otherwise| {
        Field::new(name, text).map_or(Ok(otherwise), |field| field.one_of(&choices))
    };
    let identities = [("none", (false, false)), ("told", (true, false)), ("required", (true, true))];
    let identity = Field::new("fencing.identity", &file.identity);
    let (tells, required) = identity.map_or(Ok((true, false)), |field| field.one_of(&identities))?;
    let fencing = Fencing {
        always: choice("fencing.when", &file.when, [("always", true), ("needed", false)], false)?,
        tells,
        required,
        backup: choice("fencing.backup", &file.backup, [("true", true), ("false", false)], false)?,
        power_on: choice("fencing.recovery", &file.recovery, [("power-on", true), ("hold", false)], true)?,
        ..Fencing::default()
    };
    Ok(Extras { fencing: Some(fencing), ..with })
}

fn subject(text: &Text) -> Result<Contender, FieldError> {
    let choices = Contender::ALL.map(|contender| (contender.name(), contender));
    Field::new("subject", text).map_or(Ok(Contender::PodSafety), |field| field.one_of(&choices))
}

fn expected(expect: &ExpectFile) -> Result<Expect, FieldError> {
    let mut broken = BTreeSet::new();
    if let Some(field) = Field::new("expect.broken", &expect.broken).filter(|field| field.text != "none") {
        for word in field.text.split(',').map(str::trim) {
            let rule = RULES.iter().find(|(name, _)| *name == word);
            let Some((_, rule)) = rule else {
                let names: Vec<_> = RULES.iter().map(|(name, _)| *name).collect();
                return Err(field.error(&format!("is none, or some of: {}", names.join(", "))));
            };
            broken.insert(*rule);
        }
    }
    let stuck = Field::new("expect.stuck", &expect.stuck).map(|field| field.number(0, MOST_PODS)).transpose()?;
    Ok(Expect { broken, stuck })
}
