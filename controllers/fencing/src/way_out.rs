//! What helps a node whose incident waits for a person. Pure.

/// What a person does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WayOut {
    /// Nothing proves that it is off.
    Prove,
    /// Its message says what a person confirms, and when.
    AsAsked,
    /// It is proved off, and could not be switched on.
    SwitchOn,
    /// What proved that it is off is not valid any more.
    FindOut,
}

impl WayOut {
    /// In words. A second confirmation is never advised where the first one holds, or was withdrawn.
    pub(super) fn words(self, node: &str) -> String {
        let again = "delete its NodeFence to have it fenced again";
        match self {
            Self::Prove => format!(
                "Start it, or {again}. Only if you or a person you spoke to saw that the machine is powered off: pod-safety confirm-down {node} --reason TEXT"
            ),
            Self::AsAsked => format!("Or start it, or {again}"),
            Self::SwitchOn => "It is proved off and needs no confirmation. Start it by hand, and repair what its devices lack".to_owned(),
            Self::FindOut => format!("Find out whether the machine runs, and start it or restart its kubelet. Or {again}"),
        }
    }
}
