//! The history: the steps, and the resulting states of kube-controller-manager.

use super::nodes::Act;
use crate::beside_kcm::Step;

/// The status after its kubelet stopped reporting.
const UNREACHABLE: &str = "Unknown NodeStatusUnknown Kubelet stopped posting node status.";
/// The status without any kubelet report.
const NEVER: &str = "Unknown NodeStatusNeverUpdated Kubelet never posted node status.";
const READY: &str = "True KubeletReady says a hollow kubelet";
const NOT_READY: &str = "False KubeletNotReady says a hollow kubelet";
const LOST: &str = "unreachable:NoExecute unreachable:NoSchedule";
const UNREADY: &str = "not-ready:NoExecute not-ready:NoSchedule";

/// Nodes by zone. `a` is large enough to stay healthy when three or four of its nodes are lost.
const ZONES: [(&str, &[&str]); 3] = [
    ("a", &["a-1", "a-2", "a-3", "a-4", "a-5", "a-6", "a-7"]),
    ("b", &["b-1", "b-2"]),
    ("c", &["c-1", "c-2", "c-3", "c-4"]),
];

fn all_nodes() -> impl Iterator<Item = &'static str> {
    ZONES.into_iter().flat_map(|(_, nodes)| nodes.iter().copied())
}

/// All steps.
pub(crate) fn steps() -> Vec<Step<Act>> {
    let mut steps = vec![initial()];
    steps.extend(of_single_nodes());
    steps.extend(of_new_nodes());
    steps.extend(of_zones());
    steps
}

fn initial() -> Step<Act> {
    let nodes =
        ZONES.into_iter().flat_map(|(zone, nodes)| nodes.iter().map(move |node| Act::Register(node, zone, true)));
    let pods = [Act::Pod("a-1", "web-1"), Act::Pod("a-2", "web-2"), Act::UnmanagedPods("a-1")];
    Step {
        name: "all are well".to_owned(),
        acts: nodes.chain(pods).collect(),
        expected: &[
            ("a-1 taints", ""),
            ("a-7 taints", ""),
            ("b-2 taints", ""),
            ("c-4 taints", ""),
            ("web-1 ready", "True"),
        ],
    }
}

fn of_single_nodes() -> Vec<Step<Act>> {
    vec![lost(), back(), lost_again(), restarted(), both_well()]
}

fn lost() -> Step<Act> {
    Step {
        name: "one is lost, one is not ready, one is short of everything".to_owned(),
        acts: vec![
            Act::StopReporting("a-1"),
            Act::ResumeReporting("a-2", false),
            Act::Condition("a-3", "MemoryPressure", true),
            Act::Condition("a-3", "DiskPressure", true),
            Act::Condition("a-3", "PIDPressure", true),
            Act::Condition("a-3", "NetworkUnavailable", true),
            Act::Taint("a-4", "example.com/own", "NoSchedule"),
            Act::Taint("a-4", "example.com/own", "NoExecute"),
            Act::Taint("a-4", "node.kubernetes.io/disk-pressure", "NoExecute"),
            Act::Taint("a-4", "node.kubernetes.io/disk-pressure", "NoSchedule"),
            Act::StopReporting("a-4"),
            Act::Cordon("a-5", true),
            Act::Label("a-5", "kubernetes.io/os", "linux"),
            Act::Label("a-5", "kubernetes.io/arch", "amd64"),
            Act::Label("a-5", "beta.kubernetes.io/arch", "sparc"),
        ],
        expected: &[
            ("a-1 Ready", UNREACHABLE),
            ("a-1 MemoryPressure", UNREACHABLE),
            ("a-1 DiskPressure", UNREACHABLE),
            ("a-1 PIDPressure", NEVER),
            ("a-1 taints", LOST),
            ("a-1 tainted since", "one is lost, one is not ready, one is short of everything"),
            ("a-1 told: Normal NodeNotReady of node: Node a-1 status is now: NodeNotReady", "1 times"),
            ("web-1 ready", "False"),
            ("web-1 told: Warning NodeNotReady of pod: Node is not ready", "1 times"),
            ("mirror ready", "False"),
            ("ended ready", "False"),
            ("unspoken ready", "unsaid"),
            ("a-2 Ready", NOT_READY),
            ("a-2 taints", UNREADY),
            // A kubelet that reports not Ready itself emits the Event, for the node and its pods.
            ("a-2 told: Normal NodeNotReady of node: Node a-2 status is now: NodeNotReady", ""),
            ("web-2 ready", "True"),
            ("web-2 told: Warning NodeNotReady of pod: Node is not ready", ""),
            (
                "a-3 taints",
                "disk-pressure:NoSchedule memory-pressure:NoSchedule network-unavailable:NoSchedule pid-pressure:NoSchedule",
            ),
            (
                "a-4 taints",
                "disk-pressure:NoExecute example.com/own:NoExecute example.com/own:NoSchedule unreachable:NoExecute unreachable:NoSchedule",
            ),
            ("a-5 taints", "unschedulable:NoSchedule"),
            ("a-5 beta.kubernetes.io/os", "linux"),
            ("a-5 beta.kubernetes.io/arch", "amd64"),
        ],
    }
}

