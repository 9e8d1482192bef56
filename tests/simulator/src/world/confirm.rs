//! A person who confirms that a node is down, by the code of `pod-safety confirm-down`: most switch the machine off by
//! its power button first, and one who is wrong does not.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_shared::authority::operator_requests;

use super::run::World;

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

impl World {
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
