//! Bugs that can be planted into what is under test, at its seams: no product
//! code knows of them.

use strum::EnumMessage;

use crate::checker::Invariant;

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumMessage)]
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
    /// The second read of a node is answered from memory of the first.
    RememberedReads,
    /// A first read of a missing node fails for ever.
    DeafToNodes,
    /// What fails is sent again at once, without end.
    Hammer,
    /// Any failure to read a node counts as "not found", and no Lease is seen.
    ErrorsMeanAbsent,
    /// A failed read of a Node (5xx, time-out) counts as "not found"; Leases are read honestly.
    TimeoutMeansAbsent,
    /// The DELETED event of a Node counts as proof that its pods have ended.
    GoneMeansEnded,
    /// A pod that is being deleted is force deleted at once, as the script of people does.
    RemovesTerminating,
    /// Pods are called Failed at the first read of a missing node, before there is evidence.
    FailsTooEarly,
    /// At the end of the quarantine pods are force deleted, without a graceful DELETE before.
    NoGracefulDelete,
    /// The PATCH is skipped: the DELETE comes with whatever version the pod has.
    SkipPatch,
    /// The DELETE is sent before the PATCH.
    DeleteFirst,
    /// Writes for `data-0` go to `data-1`.
    WrongTarget,
    /// After a conflict the write is repeated with the UID and version of the object that has the name then.
    RetryByName,
    /// After a conflict the write is repeated without UID and version.
    ForceOnConflict,
    /// DELETE leaves its grace to the server.
    DefaultGrace,
    /// DELETE asks for ten minutes of grace.
    LongGrace,
    /// Requests are never given up.
    NoDeadline,
    /// Writes wait in a queue that no term ends.
    QueuedWrites,
    /// Others wait for three seconds only, which is less than a term.
    ShortLease,
    /// All processes bear one identity in the election.
    SharedIdentity,
    /// The Lease is given back before the last write is done.
    WritesAfterRelease,
    /// What failed is sent once more beneath the process, later, with the version that is there then.
    RetriesLate,
    /// Each Event is written two hundred times.
    EventStorm,
    /// A new list keeps the items of the first one: what 410 made unknown stays as it was.
    OldStoreKept,
    /// The DELETED events of Nodes are dropped.
    DeafToDeletions,
    /// Every third event of a watch is dropped.
    SkippedEvents,
    /// Watches fall silent after forty events, and the process does not notice.
    MuteWatches,
    /// The quarantine lasts an hour.
    EndlessQuarantine,
    /// Pods that are being deleted count as healthy.
    CountsTerminating,
    /// Evictions that were let through are forgotten at once.
    ForgetsEvictions,
    /// Percentages of budgets are rounded down.
    RoundsDown,
    /// The pods that are there count for those that the workload wants.
    ExpectsWhatIsThere,
    /// Numbers of budgets are written whatever was written meanwhile.
    LostDecrement,
    /// Numbers of budgets claim to be those of any spec to come.
    AlwaysObserved,
    /// Who does not lead writes what it thinks of budgets.
    StandbyWrites,
    /// The time of a pod runs by its name: when it is over, the pod that has the name then is deleted.
    TimersByName,
    /// What taints say of when they were added is not read: their times begin when this process sees them.
    CountsFromFirstSight,
    /// Where a node has several taints, tolerations are not looked at.
    SeveralTaintsEndAll,
    /// Nodes are not read again before a deletion: the cache of the API server answers.
    NoSecondLook,
    /// What a pod tolerated first counts, whatever it tolerates since.
    TimersStay,
    /// A deletion for a taint that was refused once is not tried again.
    GivesUp,
    /// The `renewTime` of a Lease is compared with our wall clock.
    TrustsNodeClocks,
    /// A new leader takes the `NoExecute` taints from lost nodes, and adds them anew.
    RetaintsWhenLeading,
    /// However many nodes are silent, and since whatever outage: each is lost.
    NeverMaybeUs,
    /// Taints of loss are lifted by what a cache without Unknown says of the node, unread.
    LiftsUnread,
    /// A machine that was told to go off is taken for off when a time is over.
    TimerIsProof,
    /// A node that is not Ready is taken for off.
    SilenceIsProof,
    /// A machine is told to reboot: it is on again before its pods are released.
    Reboots,
    /// The pods of a fenced node are deleted by their names.
    ReleasesByName,
    /// The second look at a device is answered from memory of the first.
    OneLook,
    /// Two looks at a device lie closer together than two renewals of a kubelet, and count as evidence.
    LooksTooSoon,
    /// An answer at the port of a kubelet counts as silence, where a second fact is required.
    DeafToKubelets,
    /// What a provider shows is believed at once, however lately the instance booted.
    BelievesCopies,
    /// An instance that is on its way to stopped is taken for stopped.
    StoppingIsStopped,
    /// An instance that a provider does not find is taken for terminated.
    NotFoundIsGone,
    /// An agent has a feeder of its own for its watchdog, which pets whatever becomes of the grants.
    FeedsApart,
    /// An agent stops its kubelet and does not end it, and others continue it.
    StopsKubelets,
    /// An agent reports every pod of its node as ended.
    ReportsAll,
    /// A machine is switched off before that is written down.
    ActsFirst,
    /// Of what a person said it is not read for how long it holds.
    WordsNeverExpire,
    /// What a person says of a node of which there is other evidence is not seen, whether that can be looked at or not.
    MasksWords,
    /// The label by which admission keeps a volume where it is is never written.
    NeverHolds,
    /// Leases of volumes are written whatever was written meanwhile.
    OwnersByForce,
    /// The generation of a volume stays when its owner is relieved.
    SameGeneration,
    /// A volume is given back when its pod is gone, whatever its kubelet says.
    GoneMeansFree,
    /// The owner of a volume is a name: no UID, no boot id.
    OwnersByName,
    /// A pod passes the gate at once, whosever its volume is.
    OpensTheGate,
    /// What is for one pod alone is taken for what the pods of one node may share.
    SharesAnyway,
    /// The Lease of a volume goes with its PersistentVolume, whoever holds it.
    ForgetsHeld,
    /// Nobody deletes the Lease of a volume that is gone.
    NeverForgets,
    /// Of what kubelets say to have mounted, one volume is not heard.
    DeafToMounts,
    /// Evidence about a former life of a node is not seen once another has its name.
    ForgetsFormerLives,
    /// An incident in `Fencing` keeps its place among those that are fenced at once, whatever holds it.
    HeldKeepPlaces,
    /// A tenant may report in the place of a kubelet: the policy that denies it is missing.
    TenantsReport,
    /// Our taint goes from a node that is back only when no pod terminates there.
    UntaintsLast,
    /// Machines in the namespace of a tenant count.
    TrustsTenants,
    /// A pod is evicted by its name: the eviction names no UID.
    EvictsByName,
    /// An eviction leaves the pod no grace.
    EvictsWithoutGrace,
    /// A pod is evicted as soon as there is an Eviction of it, whosever turn it is.
    EvictsOutOfTurn,
    /// What a budget refuses to evict is deleted.
    PassesBudget,
    /// A refused eviction is not remembered: the next attempt follows at once.
    ForgetsAttempts,
    /// A request that changed counts as withdrawn, and the requests are not read again before the Eviction is canceled.
    CancelsUnread,
    /// A pod that terminates counts as gone.
    TerminatingIsGone,
    /// Each Eviction is created twice.
    SecondEviction,
    /// With the first turn every responder is reported to have completed.
    PrefillsReports,
    /// A request says that its target was evicted as soon as there is an Eviction.
    CopiesAhead,
    /// The status of requests is never written.
    NeverObserves,
}

