//! What helps a node whose incident waits for a person. Pure.

/// What a person does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing proves that it is off.
    ConfirmOff,
    /// Its message says what a person confirms, and when.
    FollowMessage,
    /// It is proved off, and could not be switched on.
    PowerOn,
    /// What proved that it is off is not valid any more.
    Investigate,
}

impl Remedy {
    /// In words. A second confirmation is never advised where the first one holds, or was withdrawn.
    pub(super) fn describe(self, node: &str) -> String {
        let again = "delete its NodeFence to have it fenced again";
        match self {
            Self::ConfirmOff => format!(
                "Start it, or {again}. Only if you or a person you spoke to saw that the machine is powered off: pod-safety confirm-down {node} --reason TEXT"
            ),
            Self::FollowMessage => format!("Or start it, or {again}"),
            Self::PowerOn => "It is proved off and needs no confirmation. Start it by hand, and repair what its devices lack".to_owned(),
            Self::Investigate => format!("Find out whether the machine runs, and start it or restart its kubelet. Or {again}"),
        }
    }
}
