//! Incidents do not wait for each other's devices.

use serde_json::json;

use super::*;
use crate::api::{
    Attempt, DeviceRef, FenceTrigger, Incarnation, NodeFenceSpec, NodeFenceStatus, Phase, Trigger,
};
use crate::authority::{FenceKey, Fencing, Step, Target};

fn target(node: &str, status: NodeFenceStatus) -> Target {
    let trigger = FenceTrigger { kind: Trigger::Person, reason: "r".to_owned(), by: None, condition: None };
    let life = Incarnation { name: node.to_owned(), uid: format!("uid-{node}"), boot_id: "boot".to_owned() };
    let spec = NodeFenceSpec {
        node: life,
        policy: "p".to_owned(),
        trigger,
        dry_run: false,
        cancelled: false,
        keep_off: false,
    };
    let uid = Uid::new(&format!("uid-fence-{node}")).unwrap();
    let fence = FenceKey { name: node.into(), uid, rv: "1".parse().unwrap() };
    Target { fence, spec: Box::new(spec), status: Box::new(status) }
}

impl Pool {
    fn takes(&self, node: &str, step: Step) -> Submitted {
        self.authority.submit(Intent::Fence(Box::new(Fencing { node: node.into(), step })), &self.owner)
    }
}

/// What has to do with these nodes and devices takes an hour.
fn hangs(asked: &Asked) -> Answer {
    let hour = Duration::from_hours(1);
    let slow = asked.path.contains("/nodes/slow-") || asked.path.contains("/fencedevices/slow-");
    let answer = Answer::json(&json!({ "metadata": { "name": "x", "uid": "u", "resourceVersion": "2" } }));
    if slow { answer.late(hour) } else { answer }
}

/// A machine that Cluster API deletes, or another remediator reboots, takes ten minutes; a device with hundreds of nodes
/// that do not answer, hours. Sixteen of them kept everybody, and a node that was proved off waited for its taint.
#[tokio::test(start_paused = true)]
async fn bug_attempts_and_looks_that_take_long_kept_the_steps_of_other_incidents_waiting() {
    let pool = pool(Leadership::alone(), hangs);
    for number in 0..=SWITCHERS {
        let name = format!("slow-{number}");
        let attempts = vec![Attempt { act: "off".to_owned(), within_seconds: 600, ..Attempt::default() }];
        let status = NodeFenceStatus { phase: Phase::Fencing, attempts, ..NodeFenceStatus::default() };
        assert_eq!(pool.takes(&name, Step::Attempt(target(&name, status))), Submitted::Accepted);
        let device = DeviceRef { namespace: "fencing".to_owned(), name: name.clone() };
        let uid = Uid::new(&format!("uid-{name}")).unwrap();
        let wish = Monitor { device, uid, nodes: Vec::new(), whole: true, test: None };
        let monitor = Intent::Monitor(Box::new(wish));
        pool.accepts(monitor);
    }
    pass(1.0).await;
    let done = |step: &str| {
        let page = pool.page();
        let line = format!(r#"pod_safety_fence_steps_total{{outcome="written",step="{step}"}} 1"#);
        page.contains(&line)
    };
    assert!(!done("write"));
    let begun = pool.api.lines().into_iter().filter(|line| line.contains("/nodes/slow-")).count();
    assert_eq!(begun, SWITCHERS, "one attempt waits for its turn");
    let waiting = 1 + (SWITCHERS + 1 - LOOKERS);
    pool.counts(&format!("pod_safety_authority_queued_intents {waiting}\n"));
    let status = NodeFenceStatus { phase: Phase::Cancelled, ..NodeFenceStatus::default() };
    assert_eq!(pool.takes("quick", Step::Write(target("quick", status))), Submitted::Accepted);
    pass(1.0).await;
    assert!(done("write"), "nobody else's machine was waited for");
}