impl Plant {
    /// All of them, each with the invariant that must catch it.
    pub const ALL: [(Self, Invariant); 95] = [
        (Self::NoUid, Invariant::Hygiene),
        (Self::NoVersion, Invariant::Hygiene),
        (Self::NoQuarantine, Invariant::Evidence),
        (Self::FastClock, Invariant::Evidence),
        (Self::NoElection, Invariant::Term),
        (Self::LongTerm, Invariant::Term),
        (Self::CachedReads, Invariant::Hygiene),
        (Self::BlindToLeases, Invariant::Evidence),
        (Self::RememberedReads, Invariant::Evidence),
        (Self::DeafToNodes, Invariant::Liveness),
        (Self::Hammer, Invariant::HotLoop),
        (Self::ErrorsMeanAbsent, Invariant::Evidence),
        (Self::TimeoutMeansAbsent, Invariant::Evidence),
        (Self::GoneMeansEnded, Invariant::Evidence),
        (Self::RemovesTerminating, Invariant::Evidence),
        (Self::FailsTooEarly, Invariant::Evidence),
        (Self::NoGracefulDelete, Invariant::Connected),
        (Self::SkipPatch, Invariant::Evidence),
        (Self::DeleteFirst, Invariant::Evidence),
        (Self::WrongTarget, Invariant::Evidence),
        (Self::RetryByName, Invariant::Identity),
        (Self::ForceOnConflict, Invariant::Hygiene),
        (Self::DefaultGrace, Invariant::Hygiene),
        (Self::LongGrace, Invariant::Hygiene),
        (Self::NoDeadline, Invariant::Hygiene),
        (Self::QueuedWrites, Invariant::Term),
        (Self::ShortLease, Invariant::Term),
        (Self::SharedIdentity, Invariant::Term),
        (Self::WritesAfterRelease, Invariant::Term),
        (Self::RetriesLate, Invariant::Term),
        (Self::EventStorm, Invariant::HotLoop),
        (Self::OldStoreKept, Invariant::Liveness),
        (Self::DeafToDeletions, Invariant::Liveness),
        (Self::SkippedEvents, Invariant::Liveness),
        (Self::MuteWatches, Invariant::Liveness),
        (Self::EndlessQuarantine, Invariant::Liveness),
        (Self::CountsTerminating, Invariant::Budget),
        (Self::ForgetsEvictions, Invariant::Budget),
        (Self::RoundsDown, Invariant::Budget),
        (Self::ExpectsWhatIsThere, Invariant::Budget),
        (Self::LostDecrement, Invariant::Budget),
        (Self::AlwaysObserved, Invariant::Budget),
        (Self::StandbyWrites, Invariant::Term),
        (Self::TimersByName, Invariant::Identity),
        (Self::CountsFromFirstSight, Invariant::Evicted),
        (Self::SeveralTaintsEndAll, Invariant::Tolerance),
        (Self::NoSecondLook, Invariant::Tolerance),
        (Self::TimersStay, Invariant::Evicted),
        (Self::GivesUp, Invariant::Evicted),
        (Self::TrustsNodeClocks, Invariant::Heard),
        (Self::RetaintsWhenLeading, Invariant::Kept),
        (Self::NeverMaybeUs, Invariant::Heard),
        (Self::LiftsUnread, Invariant::Kept),
        (Self::TimerIsProof, Invariant::Evidence),
        (Self::SilenceIsProof, Invariant::Evidence),
        (Self::Reboots, Invariant::Fence),
        (Self::ReleasesByName, Invariant::Hygiene),
        (Self::OneLook, Invariant::Fence),
        (Self::LooksTooSoon, Invariant::Renewing),
        (Self::DeafToKubelets, Invariant::Evidence),
        (Self::BelievesCopies, Invariant::Evidence),
        (Self::StoppingIsStopped, Invariant::Evidence),
        (Self::NotFoundIsGone, Invariant::Evidence),
        (Self::FeedsApart, Invariant::Fence),
        (Self::StopsKubelets, Invariant::AtMostOne),
        (Self::ReportsAll, Invariant::Evidence),
        (Self::ActsFirst, Invariant::Fence),
        (Self::WordsNeverExpire, Invariant::Fence),
        (Self::MasksWords, Invariant::Released),
        (Self::NeverHolds, Invariant::Storage),
        (Self::OwnersByForce, Invariant::Hygiene),
        (Self::SameGeneration, Invariant::Owner),
        (Self::GoneMeansFree, Invariant::Owner),
        (Self::OwnersByName, Invariant::Owner),
        (Self::OpensTheGate, Invariant::Owner),
        (Self::SharesAnyway, Invariant::Owner),
        (Self::ForgetsHeld, Invariant::Owner),
        (Self::NeverForgets, Invariant::Free),
        (Self::DeafToMounts, Invariant::Owner),
        (Self::ForgetsFormerLives, Invariant::Free),
        (Self::HeldKeepPlaces, Invariant::Ended),
        (Self::TenantsReport, Invariant::Liveness),
        (Self::UntaintsLast, Invariant::Recovered),
        (Self::TrustsTenants, Invariant::Fence),
        (Self::EvictsByName, Invariant::Hygiene),
        (Self::EvictsWithoutGrace, Invariant::Evidence),
        (Self::EvictsOutOfTurn, Invariant::Turn),
        (Self::PassesBudget, Invariant::Budget),
        (Self::ForgetsAttempts, Invariant::HotLoop),
        (Self::CancelsUnread, Invariant::Verdict),
        (Self::TerminatingIsGone, Invariant::Verdict),
        (Self::SecondEviction, Invariant::Turn),
        (Self::PrefillsReports, Invariant::Turn),
        (Self::CopiesAhead, Invariant::Verdict),
        (Self::NeverObserves, Invariant::Answered),
    ];

    /// What it does, in a sentence: the comment of its variant.
    #[must_use]
    pub fn what(self) -> &'static str {
        self.get_documentation().unwrap_or_default()
    }
}
