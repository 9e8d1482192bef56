//! The spans of an incident: names, parents, times; and texts that other clients write into records.

use std::collections::BTreeSet;

use pod_safety_otlp::{MAX_TEXT_LENGTH, Value as AttributeValue};

use super::super::spans::MAX_RELEASES;
use super::*;

/// Each span as `parent/name from to`, in milliseconds.
fn lines(spans: &[Span]) -> Vec<String> {
    let name = |id| spans.iter().find(|span| span.id == id).map_or("?", |span| span.name);
    let since = |at: Timestamp| at.as_millisecond() - START_SECONDS * 1_000;
    let line = |span: &Span| {
        let parent = span.parent.map_or("-", name);
        format!("{parent}/{} {} {}", span.name, since(span.start), since(span.end))
    };
    spans.iter().map(line).collect()
}

#[test]
fn an_incident_has_spans_from_the_last_report_to_the_return_of_the_node() {
    let world = lost();
    let during = spans_of(&world, &[release()], &[successor()]);
    assert_eq!(
        lines(&during),
        [
            "?/detect 10000 60000",
            "?/gates 70000 75000",
            "?/order off 75000 82250",
            "order off/status checks 77000 82250",
            "?/evidence 82250 83000",
            "?/force delete 83000 84500",
            "?/taint 83000 86000",
            "force delete/successor ready 85000 99000",
        ],
        "the incident is not over: its own span is not there"
    );
    back(&world);
    let after = spans_of(&world, &[release()], &[successor()]);
    assert_eq!(
        lines(&after),
        [
            "incident/gates 70000 75000",
            "incident/order off 75000 82250",
            "order off/status checks 77000 82250",
            "incident/evidence 82250 83000",
            "incident/force delete 83000 84500",
            "force delete/successor ready 85000 99000",
            "incident/order on 110000 117250",
            "order on/status checks 112000 117250",
            "-/incident 10000 205000",
        ],
        "the Node does not show its former incarnation any more"
    );
    for span in &during {
        assert_eq!(span.trace, after[0].trace);
        let again = after.iter().find(|other| other.id == span.id);
        assert!(again.is_none_or(|again| again == span), "{span:#?} became {again:#?}");
    }
    let ids: BTreeSet<_> = during.iter().chain(&after).map(|span| span.id).collect();
    assert_eq!(ids.len(), during.len() + 3, "each span has an id of its own");
}

/// Its kubelet renews the Lease before it registers the new boot ID.
#[test]
fn bug_a_node_that_boots_again_moved_the_start_of_its_incident() {
    let world = lost();
    let before = spans_of(&world, &[], &[]);
    world.put(Kind::NodeLeases, objects::lease("n", 140), at(140));
    world.put(Kind::Nodes, node(BOOT, "Unknown", 141), at(141));
    let detect = |spans: &[Span]| lines(spans)[0].clone();
    assert_eq!(detect(&before), "?/detect 10000 60000");
    assert_eq!(
        detect(&spans_of(&world, &[], &[])),
        "?/detect 10000 70000",
        "it was lost when its NodeFence was created"
    );
}

/// `Recovered` has a timestamp in whole seconds, an order in milliseconds.
#[test]
fn the_span_of_an_incident_contains_its_last_order() {
    let world = lost();
    back(&world);
    let done = json!([{ "type": "Recovered", "status": "True", "reason": "NodeReturned", "message": "",
        "lastTransitionTime": timestamp(117) }]);
    let attempts = [attempt(1, "off", 75_000, "Off"), attempt(2, "on", 110_000, "On")];
    world.put(Kind::NodeFences, fence("Done", &attempts, &done), at(205));
    let rendered = lines(&spans_of(&world, &[], &[]));
    assert_eq!(rendered.last().unwrap(), "-/incident 10000 117250", "{rendered:?}");
}

