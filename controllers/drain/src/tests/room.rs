//! Where a pod fits: cases that mutation tests found missing.

use super::*;

/// Where the pod `a-0` with this spec fits beside a node `other` with this allocatable.
fn place(allocatable: &Value, spec: &Value) -> Place {
    let mut fixture = fixture();
    fixture.node(&node("other").set("/status/allocatable", allocatable.clone()));
    let mut object = replica("a", "a-0");
    spec.as_object().unwrap().iter().for_each(|(key, value)| object["spec"][key] = value.clone());
    fixture.pod(&object);
    fixture.plan().rows[0].place.clone().unwrap()
}

fn requests(all: &[Value]) -> Value {
    let container = |one: &Value| json!({ "name": "c", "resources": { "requests": one } });
    json!({ "containers": all.iter().map(container).collect::<Vec<_>>() })
}

fn fits(place: &Place) -> bool {
    matches!(place, Place::Node { .. })
}

#[test]
fn a_pod_fits_to_the_last_thousandth_of_cpu_and_byte_of_memory() {
    let allocatable = json!({ "cpu": "3", "memory": "4Gi", "pods": "10" });
    for (spec, why) in [
        (requests(&[json!({ "cpu": "3" })]), None),
        (requests(&[json!({ "cpu": "3001m" })]), Some("too little cpu")),
        (requests(&[json!({ "cpu": "1" }), json!({ "cpu": "2" })]), None),
        (requests(&[json!({ "cpu": "2" }), json!({ "cpu": "2" })]), Some("too little cpu")),
        (requests(&[json!({ "memory": "4Gi" })]), None),
        (requests(&[json!({ "memory": "4294967297" })]), Some("too little memory")),
        (requests(&[json!({ "memory": "2Gi" }), json!({ "memory": "2Gi" })]), None),
        (requests(&[json!({ "memory": "2Gi" }), json!({ "memory": "3Gi" })]), Some("too little memory")),
    ] {
        let expected = match why {
            None => Place::Node { name: "other".to_owned(), unchecked: false },
            Some(why) => Place::Nowhere(format!("0 of 1 other nodes: 1 {why}")),
        };
        assert_eq!(place(&allocatable, &spec), expected, "{spec}");
    }
}

/// Each was planned to go to the other node, which is cordoned too.
#[test]
fn bug_pods_of_nodes_that_are_drained_together_were_placed_on_each_other() {
    let mut fixture = fixture();
    let allocatable = json!({ "cpu": "1", "memory": "4Gi", "pods": "10" });
    for name in ["m", "other"] {
        fixture.node(&node(name).set("/status/allocatable", allocatable.clone()));
    }
    for (name, on) in [("a-0", "n"), ("a-1", "m")] {
        let containers = requests(&[json!({ "cpu": "1" })])["containers"].clone();
        fixture.pod(&replica("a", name).set("/spec/containers", containers).set("/spec/nodeName", json!(on)));
    }
    let places = |nodes: &[&str]| -> Vec<Option<Place>> {
        let plans = fixture.plans(nodes, &Consent::default());
        plans.iter().map(|plan| plan.rows[0].place.clone()).collect()
    };
    let other = Some(Place::Node { name: "other".to_owned(), unchecked: false });
    // There is room for one of them.
    let nowhere = Some(Place::Nowhere("0 of 1 other nodes: 1 too little cpu".to_owned()));
    assert_eq!(places(&["n", "m"]), [other.clone(), nowhere]);
    assert_eq!(places(&["n"]), [other]);
}

#[test]
fn running_and_placed_pods_reduce_the_free_resources() {
    for (running, requested, expected) in [
        ([json!({ "cpu": "1" })].as_slice(), json!({ "cpu": "2" }), true),
        (&[json!({ "cpu": "2" })], json!({ "cpu": "2" }), false),
        (&[json!({ "memory": "1Gi" })], json!({ "memory": "3Gi" }), true),
        (&[json!({ "memory": "2Gi" })], json!({ "memory": "3Gi" }), false),
        (&[json!({}), json!({})], json!({}), true),
        (&[json!({}), json!({}), json!({})], json!({}), false),
    ] {
        let mut fixture = fixture();
        let allocatable = json!({ "cpu": "3", "memory": "4Gi", "pods": "3" });
        fixture.node(&node("other").set("/status/allocatable", allocatable));
        let pod_with = |name: &str, requested: &Value| {
            replica("a", name).set("/spec/containers", requests(std::slice::from_ref(requested))["containers"].clone())
        };
        for (number, one) in running.iter().enumerate() {
            fixture.pod(&pod_with(&format!("b-{number}"), one).on("other"));
        }
        let done = pod_with("done", &json!({ "cpu": "3" })).on("other");
        fixture.pod(&done.set("/status", json!({ "phase": "Succeeded" })));
        fixture.pod(&pod_with("a-0", &requested));
        let place = fixture.plan().rows[0].place.clone().unwrap();
        assert_eq!(fits(&place), expected, "{requested} beside {running:?}: {place:?}");
    }
}

