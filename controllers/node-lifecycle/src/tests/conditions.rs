//! Conditions and labels: taints that keep new pods away, our condition, the old labels.

use super::*;

/// Rows of `sentence | conditions | taints | other fields | expected decision`. Keys without a slash are of
/// `node.kubernetes.io`.
fn check(config: &Config, rows: &str) {
    for row in rows.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let [sentence, conditions, taints, more, wants] = row.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let mut fixture = Fixture::new(config.clone(), &["n", "other"]);
        fixture.change("n", |node| {
            let conditions = pairs(conditions, '=').map(|(kind, status)| condition(kind, status, 0));
            let node = with(node, "/status/conditions", conditions.collect());
            let taints = pairs(taints, ':').map(|(key, effect)| {
                let key = if key.contains('/') { key.to_owned() } else { format!("node.kubernetes.io/{key}") };
                json!({ "key": key, "effect": effect })
            });
            let node = with(node, "/spec/taints", taints.collect());
            pairs(more, '=').fold(node, |node, (pointer, value)| with(node, pointer, value.parse().unwrap()))
        });
        assert_eq!(fixture.describe("n"), wants.split_terminator(", ").collect::<Vec<_>>(), "{sentence}");
    }
}

fn pairs(text: &str, sign: char) -> impl Iterator<Item = (&str, &str)> {
    text.split_whitespace().map(move |pair| pair.split_once(sign).unwrap())
}

#[test]
fn taints_follow_conditions_and_cordons() {
    check(
        &config(),
        "
        it is well | Ready=True | | |
        its kubelet says that it is not | Ready=False | | | +not-ready:NoSchedule, +not-ready:NoExecute
        nobody knows | Ready=Unknown | | | cut off, +unreachable:NoSchedule, +unreachable:NoExecute
        memory | Ready=True MemoryPressure=True | | | +memory-pressure:NoSchedule
        disk | Ready=True DiskPressure=True | | | +disk-pressure:NoSchedule
        processes | Ready=True PIDPressure=True | | | +pid-pressure:NoSchedule
        network | Ready=True NetworkUnavailable=True | | | +network-unavailable:NoSchedule
        a pressure of which nobody knows is none | Ready=True MemoryPressure=Unknown DiskPressure=False | | |
        cordoned | Ready=True | | /spec/unschedulable=true | +unschedulable:NoSchedule
        ",
    );
}

#[test]
fn taints_are_removed_with_their_condition_and_added_once() {
    check(
        &config(),
        "
        all of it is over | Ready=True MemoryPressure=False | not-ready:NoSchedule unreachable:NoSchedule \
            memory-pressure:NoSchedule network-unavailable:NoSchedule unschedulable:NoSchedule | | \
            -not-ready:NoSchedule, -unreachable:NoSchedule, -memory-pressure:NoSchedule, \
            -network-unavailable:NoSchedule, -unschedulable:NoSchedule
        all is there | Ready=False DiskPressure=True | not-ready:NoSchedule not-ready:NoExecute disk-pressure:NoSchedule | |
        ",
    );
}

#[test]
fn taints_of_others_and_of_other_effects_are_left_alone() {
    let foreign = "example.com/a:NoSchedule example.com/b:NoExecute out-of-service:NoExecute memory-pressure:NoExecute \
        node.cloudprovider.kubernetes.io/uninitialized:NoSchedule not-ready:PreferNoSchedule";
    check(&config(), &format!("it is well | Ready=True | {foreign} | |"));
    let wants = "+not-ready:NoSchedule, +not-ready:NoExecute";
    check(&config(), &format!("it is not | Ready=False | {foreign} | | {wants}"));
}

#[test]
fn a_new_node_loses_the_admission_taint_and_gets_none_before_it_reports_conditions() {
    check(
        &config(),
        r#"
        it says nothing yet | | not-ready:NoSchedule | | -not-ready:NoSchedule
        without conditions at all | | | /status={} |
        its conditions are null | | | /status={"conditions":null} |
        it is well | Ready=True | not-ready:NoSchedule | | -not-ready:NoSchedule
        it is not well yet | Ready=False | not-ready:NoSchedule | | +not-ready:NoExecute
        it is well, and was given up | Ready=True | not-ready:NoExecute unreachable:NoExecute | | -not-ready:NoExecute, -unreachable:NoExecute
        "#,
    );
}

#[test]
fn the_beta_labels_have_the_values_of_the_new_ones() {
    for (sentence, labels, wants) in [
        ("none", "", ""),
        ("only an old one", "beta.kubernetes.io/os=linux", ""),
        ("the old one is missing", "kubernetes.io/os=linux", "beta.kubernetes.io/os=linux"),
        (
            "the old one differs",
            "kubernetes.io/arch=arm64 beta.kubernetes.io/arch=amd64",
            "beta.kubernetes.io/arch=arm64",
        ),
        ("both are equal", "kubernetes.io/os=linux beta.kubernetes.io/os=linux", ""),
        (
            "both are missing",
            "kubernetes.io/os=linux kubernetes.io/arch=amd64",
            "beta.kubernetes.io/os=linux beta.kubernetes.io/arch=amd64",
        ),
    ] {
        let mut fixture = Fixture::new(config(), &["n"]);
        for (key, value) in pairs(labels, '=') {
            fixture
                .change("n", |node| with(node, &format!("/metadata/labels/{}", key.replace('/', "~1")), json!(value)));
        }
        assert_eq!(fixture.describe("n"), wants.split_whitespace().collect::<Vec<_>>(), "{sentence}");
        fixture.act("n");
        assert!(fixture.describe("n").is_empty(), "{sentence}: it is done");
    }
}

#[test]
fn our_condition_is_set_on_unreachable_nodes_cleared_on_return_and_absent_on_others() {
    check(
        &guard(),
        "
        well | Ready=True | | |
        cut off | Ready=Unknown | | | cut off
        cut off again | Ready=Unknown pod-safety.dev/NodeUnreachable=False | | | cut off
        cut off, as it says | Ready=Unknown pod-safety.dev/NodeUnreachable=True | | |
        back | Ready=True pod-safety.dev/NodeUnreachable=True | | | back
        back, though not ready | Ready=False pod-safety.dev/NodeUnreachable=True | | | back
        back, as it says | Ready=True pod-safety.dev/NodeUnreachable=False | | |
        a word that nobody wrote | Ready=True pod-safety.dev/NodeUnreachable=Maybe | | | back
        ",
    );
    for config in [guard(), config()] {
        let mut fixture = Fixture::new(config, &["n", "other"]);
        fixture.report("n", "Unknown");
        assert!(fixture.act("n").contains(&"cut off".to_owned()));
        fixture.report("n", "True");
        assert!(fixture.act("n").contains(&"back".to_owned()));
        assert!(fixture.describe("n").is_empty());
    }
}

#[test]
fn guard_mode_leaves_everything_of_kcm_alone() {
    let rest = r#"unreachable:NoExecute not-ready:NoSchedule | /spec/unschedulable=true /metadata/labels/kubernetes.io~1os="linux""#;
    for conditions in ["Ready=False MemoryPressure=True", "Ready=True DiskPressure=True", ""] {
        check(&guard(), &format!("of KCM | {conditions} | {rest} |"));
    }
}

#[test]
fn a_suspect_taint_left_by_guard_mode_is_removed() {
    let left = "left | Ready=True | pod-safety.dev/suspect:NoSchedule | | -pod-safety.dev/suspect:NoSchedule";
    check(&config(), left);
    check(&guard(), left);
}
