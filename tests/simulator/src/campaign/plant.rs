//! Bugs that can be planted into what is under test, at its seams: no product
//! code knows of them.

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// DELETE and PATCH lose their UID.
    NoUid,
    /// DELETE and PATCH lose their resourceVersion.
    NoVersion,
    /// A node is believed gone after one second.
    NoQuarantine,
    /// The monotonic clock runs eight times too fast.
    FastClock,
    /// Every process believes that it leads.
    NoElection,
    /// A term lasts longer than others wait.
    LongTerm,
    /// Nodes and Leases are read with `resourceVersion=0`.
    CachedReads,
    /// The Leases of kubelets are looked for in the wrong namespace.
    BlindToLeases,
    /// The second read of a node is answered from memory of the first, and its
    /// Lease too; heartbeats are not watched.
    RememberedReads,
    /// A first read of a missing node fails for ever.
    DeafToNodes,
    /// What fails is sent again at once, without end.
    Hammer,
    /// Any failure to read a node counts as "not found", and no Lease is seen.
    ErrorsMeanAbsent,
}

impl Plant {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::NoUid,
        Self::NoVersion,
        Self::NoQuarantine,
        Self::FastClock,
        Self::NoElection,
        Self::LongTerm,
        Self::CachedReads,
        Self::BlindToLeases,
        Self::RememberedReads,
        Self::DeafToNodes,
        Self::Hammer,
        Self::ErrorsMeanAbsent,
    ];
}