#[test]
fn spans_have_the_attributes_of_opentelemetrys_conventions() {
    let world = lost();
    back(&world);
    let spans = spans_of(&world, &[release()], &[successor()]);
    let attribute = |name: &str, key: &str| {
        let span = spans.iter().find(|span| span.name == name).unwrap();
        span.attributes.iter().find(|one| one.key == key).map(|one| match &one.value {
            AttributeValue::Text(text) => text.clone(),
            AttributeValue::Texts(texts) => texts.join(" "),
            AttributeValue::Number(number) => number.to_string(),
        })
    };
    for (name, key, value) in [
        ("incident", "k8s.node.name", "n"),
        ("incident", "k8s.node.uid", "uid-n"),
        ("incident", "pod_safety.phase", "Done"),
        ("gates", "pod_safety.gates", "LargeOutage"),
        ("order off", "pod_safety.devices", "rack/bmc"),
        ("order on", "pod_safety.attempt", "2"),
        ("status checks", "pod_safety.power", "Off"),
        ("evidence", "pod_safety.evidence.kind", "PowerOff"),
        ("force delete", "k8s.namespace.name", "shop"),
        ("force delete", "k8s.pod.name", "db-0"),
        ("force delete", "k8s.pod.uid", "uid-of-the-first"),
        ("successor ready", "k8s.pod.uid", "uid-of-the-second"),
        ("successor ready", "k8s.node.name", "m"),
    ] {
        assert_eq!(attribute(name, key).as_deref(), Some(value), "{name}: {key}");
    }
    let checks = spans.iter().find(|span| span.name == "status checks").unwrap();
    assert_eq!(checks.events.iter().map(|one| one.at).collect::<Vec<_>>(), [moment(77_000), moment(82_250)]);
    assert!(spans.iter().all(|span| span.error.is_none()));
}

#[test]
fn an_order_without_effect_is_an_error_and_an_unchecked_one_has_no_span() {
    let world = lost();
    let mut open = attempt(2, "off", 95_000, "Off");
    open["verified"] = Value::Null;
    let attempts = [attempt(1, "off", 75_000, "Unknown"), open];
    world.put(Kind::NodeFences, fence("Fencing", &attempts, &json!([])), at(96));
    let spans = spans_of(&world, &[], &[]);
    let orders: Vec<_> = spans.iter().filter(|span| span.name == "order off").collect();
    assert_eq!(orders.len(), 1);
    assert_eq!(orders[0].error.as_deref(), Some("bmc does not answer"));
}

#[test]
fn a_confirmation_without_a_policy_makes_an_incident() {
    let world = World::listed();
    world.put(Kind::NodeLeases, objects::lease("n", 10), at(10));
    world.put(Kind::Nodes, node(BOOT, "Unknown", 60), at(60));
    let confirmation = proof("w", "Asserted", 300).set("/spec/reason", json!("I pulled its plug"));
    world.put(Kind::FenceEvidences, confirmation, at(300));
    let released = Release { at: moment(301_000), ..release() };
    let spans = spans_of(&world, std::slice::from_ref(&released), &[]);
    assert_eq!(lines(&spans), ["?/detect 10000 60000", "?/evidence 300000 300000", "?/force delete 300000 301000"]);
    world.put(Kind::Nodes, node(NEXT_BOOT, "True", 900), at(900));
    let spans = spans_of(&world, &[released], &[]);
    assert_eq!(lines(&spans).last().map(String::as_str), Some("-/incident 10000 900000"));
}

/// A pod that was released before an incident does not belong to it, and a dry run is no loss.
#[test]
fn releases_before_an_incident_and_dry_runs_have_no_span() {
    let world = lost();
    let elsewhere = [Release { at: moment(10_000), ..release() }, Release { node: "m".into(), ..release() }];
    let spans = spans_of(&world, &elsewhere, &[successor()]);
    assert!(!spans.iter().any(|span| ["force delete", "successor ready"].contains(&span.name)), "{spans:#?}");
    back(&world);
    let spans = spans_of(&world, &[Release { at: moment(206_000), ..release() }], &[]);
    assert!(!spans.iter().any(|span| span.name == "force delete"), "a second after its end: {spans:#?}");
    let world = World::listed();
    let dry_run = fence("Pending", &[], &json!([])).set("/spec/dryRun", json!(true));
    world.put(Kind::NodeFences, dry_run, at(70));
    assert!(Incident::collect(&world.read().view(), &[], &[]).is_empty());
}

/// The first attempts were dropped from the status; the taint is another client's; storage was fenced before.
#[test]
fn the_first_order_our_own_taint_and_evidence_of_an_ended_incarnation_delimit_spans() {
    let world = lost();
    let taint = json!([{ "key": "node.kubernetes.io/out-of-service", "value": "theirs", "effect": "NoExecute",
        "timeAdded": timestamp(86) }]);
    world.put(Kind::Nodes, node(BOOT, "Unknown", 60).set("/spec/taints", taint), at(90));
    world.put(Kind::NodeFences, fence("Fenced", &[attempt(2, "off", 75_000, "Off")], &json!([])), at(90));
    world.put(Kind::FenceEvidences, proof("a", "StorageFenced", 71), at(90));
    let spans = lines(&spans_of(&world, &[release()], &[]));
    assert!(!spans.iter().any(|line| line.contains("/gates ") || line.contains("/taint ")), "{spans:?}");
    assert!(spans.contains(&"?/force delete 83000 84500".to_owned()), "{spans:?}");
}