#[test]
fn a_node_takes_its_allocatable_pods_and_110_without_them() {
    for (pods, taken) in [(Some("1"), 1), (Some("2"), 2), (None, 110)] {
        let mut fixture = fixture();
        let mut allocatable = json!({ "cpu": "300", "memory": "400Gi" });
        if let Some(pods) = pods {
            allocatable["pods"] = json!(pods);
        }
        fixture.node(&node("other").set("/status/allocatable", allocatable));
        (0..120).for_each(|number| fixture.replica("a", &format!("a-{number:03}")));
        let rows = fixture.plan().rows;
        let placed = rows.iter().filter(|row| fits(row.place.as_ref().unwrap())).count();
        assert_eq!(placed, taken, "{pods:?}");
    }
}

/// `Toleration.ToleratesTaint`.
#[test]
fn a_toleration_matches_a_taint_by_effect_key_and_value() {
    for (toleration, tolerates) in [
        (json!({ "key": "gpu", "operator": "Exists" }), true),
        (json!({ "key": "gpu", "operator": "Equal", "value": "big" }), true),
        (json!({ "key": "gpu", "value": "big" }), true),
        (json!({ "key": "gpu", "operator": "", "value": "big" }), true),
        (json!({ "key": "gpu", "operator": "Equal", "value": "small" }), false),
        (json!({ "key": "gpu" }), false),
        (json!({ "key": "cpu", "operator": "Exists" }), false),
        (json!({ "operator": "Exists" }), true),
        (json!({ "operator": "Equal", "value": "big" }), false),
        (json!({ "key": "gpu", "operator": "Exists", "effect": "NoSchedule" }), true),
        (json!({ "key": "gpu", "operator": "Exists", "effect": "NoExecute" }), false),
        (json!({ "key": "gpu", "operator": "Gt", "value": "big" }), false),
    ] {
        let mut fixture = fixture();
        let taint = json!([{ "key": "gpu", "value": "big", "effect": "NoSchedule" }]);
        fixture.node(&node("other").set("/spec/taints", taint));
        fixture.pod(&replica("a", "a-0").set("/spec/tolerations", json!([toleration])));
        let place = fixture.plan().rows[0].place.clone().unwrap();
        assert_eq!(fits(&place), tolerates, "{toleration}: {place:?}");
    }
}

#[test]
fn unchecked_rules_and_claims_are_reported() {
    let allocatable = json!({ "cpu": "3", "memory": "4Gi", "pods": "10" });
    for (spec, unchecked) in [
        (json!({}), false),
        (json!({ "affinity": {} }), true),
        (json!({ "topologySpreadConstraints": [{ "maxSkew": 1 }] }), true),
        (json!({ "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }] }), true),
        (requests(&[json!({ "cpu": "much" })]), true),
    ] {
        assert_eq!(place(&allocatable, &spec), Place::Node { name: "other".to_owned(), unchecked }, "{spec}");
    }
}

#[test]
fn without_another_node_the_plan_reports_it() {
    let mut fixture = fixture();
    fixture.replica("a", "a-0");
    let place = fixture.plan().rows[0].place.clone().unwrap();
    assert_eq!(place, Place::Nowhere("there is no other node".to_owned()));
}

#[test]
fn only_sidecars_are_added_to_the_requests_of_containers() {
    let allocatable = json!({ "cpu": "3", "memory": "4Gi", "pods": "10" });
    let resources = |cpu: &str| json!({ "requests": { "cpu": cpu } });
    for (policy, inits, main, expected) in [
        (None, ["2", "2"], "3", true),
        (Some("Always"), ["1", "1"], "1", true),
        (Some("Always"), ["1", "1"], "2", false),
        (None, ["4", "1"], "1", false),
    ] {
        let init = |cpu: &&str| json!({ "name": "i", "restartPolicy": policy, "resources": resources(cpu) });
        let spec = json!({
            "containers": [{ "name": "main", "resources": resources(main) }],
            "initContainers": inits.iter().map(init).collect::<Vec<_>>(),
        });
        assert_eq!(fits(&place(&allocatable, &spec)), expected, "{spec}");
    }
}

/// The requests of a pod as a whole replace those of its containers, each resource for itself.
#[test]
fn bug_the_requests_of_a_whole_pod_were_not_counted() {
    let allocatable = json!({ "cpu": "8", "memory": "4Gi", "pods": "10" });
    for (of_pod, of_container, overhead, expected) in [
        (json!({ "cpu": "9" }), json!({}), "0", false),
        (json!({ "cpu": "8" }), json!({ "cpu": "1" }), "0", true),
        (json!({ "cpu": "8" }), json!({ "cpu": "1" }), "1m", false),
        (json!({ "cpu": "1" }), json!({ "cpu": "1", "memory": "5Gi" }), "0", false),
    ] {
        let mut spec = requests(&[of_container]);
        spec["resources"] = json!({ "requests": of_pod });
        spec["overhead"] = json!({ "cpu": overhead });
        assert_eq!(fits(&place(&allocatable, &spec)), expected, "{spec}");
    }
}
