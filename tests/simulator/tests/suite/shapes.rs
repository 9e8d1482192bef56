//! Every shape of request that pod-safety sends is among those that the differential suite sends to the real API
//! server.

use std::collections::BTreeSet;

use pod_safety_simulator::campaign::{Extras, Fault, Fencing, Keeper, Plan, fenced, guarded, scenarios};
use pod_safety_simulator::chance::Chance;
use pod_safety_simulator::differential::{Generator, Operation, shape, watch_targets};
use pod_safety_simulator::world::recorded;

use crate::runs;
use crate::shipped::SHIPPED;

/// What these worlds do not send; the tests of `authority` say when it is sent.
const NOT_SENT: [&str; 6] = [
    "PATCH /apis/pod-safety.dev/v1alpha1/namespaces/*/podsafetyremediations/*",
    "PATCH /apis/pod-safety.dev/v1alpha1/namespaces/*/podsafetyremediations/*/status",
    "GET /apis/apps/v1",
    "GET /apis/apps/v1/namespaces/*/statefulsets/*/scale",
    "PATCH /apis/pod-safety.dev/v1alpha1/fenceevidences/*/status",
    "DELETE /apis/pod-safety.dev/v1alpha1/nodefences/*",
];

/// The shapes of the requests that the shipped processes of this world send.
fn sent(plan: &Plan) -> BTreeSet<String> {
    let (outcome, _) = recorded(plan, SHIPPED);
    let of_line = |line: &str| {
        let mut words = line.strip_prefix("executed: replica-")?.splitn(4, ' ').skip(1);
        let (method, path, query) = (words.next()?, words.next()?, words.next()?);
        let keys: Vec<&str> = query.split("(\"").skip(1).filter_map(|pair| pair.split('"').next()).collect();
        Some(shape(method, path, Some(&keys.join("&"))))
    };
    outcome.tape.iter().filter_map(|moment| of_line(&moment.what)).collect()
}

#[test]
fn every_shape_that_our_code_sends_is_compared() {
    let mut compared = BTreeSet::new();
    for number in 1..=1_000 {
        let mut generator = Generator::new(Chance::new(1), number);
        compared.extend(generator.operations().iter().map(Operation::shape));
    }
    for (target, _) in watch_targets("s1", &[1, 2, 3, 4, 5, 6]) {
        let (path, query) = target.split_once('?').unwrap();
        let query = format!("{query}&watch=true&timeoutSeconds=1&resourceVersion=1");
        compared.insert(shape("GET", path, Some(&query)));
    }
    let with = Extras { taints: true, nodes: Keeper::Ours, fencing: Some(Fencing::STRICT), ..Extras::default() };
    let cut = vec![(40, Fault::CutNode { node: 0, seconds: 90 })];
    let whole = Plan { with, heal_at: 600, ..runs::plan(cut) };
    let plans = [scenarios(), fenced(), guarded()].into_iter().flatten().map(|scenario| scenario.plan);
    let mut sent: BTreeSet<String> = plans.chain([whole]).flat_map(|plan| sent(&plan)).collect();
    // Neither server serves this group: the real one needs a feature gate.
    sent.retain(|one| !one.contains("/apis/lifecycle.k8s.io/"));
    sent.extend(NOT_SENT.map(str::to_owned));
    let missing: Vec<_> = sent.difference(&compared).collect();
    assert!(missing.is_empty(), "never compared with the real server: {missing:#?}");
    // The writes that matter most, and the requests for budgets, whichever code sends them.
    for wanted in [
        "PATCH /api/v1/namespaces/*/pods/*/status",
        "PATCH /api/v1/nodes/*/status",
        "PATCH /api/v1/nodes/*",
        "DELETE /api/v1/namespaces/*/pods/*",
        "PATCH /apis/policy/v1/namespaces/*/poddisruptionbudgets/*/status",
        "POST /apis/pod-safety.dev/v1alpha1/nodefences",
        "PATCH /apis/pod-safety.dev/v1alpha1/nodefences/*/status",
        "POST /apis/pod-safety.dev/v1alpha1/fenceevidences",
        "PATCH /apis/pod-safety.dev/v1alpha1/namespaces/*/fencedevices/*/status",
        "PATCH /apis/pod-safety.dev/v1alpha1/fencepolicies/*/status",
    ] {
        assert!(sent.contains(wanted), "{wanted} was not sent: {sent:#?}");
    }
}
