//! The expressions of the chart's admission policies, evaluated without an API server: each must compile, and each
//! must be true in one row of the tables here and false in another. A real API server evaluates them in the suite
//! `policies` of tests/control-plane.
//!
//! | file | rows about |
//! |---|---|
//! | `others` | users, kubelets and other controllers |
//! | `nodes` | nodes, and kubelets |
//! | `requested` | evictions that are requested, also by pod-safety's own account |
//! | `own_pods`, `own_account` | what pod-safety's own account may change |
//! | `devices` | the rules in the CRD of FenceDevice |
//! | `transitions` | the rules in the CRDs of FenceEvidence and NodeFence about fields that must not change |
//! | `engine` | none: it evaluates |
//! | `fuzz` | none: it changes the requests of all rows |
#![expect(clippy::unwrap_used, clippy::panic, reason = "a row that cannot be evaluated fails the test")]

mod devices;
mod engine;
mod fuzz;
mod nodes;
mod others;
mod own_account;
mod own_pods;
mod requested;
mod transitions;

use std::collections::BTreeSet;

use engine::{Policy, Request, Verdict};
use serde_json::{Value, json};

/// pod-safety's own account in the rendered chart.
const OURS: &str = "system:serviceaccount:pod-safety:pod-safety";

/// The expected result of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    /// The policy does not apply: a match condition excludes the request, or another policy applies.
    NotAsked,
    Allowed,
    /// The message contains this text.
    Refused(&'static str),
}

/// One request that a policy is evaluated for.
struct Row {
    policy: &'static str,
    /// The subject of the row. If a bypass was found, docs/threat-model.md names the test that plays it.
    name: &'static str,
    request: Request,
    expect: Expect,
}

/// Each rendered document of a file.
fn documents(text: &str) -> Vec<Value> {
    let says = |line: &str| !line.trim().is_empty() && !line.starts_with('#') && line != "---";
    let all = text.split("\n---").filter(|one| one.lines().any(says));
    all.map(|one| serde_saphyr::from_str(one.trim_start_matches("---")).unwrap()).collect()
}

/// The schema of one of our kinds, from its CRD.
fn schema(plural: &str) -> Value {
    let all = pod_safety_shared::api::crds();
    let crd = all.iter().find(|crd| crd["spec"]["names"]["plural"] == plural).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Every policy of the chart, from the reviewed renders. `replace` has all but the one about volumes, and has no
/// leader.
fn policies() -> Vec<Policy> {
    let golden = |way: &str| {
        let path = format!("{}/../tests/control-plane/golden/chart/{way}.yaml", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    };
    let of = |way: &str, name: &str, is: bool| {
        documents(&golden(way)).into_iter().filter(|one| (one["metadata"]["name"] == name) == is).collect()
    };
    let parts: [Vec<Value>; 3] = [
        of("replace", "pod-safety-leases", false),
        of("default", "pod-safety-leases", true),
        of("everything", "keeper-volume-held", true),
    ];
    let all = parts.into_iter().flatten();
    all.filter(|one| one["kind"] == "ValidatingAdmissionPolicy").map(|one| Policy::compile(&one)).collect()
}

fn rows() -> Vec<Row> {
    [others::rows(), nodes::rows(), own_pods::rows(), own_account::rows(), requested::rows()]
        .into_iter()
        .flatten()
        .collect()
}

#[test]
fn every_expression_is_decided_both_ways_by_a_row_and_no_bypass_passes() {
    let policies = policies();
    let names: BTreeSet<&str> = policies.iter().map(|policy| policy.name.as_str()).collect();
    let expected = [
        "attachment-hold",
        "eviction",
        "eviction-requesters",
        "eviction-states",
        "evidence",
        "fence",
        "force-delete",
        "leases",
        "node",
        "own-account",
        "pause",
        "pod-report",
        "stateful-set-grace",
        "terminal-phase",
        "volume-held",
    ];
    assert_eq!(names, BTreeSet::from(expected), "a policy without rows, or rows without a policy");
    let mut wrong = Vec::new();
    for row in rows() {
        let policy = policies.iter().find(|policy| policy.name == row.policy).unwrap();
        let verdict = policy.judge(&row.request).unwrap();
        let met = match (&verdict, row.expect) {
            (Verdict::NotAsked, Expect::NotAsked) | (Verdict::Allowed, Expect::Allowed) => true,
            (Verdict::Refused(message), Expect::Refused(words)) => message.contains(words),
            _ => false,
        };
        if !met {
            wrong.push(format!("{}, {}: {verdict:?} instead of {:?}", row.policy, row.name, row.expect));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let untried: Vec<String> = policies.iter().flat_map(Policy::untried).collect();
    assert!(untried.is_empty(), "no row decides:\n{}", untried.join("\n"));
}

/// An expression without a row, one that is never false and one that is no CEL are each found.
#[test]
fn an_expression_without_a_row_is_reported() {
    let policy = json!({ "metadata": { "name": "pod-safety-x" }, "spec": {
        "matchConstraints": { "resourceRules": [{ "apiGroups": [""], "operations": ["DELETE"], "resources": ["pods"] }] },
        "validations": [{ "expression": "request.userInfo.username == 'a'", "messageExpression": "'not ' + request.userInfo.username" }],
    }});
    let compiled = Policy::compile(&policy);
    assert_eq!(compiled.untried().len(), 3, "true, false, and the message: {:?}", compiled.untried());
    let ask = |user: &str| compiled.judge(&Request::new(user, "DELETE pods").old(json!({}))).unwrap();
    assert_eq!(ask("a"), Verdict::Allowed);
    assert_eq!(compiled.untried().len(), 2);
    assert_eq!(ask("b"), Verdict::Refused("not b".to_owned()));
    assert!(compiled.untried().is_empty(), "{:?}", compiled.untried());
    assert_eq!(compiled.judge(&Request::new("b", "UPDATE pods/status")).unwrap(), Verdict::NotAsked);
    let broken = policy.to_string().replace("== 'a'", "== ");
    let broken = std::panic::catch_unwind(|| Policy::compile(&serde_json::from_str(&broken).unwrap()).name);
    assert!(broken.is_err(), "it does not compile");
}
