//! What a person can do about an incident that awaits one. Pure.

/// What a person can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// There is no evidence that the node is off: confirm it.
    ConfirmOff,
    /// The message of the incident states what to confirm, and when.
    FollowMessage,
    /// The node is proved off, and could not be switched on.
    PowerOn,
    /// The evidence is not valid any more.
    Investigate,
}

impl Remedy {
    /// The advice as text. It never suggests a second confirmation where the first one is valid, or was withdrawn.
    pub(super) fn describe(self, node: &str) -> String {
        let again = "delete its NodeFence to have it fenced again";
        match self {
            Self::ConfirmOff => format!(
                "Start it, or {again}. Only if you or a person you spoke to saw that the machine is powered off: pod-safety confirm-down {node} --reason TEXT"
            ),
            Self::FollowMessage => format!("Or start it, or {again}"),
            Self::PowerOn => {
                "It is proved off and needs no confirmation. Start it by hand, and repair what its devices lack"
                    .to_owned()
            }
            // Another incident of this boot would power the machine off again, and prove nothing.
            Self::Investigate => {
                "Find out whether the machine runs. It runs: restart its kubelet. It is off: start it".to_owned()
            }
        }
    }
}
