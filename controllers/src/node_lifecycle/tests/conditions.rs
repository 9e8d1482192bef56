//! What becomes of conditions and labels: taints that keep new pods away, our condition, the old labels.

use super::*;

/// A sentence, the node's conditions, what else is set by JSON pointers, and what is wanted.
type Case<'a> = (&'a str, Vec<Value>, Vec<(&'a str, Value)>, &'a [&'a str]);

fn says(kind: &str, status: &str) -> Value {
    condition(kind, status, 0)
}

fn check(config: &Config, cases: Vec<Case<'_>>) {
    for (sentence, conditions, set, wants) in cases {
        let mut stage = Stage::new(config.clone(), &["n", "other"]);
        stage.change("n", |node| {
            let node = with(node, "/status/conditions", json!(conditions));
            set.iter().fold(node, |node, (pointer, value)| with(node, pointer, value.clone()))
        });
        assert_eq!(stage.words("n"), wants, "{sentence}");
    }
}

fn taints(all: &[(&str, &str)]) -> (&'static str, Value) {
    let taint = |(key, effect): &(&str, &str)| json!({ "key": key, "effect": effect });
    ("/spec/taints", all.iter().map(taint).collect())
}

const NS: &str = "NoSchedule";

#[test]
fn nl_1_taints_follow_conditions_and_cordons() {
    let ready = || says("Ready", "True");
    check(
        &config(),
        vec![
            ("it is well", vec![ready()], vec![], &[]),
            (
                "its kubelet says that it is not",
                vec![says("Ready", "False")],
                vec![],
                &["+not-ready:NoSchedule", "+not-ready:NoExecute"],
            ),
            (
                "nobody knows",
                vec![says("Ready", "Unknown")],
                vec![],
                &["cut off", "+unreachable:NoSchedule", "+unreachable:NoExecute"],
            ),
            (
                "memory",
                vec![ready(), says("MemoryPressure", "True")],
                vec![],
                &["+memory-pressure:NoSchedule"],
            ),
            ("disk", vec![ready(), says("DiskPressure", "True")], vec![], &["+disk-pressure:NoSchedule"]),
            ("processes", vec![ready(), says("PIDPressure", "True")], vec![], &["+pid-pressure:NoSchedule"]),
            (
                "network",
                vec![ready(), says("NetworkUnavailable", "True")],
                vec![],
                &["+network-unavailable:NoSchedule"],
            ),
            (
                "a pressure of which nobody knows is none",
                vec![ready(), says("MemoryPressure", "Unknown"), says("DiskPressure", "False")],
                vec![],
                &[],
            ),
            (
                "cordoned",
                vec![ready()],
                vec![("/spec/unschedulable", json!(true))],
                &["+unschedulable:NoSchedule"],
            ),
        ],
    );
}

#[test]
fn nl_1_taints_go_with_what_they_say_and_are_added_once() {
    let ready = || says("Ready", "True");
    check(
        &config(),
        vec![
            (
                "all of it is over",
                vec![ready(), says("MemoryPressure", "False")],
                vec![taints(&[
                    ("node.kubernetes.io/not-ready", NS),
                    ("node.kubernetes.io/unreachable", NS),
                    ("node.kubernetes.io/memory-pressure", NS),
                    ("node.kubernetes.io/network-unavailable", NS),
                    ("node.kubernetes.io/unschedulable", NS),
                ])],
                &[
                    "-not-ready:NoSchedule",
                    "-unreachable:NoSchedule",
                    "-memory-pressure:NoSchedule",
                    "-network-unavailable:NoSchedule",
                    "-unschedulable:NoSchedule",
                ],
            ),
            (
                "all is there",
                vec![says("Ready", "False"), says("DiskPressure", "True")],
                vec![taints(&[
                    ("node.kubernetes.io/not-ready", NS),
                    ("node.kubernetes.io/not-ready", "NoExecute"),
                    ("node.kubernetes.io/disk-pressure", NS),
                ])],
                &[],
            ),
        ],
    );
}

#[test]
fn nl_1_taints_of_others_and_of_other_effects_are_left_alone() {
    let foreign = || {
        taints(&[
            ("example.com/a", NS),
            ("example.com/b", "NoExecute"),
            ("node.kubernetes.io/out-of-service", "NoExecute"),
            ("node.cloudprovider.kubernetes.io/uninitialized", NS),
            ("node.kubernetes.io/memory-pressure", "NoExecute"),
            ("node.kubernetes.io/not-ready", "PreferNoSchedule"),
        ])
    };
    check(
        &config(),
        vec![
            ("it is well", vec![says("Ready", "True")], vec![foreign()], &[]),
            (
                "it is not",
                vec![says("Ready", "False")],
                vec![foreign()],
                &["+not-ready:NoSchedule", "+not-ready:NoExecute"],
            ),
        ],
    );
}

#[test]
fn nl_1_a_new_node_loses_the_taint_that_admission_gave_it_and_gets_none_before_it_says_how_it_is() {
    let given = || taints(&[("node.kubernetes.io/not-ready", NS)]);
    check(
        &config(),
        vec![
            ("it says nothing yet", vec![], vec![given()], &["-not-ready:NoSchedule"]),
            ("without conditions at all", vec![], vec![("/status", json!({}))], &[]),
            ("its conditions are null", vec![], vec![("/status", json!({ "conditions": null }))], &[]),
            ("it is well", vec![says("Ready", "True")], vec![given()], &["-not-ready:NoSchedule"]),
            ("it is not well yet", vec![says("Ready", "False")], vec![given()], &["+not-ready:NoExecute"]),
            (
                "it is well, and was given up",
                vec![says("Ready", "True")],
                vec![taints(&[
                    ("node.kubernetes.io/not-ready", "NoExecute"),
                    ("node.kubernetes.io/unreachable", "NoExecute"),
                ])],
                &["-not-ready:NoExecute", "-unreachable:NoExecute"],
            ),
        ],
    );
}

#[test]
fn nl_1_the_old_labels_have_the_values_of_the_new_ones() {
    let label =
        |key: &str, value: &str| (format!("/metadata/labels/{}", key.replace('/', "~1")), json!(value));
    for (sentence, labels, wants) in [
        ("none", vec![], vec![]),
        ("only an old one", vec![("beta.kubernetes.io/os", "linux")], vec![]),
        ("the old one is missing", vec![("kubernetes.io/os", "linux")], vec!["beta.kubernetes.io/os=linux"]),
        (
            "the old one says something else",
            vec![("kubernetes.io/arch", "arm64"), ("beta.kubernetes.io/arch", "amd64")],
            vec!["beta.kubernetes.io/arch=arm64"],
        ),
        (
            "both say the same",
            vec![("kubernetes.io/os", "linux"), ("beta.kubernetes.io/os", "linux")],
            vec![],
        ),
        (
            "both are missing",
            vec![("kubernetes.io/os", "linux"), ("kubernetes.io/arch", "amd64")],
            vec!["beta.kubernetes.io/os=linux", "beta.kubernetes.io/arch=amd64"],
        ),
    ] {
        let mut stage = Stage::new(config(), &["n"]);
        for (key, value) in labels {
            let (pointer, value) = label(key, value);
            stage.change("n", |node| with(node, &pointer, value));
        }
        assert_eq!(stage.words("n"), wants, "{sentence}");
        stage.act("n");
        assert!(stage.words("n").is_empty(), "{sentence}: it is done");
    }
}

#[test]
fn our_condition_says_who_is_cut_off_and_who_is_back_and_nothing_of_those_that_never_were() {
    let ours = |status: &str| says("pod-safety.dev/NodeUnreachable", status);
    let case = |ready: &str, status: Option<&str>| -> Vec<Value> {
        [says("Ready", ready)].into_iter().chain(status.map(ours)).collect()
    };
    let cases: [(&str, &str, Option<&str>, &[&str]); 8] = [
        ("well", "True", None, &[]),
        ("cut off", "Unknown", None, &["cut off"]),
        ("cut off again", "Unknown", Some("False"), &["cut off"]),
        ("cut off, as it says", "Unknown", Some("True"), &[]),
        ("back", "True", Some("True"), &["back"]),
        ("back, though not ready", "False", Some("True"), &["back"]),
        ("back, as it says", "True", Some("False"), &[]),
        ("a word that nobody wrote", "True", Some("Maybe"), &["back"]),
    ];
    let cases = cases.map(|(sentence, ready, status, wants)| (sentence, case(ready, status), vec![], wants));
    check(&guard(), cases.to_vec());
    for config in [guard(), config()] {
        let mut stage = Stage::new(config, &["n", "other"]);
        stage.report("n", "Unknown");
        assert!(stage.act("n").contains(&"cut off".to_owned()));
        stage.report("n", "True");
        assert!(stage.act("n").contains(&"back".to_owned()));
        assert!(stage.words("n").is_empty());
    }
}

#[test]
fn guard_keeps_away_from_all_that_is_kcms() {
    let theirs = [
        vec![says("Ready", "False"), says("MemoryPressure", "True")],
        vec![says("Ready", "True"), says("DiskPressure", "True")],
        vec![],
    ];
    let cordoned = || ("/spec/unschedulable", json!(true));
    let left =
        || taints(&[("node.kubernetes.io/unreachable", "NoExecute"), ("node.kubernetes.io/not-ready", NS)]);
    let label = || ("/metadata/labels/kubernetes.io~1os", json!("linux"));
    check(
        &guard(),
        theirs
            .into_iter()
            .map(|all| ("of KCM", all, vec![cordoned(), left(), label()], &[] as &[&str]))
            .collect(),
    );
}

#[test]
fn a_suspicion_that_guard_left_behind_is_taken_away() {
    let left = || taints(&[("pod-safety.dev/suspect", NS)]);
    let of = || {
        vec![(
            "left",
            vec![says("Ready", "True")],
            vec![left()],
            &["-pod-safety.dev/suspect:NoSchedule"] as &[&str],
        )]
    };
    check(&config(), of());
    check(&guard(), of());
}
