//! The pass that lets one request through the guard.

/// That the authority stands behind one request. It is made in `act`, from
/// evidence, for one request; and in `node`, for taints that go back as they came.
#[derive(Clone, Debug)]
pub(crate) struct Permit(());

impl Permit {
    /// Danger note: only with evidence in hand that covers exactly the request
    /// to which this is attached, or for one that takes no pod's name away: it keeps
    /// what others wrote, at the version at which they did.
    pub(in crate::authority) const fn danger_new() -> Self {
        Self(())
    }

    /// For tests of the guard.
    #[cfg(test)]
    pub(crate) const fn for_guard_tests() -> Self {
        Self(())
    }
}
