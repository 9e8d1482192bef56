//! Where a pod fits: rows that mutants showed to be missing.

use super::*;

/// Where the pod `a-0` with this spec goes beside a node `other` that offers this much.
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
    let offers = json!({ "cpu": "3", "memory": "4Gi", "pods": "10" });
    for (asks, why) in [
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
        assert_eq!(place(&offers, &asks), expected, "{asks}");
    }
}

/// Each was said to go to the other node, which is cordoned too.
#[test]
fn bug_pods_of_nodes_that_are_drained_together_were_to_go_to_each_other() {
    let mut fixture = fixture();
    let offers = json!({ "cpu": "1", "memory": "4Gi", "pods": "10" });
    for name in ["m", "other"] {
        fixture.node(&node(name).set("/status/allocatable", offers.clone()));
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
fn what_runs_there_and_what_goes_there_takes_its_room() {
    for (runs, asks, expected) in [
        ([json!({ "cpu": "1" })].as_slice(), json!({ "cpu": "2" }), true),
        (&[json!({ "cpu": "2" })], json!({ "cpu": "2" }), false),
        (&[json!({ "memory": "1Gi" })], json!({ "memory": "3Gi" }), true),
        (&[json!({ "memory": "2Gi" })], json!({ "memory": "3Gi" }), false),
        (&[json!({}), json!({})], json!({}), true),
        (&[json!({}), json!({}), json!({})], json!({}), false),
    ] {
        let mut fixture = fixture();
        let offers = json!({ "cpu": "3", "memory": "4Gi", "pods": "3" });
        fixture.node(&node("other").set("/status/allocatable", offers));
        let made = |name: &str, asks: &Value| {
            replica("a", name)
                .set("/spec/containers", requests(std::slice::from_ref(asks))["containers"].clone())
        };
        for (number, one) in runs.iter().enumerate() {
            fixture.pod(&made(&format!("b-{number}"), one).on("other"));
        }
        let done = made("done", &json!({ "cpu": "3" })).on("other");
        fixture.pod(&done.set("/status", json!({ "phase": "Succeeded" })));
        fixture.pod(&made("a-0", &asks));
        let place = fixture.plan().rows[0].place.clone().unwrap();
        assert_eq!(fits(&place), expected, "{asks} beside {runs:?}: {place:?}");
    }
}

#[test]
fn a_node_takes_as_many_pods_as_it_says_and_110_if_it_does_not() {
    for (says, taken) in [(Some("1"), 1), (Some("2"), 2), (None, 110)] {
        let mut fixture = fixture();
        let mut offers = json!({ "cpu": "300", "memory": "400Gi" });
        if let Some(says) = says {
            offers["pods"] = json!(says);
        }
        fixture.node(&node("other").set("/status/allocatable", offers));
        (0..120).for_each(|number| fixture.replica("a", &format!("a-{number:03}")));
        let rows = fixture.plan().rows;
        let there = rows.iter().filter(|row| fits(row.place.as_ref().unwrap())).count();
        assert_eq!(there, taken, "{says:?}");
    }
}

/// `Toleration.ToleratesTaint`.
#[test]
fn a_toleration_bears_a_taint_of_its_effect_key_and_value() {
    for (toleration, bears) in [
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
        assert_eq!(fits(&place), bears, "{toleration}: {place:?}");
    }
}

#[test]
fn rules_and_claims_that_are_not_looked_at_are_said() {
    let offers = json!({ "cpu": "3", "memory": "4Gi", "pods": "10" });
    for (spec, unseen) in [
        (json!({}), false),
        (json!({ "affinity": {} }), true),
        (json!({ "topologySpreadConstraints": [{ "maxSkew": 1 }] }), true),
        (json!({ "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }] }), true),
        (requests(&[json!({ "cpu": "much" })]), true),
    ] {
        assert_eq!(
            place(&offers, &spec),
            Place::Node { name: "other".to_owned(), unchecked: unseen },
            "{spec}"
        );
    }
}

#[test]
fn without_another_node_that_is_said() {
    let mut fixture = fixture();
    fixture.replica("a", "a-0");
    let place = fixture.plan().rows[0].place.clone().unwrap();
    assert_eq!(place, Place::Nowhere("there is no other node".to_owned()));
}

#[test]
fn an_init_container_is_none_that_stays_beside_the_others() {
    let offers = json!({ "cpu": "3", "memory": "4Gi", "pods": "10" });
    let asks = |cpu: &str| json!({ "requests": { "cpu": cpu } });
    for (policy, inits, main, there) in [
        (None, ["2", "2"], "3", true),
        (Some("Always"), ["1", "1"], "1", true),
        (Some("Always"), ["1", "1"], "2", false),
        (None, ["4", "1"], "1", false),
    ] {
        let init = |cpu: &&str| json!({ "name": "i", "restartPolicy": policy, "resources": asks(cpu) });
        let spec = json!({
            "containers": [{ "name": "main", "resources": asks(main) }],
            "initContainers": inits.iter().map(init).collect::<Vec<_>>(),
        });
        assert_eq!(fits(&place(&offers, &spec)), there, "{spec}");
    }
}
