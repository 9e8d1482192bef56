//! A person who confirms that a node is down, by the code of `pod-safety confirm-down`: most switch the machine off by
//! its power button first, and one who is wrong does not.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_shared::api::Incarnation;
use pod_safety_shared::authority::operator_requests;
use pod_safety_shared::model::{Holder, VOLUME_LEASE_NAMESPACE};
use serde_json::Value;

use super::run::World;
use super::str_at;

/// The name of such a command as a caller, before the name of the node.
const CALLER: &str = "confirm-down.";
/// Which `--reason` is given.
const REASON: &str = "its power button was pressed, and its fans stand still";
/// The default of `--listen`.
const OBSERVE_FOR: Duration = Duration::from_secs(15);
/// The command is refused for a node that is Ready or whose kubelet renews: then it is tried again, so often, after a
/// pause.
const TRIES: usize = 12;
const PAUSE: u64 = 10;

/// For how long the confirmation of a former life holds.
const HOLDS: Duration = Duration::from_secs(3_600);

impl World {
    /// A person confirms the end of a life that a volume names, as `pod-safety confirm-down --uid --boot-id` does.
    pub(super) async fn confirm_former(self: &Arc<Self>, node: usize) {
        let name = self.node(node);
        let Some((connection, env)) = self.shipped_connection(&format!("{CALLER}{name}")) else { return };
        for _ in 0..TRIES {
            for holder in self.former_holders(&name) {
                let former = Incarnation {
                    name: name.clone(),
                    uid: holder.node_uid.to_string(),
                    boot_id: holder.boot_id.to_string(),
                };
                let Ok(examined) = operator_requests::examine_former(&connection, &env, former).await else { continue };
                self.checker.record_confirmation(&name, false);
                let confirmation =
                    operator_requests::Confirmation { by: "person", reason: REASON, valid_for: HOLDS, power_on: true };
                let answer = operator_requests::confirm(&connection, &examined, confirmation).await;
                self.checker.probe("a person confirmed a former life of a node");
                let answer = answer.unwrap_or_else(|error| error.to_string());
                return self.checker.note(format!("a person confirms a former life of {name}: {answer}"));
            }
            self.wait(PAUSE).await;
        }
    }

    /// The lives of a node that volumes name, and that are not its present one.
    fn former_holders(&self, node: &str) -> Vec<Holder> {
        let Some(object) = self.etcd.object("Node", node) else { return Vec::new() };
        let of_volumes = |lease: &Value| str_at(lease, "/metadata/namespace") == VOLUME_LEASE_NAMESPACE;
        let leases = self.etcd.objects_that("Lease", of_volumes);
        let holders = leases.iter().filter_map(|lease| Holder::parse(str_at(lease, "/spec/holderIdentity")));
        let present = str_at(&object, "/metadata/uid");
        holders.filter(|one| *one.node == *node && one.node_uid.to_string() != present).collect()
    }

    pub(super) async fn confirm_down(self: &Arc<Self>, node: usize, wrong: bool, valid: u64) {
        if self.with.fencing.is_none() && self.with.guarded_volumes.is_none() {
            return;
        }
        let name = self.node(node);
        let Some((connection, env)) = self.shipped_connection(&format!("{CALLER}{name}")) else { return };
        if !wrong {
            self.power_off(node);
        }
        for _ in 0..TRIES {
            if let Ok(examined) = operator_requests::examine(&connection, &env, &name).await
                && operator_requests::confirm_not_reporting(&connection, &env, &examined, OBSERVE_FOR).await.is_ok()
            {
                let runs = self.has_power(node);
                if runs && !wrong {
                    return self.checker.probe("a person saw that the machine was switched on again");
                }
                self.checker.record_confirmation(&name, runs);
                let valid_for = Duration::from_secs(valid);
                // The machine stays off for a while only: one that stayed off for good would not test what follows.
                let confirmation =
                    operator_requests::Confirmation { by: "person", reason: REASON, valid_for, power_on: true };
                let answer = operator_requests::confirm(&connection, &examined, confirmation).await;
                let answer = answer.unwrap_or_else(|error| error.to_string());
                return self.checker.note(format!("a person confirms that {name} is down: {answer}"));
            }
            self.wait(PAUSE).await;
        }
        self.checker.probe("a person did not confirm a node that was heard");
    }
}