fn back() -> Step<Act> {
    Step {
        name: "the first is back, the second falls silent".to_owned(),
        acts: vec![
            Act::ResumeReporting("a-1", true),
            Act::StopReporting("a-2"),
            Act::Condition("a-3", "MemoryPressure", false),
            Act::Condition("a-3", "DiskPressure", false),
            Act::Condition("a-3", "PIDPressure", false),
            Act::Condition("a-3", "NetworkUnavailable", false),
            Act::ResumeReporting("a-4", true),
            Act::Cordon("a-5", false),
        ],
        expected: &[
            ("a-1 Ready", READY),
            ("a-1 PIDPressure", NEVER),
            ("a-1 taints", ""),
            ("web-1 ready", "False"),
            ("a-2 Ready", UNREACHABLE),
            ("a-2 taints", LOST),
            // It was not ready before.
            ("a-2 told: Normal NodeNotReady of node: Node a-2 status is now: NodeNotReady", ""),
            ("web-2 ready", "False"),
            ("a-3 taints", ""),
            ("a-4 taints", "disk-pressure:NoExecute example.com/own:NoExecute example.com/own:NoSchedule"),
            ("a-5 taints", ""),
        ],
    }
}

fn lost_again() -> Step<Act> {
    Step {
        name: "the first is lost again, the second says that it is not ready".to_owned(),
        acts: vec![Act::Ready("web-1"), Act::StopReporting("a-1"), Act::ResumeReporting("a-2", false)],
        expected: &[
            ("a-1 taints", LOST),
            ("a-1 told: Normal NodeNotReady of node: Node a-1 status is now: NodeNotReady", "2 times"),
            ("web-1 ready", "False"),
            ("web-1 told: Warning NodeNotReady of pod: Node is not ready", "2 times"),
            ("a-2 taints", UNREADY),
            ("a-2 told: Normal NodeNotReady of node: Node a-2 status is now: NodeNotReady", ""),
        ],
    }
}

fn restarted() -> Step<Act> {
    Step {
        name: "the controller restarts".to_owned(),
        acts: vec![Act::Restart, Act::Wait(8)],
        expected: &[
            ("a-1 taints", LOST),
            ("a-1 tainted since", "the first is lost again, the second says that it is not ready"),
            ("a-1 told: Normal NodeNotReady of node: Node a-1 status is now: NodeNotReady", "2 times"),
            ("a-2 taints", UNREADY),
            ("a-2 tainted since", "the first is lost again, the second says that it is not ready"),
        ],
    }
}

fn both_well() -> Step<Act> {
    Step {
        name: "both are well".to_owned(),
        acts: vec![
            Act::ResumeReporting("a-1", true),
            Act::ResumeReporting("a-2", true),
            Act::Ready("web-1"),
            Act::Ready("web-2"),
        ],
        expected: &[("a-1 taints", ""), ("a-2 taints", ""), ("web-1 ready", "True"), ("web-2 ready", "True")],
    }
}