/// Devices, kubelets and operators write texts; a forged status may have any number of attempts.
#[test]
fn attack_texts_of_other_clients_do_not_enlarge_spans_or_traces() {
    let world = lost();
    let hostile = format!("\u{1b}[2J\u{202e}\n{}", "x".repeat(2_000));
    let mut shout = attempt(1, "off", 75_000, "Unknown");
    shout["outcome"] = json!(hostile);
    shout["by"] = json!(hostile);
    shout["verified"]["message"] = json!(hostile);
    shout["verified"]["samples"] = vec![sample(77_000, &hostile); 100].into();
    shout["devices"] = vec![json!({ "namespace": hostile, "name": hostile }); 100].into();
    let attempts: Vec<Value> = (1..=40)
        .map(|id| {
            let mut one = shout.clone();
            one["id"] = json!(id);
            one
        })
        .collect();
    let mut forged = fence("Done", &attempts, &json!([])).set("/spec/trigger/reason", json!(hostile));
    forged["status"]["gates"] = vec![json!({ "name": hostile }); 100].into();
    forged["status"]["message"] = json!(hostile);
    world.put(Kind::NodeFences, forged, at(96));
    for number in 0..50 {
        let confirmation = proof(&format!("w{number}"), "Asserted", 300).set("/spec/reason", json!(hostile));
        world.put(Kind::FenceEvidences, confirmation.set("/spec/by", json!(hostile)), at(300));
    }
    let many = |number: u32| {
        let pod = PodKey {
            uid: uid(&format!("uid-{number}")),
            namespace: hostile.as_str().into(),
            name: hostile.as_str().into(),
        };
        Release { pod, message: hostile.clone(), ..release() }
    };
    let releases: Vec<Release> = (0..1_000).map(many).collect();
    let spans = spans_of(&world, &releases, &[]);
    assert!(spans.len() < 20 * 2 + 16 + MAX_RELEASES + 5, "{} spans", spans.len());
    let fits = |text: &str| text.len() <= MAX_TEXT_LENGTH && !text.contains(['\n', '\u{1b}', '\u{202e}']);
    for span in &spans {
        assert!(span.attributes.len() < 12 && span.events.len() <= 32 && span.error.as_deref().is_none_or(fits));
        for attribute in span.attributes.iter().chain(span.events.iter().flat_map(|one| &one.attributes)) {
            let fits = match &attribute.value {
                AttributeValue::Text(text) => fits(text),
                AttributeValue::Texts(texts) => texts.len() <= 32 && texts.iter().all(|text| fits(text)),
                AttributeValue::Number(_) => true,
            };
            assert!(fits, "{attribute:?}");
        }
    }
}

#[test]
fn a_release_is_parsed_from_its_event() {
    let event = json!({
        "reason": "ForceDeleted", "message": "node n was switched off", "eventTime": "2026-01-01T00:01:24.500000Z",
        "involvedObject": { "kind": "Pod", "namespace": "shop", "name": "db-0", "uid": "uid-of-the-first" },
        "related": { "apiVersion": "v1", "kind": "Node", "name": "n" },
    });
    assert_eq!(Release::from_event(&event), Some(release()));
    for without in ["/related", "/eventTime", "/involvedObject/uid", "/reason"] {
        let mut other = event.clone();
        *other.pointer_mut(without).unwrap() = Value::Null;
        assert_eq!(Release::from_event(&other), None, "{without}");
    }
}

#[test]
fn a_successor_is_another_pod_that_is_ready() {
    let pod = |uid: &str, ready: &str| {
        json!({ "metadata": { "uid": uid, "creationTimestamp": timestamp(85) }, "spec": { "nodeName": "m" },
            "status": { "conditions": [{ "type": "Ready", "status": ready, "lastTransitionTime": timestamp(99) }] } })
    };
    assert_eq!(Successor::from_pod(&pod_key(), &pod("uid-of-the-second", "True")), Some(successor()));
    assert_eq!(Successor::from_pod(&pod_key(), &pod("uid-of-the-second", "False")), None);
    assert_eq!(Successor::from_pod(&pod_key(), &pod("uid-of-the-first", "True")), None);
}