fn of_new_nodes() -> Vec<Step<Act>> {
    vec![
        Step {
            name: "nodes are new".to_owned(),
            acts: vec![
                Act::Register("n-1", "a", false),
                Act::RegisterTainted("n-2", "a"),
                Act::NoLease("n-3", "a", false),
                Act::NoLease("n-4", "a", true),
                Act::Wait(8),
            ],
            expected: &[
                ("n-1 taints", UNREADY),
                ("n-2 taints", UNREADY),
                ("n-3 Ready", NEVER),
                ("n-3 MemoryPressure", NEVER),
                ("n-3 DiskPressure", NEVER),
                ("n-3 PIDPressure", NEVER),
                ("n-3 taints", LOST),
                ("n-4 taints", ""),
            ],
        },
        Step {
            name: "the new ones are ready, or go".to_owned(),
            acts: vec![
                Act::ResumeReporting("n-1", true),
                Act::ResumeReporting("n-2", true),
                Act::Delete("n-3"),
                Act::ResumeReporting("n-4", true),
                Act::StopReporting("a-1"),
                Act::Wait(8),
                Act::Pod("a-1", "late"),
                Act::Wait(2),
            ],
            expected: &[
                ("n-1 taints", ""),
                ("n-2 taints", ""),
                ("n-4 taints", ""),
                ("a-1 taints", LOST),
                ("late ready", "False"),
            ],
        },
        Step {
            name: "all are well again".to_owned(),
            acts: vec![Act::ResumeReporting("a-1", true), Act::Ready("late")],
            expected: &[("a-1 taints", "")],
        },
    ]
}

fn of_zones() -> Vec<Step<Act>> {
    vec![zone_lost(), zones_back(), two_lost(), all_lost(), all_but_one_back()]
}

fn zone_lost() -> Step<Act> {
    Step {
        name: "a zone is lost, and most of a small one".to_owned(),
        acts: ["b-1", "b-2", "c-1", "c-2", "c-3"].into_iter().map(Act::StopReporting).chain([Act::Wait(9)]).collect(),
        expected: &[
            ("b-1 taints", LOST),
            ("b-2 taints", LOST),
            ("c-1 taints", "unreachable:NoSchedule"),
            ("c-2 taints", "unreachable:NoSchedule"),
            ("c-3 taints", "unreachable:NoSchedule"),
            ("c-4 taints", ""),
        ],
    }
}

fn zones_back() -> Step<Act> {
    Step {
        name: "the zones are back".to_owned(),
        acts: ["b-1", "b-2", "c-1", "c-2", "c-3"].into_iter().map(|node| Act::ResumeReporting(node, true)).collect(),
        expected: &[("b-1 taints", ""), ("b-2 taints", ""), ("c-1 taints", ""), ("c-2 taints", ""), ("c-3 taints", "")],
    }
}

fn two_lost() -> Step<Act> {
    Step {
        name: "two of the small one are lost".to_owned(),
        acts: ["c-1", "c-2"].into_iter().map(Act::StopReporting).collect(),
        expected: &[("c-1 taints", LOST), ("c-2 taints", LOST), ("c-3 taints", "")],
    }
}

fn all_lost() -> Step<Act> {
    Step {
        name: "all zones are lost".to_owned(),
        acts: all_nodes().chain(["n-1", "n-2", "n-4"]).map(Act::StopReporting).chain([Act::Wait(10)]).collect(),
        expected: &[
            ("a-1 taints", "unreachable:NoSchedule"),
            ("a-7 taints", "unreachable:NoSchedule"),
            ("b-1 taints", "unreachable:NoSchedule"),
            ("b-2 taints", "unreachable:NoSchedule"),
            ("c-1 taints", "unreachable:NoSchedule"),
            ("c-4 taints", "unreachable:NoSchedule"),
            ("n-1 taints", "unreachable:NoSchedule"),
            ("b-1 Ready", UNREACHABLE),
        ],
    }
}

fn all_but_one_back() -> Step<Act> {
    Step {
        name: "all but one are back".to_owned(),
        acts: all_nodes()
            .chain(["n-1", "n-2", "n-4"])
            .filter(|node| *node != "a-1")
            .map(|node| Act::ResumeReporting(node, true))
            .collect(),
        expected: &[
            ("a-1 taints", LOST),
            ("a-7 taints", ""),
            ("b-1 taints", ""),
            ("c-4 taints", ""),
            ("n-1 taints", ""),
        ],
    }
}
