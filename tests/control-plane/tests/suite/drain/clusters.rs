//! The small clusters that are drained: fixed ones and random ones.

use pod_safety_control_plane::selected_kubernetes;

use super::webhook::Hook;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Deployment,
    StatefulSet,
    /// A controller whose kind the cluster does not have: its pods are not recreated.
    Custom,
    None,
    DaemonSet,
    /// A DaemonSet that does not exist, and a DaemonSet of another group.
    GoneDaemonSet,
    ForeignDaemonSet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pdb {
    None,
    /// `minAvailable` equal to the number of pods, `maxUnavailable: 0`, `maxUnavailable: 1`.
    All,
    Zero,
    One,
    /// Two that select the same pods.
    Two,
}

/// The action two seconds after the cordon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Nothing,
    PdbGoes,
    PdbLowers,
    PodGoes,
    /// Before the drain: the namespace is deleted, and its pods are removed two seconds after the cordon.
    NamespaceEnds,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Cluster {
    pub(super) owner: Owner,
    pub(super) replicas: usize,
    /// Its pods tolerate the cordon, and cannot run on any other node.
    pub(super) reschedules_here: bool,
    pub(super) ready: bool,
    pub(super) pdb: Pdb,
    pub(super) act: Act,
    /// `--force` of kubectl, and `--evict-unmanaged` of pod-safety.
    pub(super) force: bool,
    /// Two nodes are drained by one command.
    pub(super) two: bool,
    pub(super) webhook: Hook,
}

pub(super) const PLAIN: Cluster = Cluster {
    owner: Owner::Deployment,
    replicas: 1,
    reschedules_here: false,
    ready: true,
    pdb: Pdb::None,
    act: Act::Nothing,
    force: false,
    two: false,
    webhook: Hook::None,
};

pub(super) fn fixed_clusters() -> Vec<Cluster> {
    let set = Cluster { owner: Owner::StatefulSet, replicas: 3, ..PLAIN };
    let custom = Cluster { owner: Owner::Custom, ..PLAIN };
    let hooked = |hook| Cluster { webhook: hook, ..custom };
    vec![
        Cluster { reschedules_here: true, ..PLAIN },
        Cluster { pdb: Pdb::All, act: Act::PdbGoes, ..custom },
        Cluster { pdb: Pdb::All, act: Act::PdbLowers, ..set },
        Cluster { pdb: Pdb::Zero, act: Act::PdbGoes, ..PLAIN },
        Cluster { act: Act::NamespaceEnds, ..custom },
        Cluster { owner: Owner::GoneDaemonSet, ..PLAIN },
        Cluster { owner: Owner::GoneDaemonSet, force: true, ..PLAIN },
        Cluster { owner: Owner::ForeignDaemonSet, ..PLAIN },
        Cluster { owner: Owner::DaemonSet, ..PLAIN },
        Cluster { pdb: Pdb::Two, ..set },
        Cluster { pdb: Pdb::One, ready: false, ..set },
        Cluster { two: true, pdb: Pdb::One, ..set },
        Cluster { two: true, owner: Owner::None, replicas: 3, ..PLAIN },
        hooked(Hook::Denies(403)),
        hooked(Hook::Denies(404)),
        hooked(Hook::Denies(409)),
        hooked(Hook::Denies(429)),
        hooked(Hook::Denies(500)),
        hooked(Hook::FailsOnce),
        hooked(Hook::Fails),
        hooked(Hook::Slow),
    ]
}

/// Where pod-safety ends differently from kubectl, and why that is better.
pub(super) const DIFFERENCES: [(Hook, &str); 2] = [
    (Hook::Denies(404), "kubectl takes the webhook's 404 for a pod that is gone, and ends well while it runs"),
    (Hook::FailsOnce, "kubectl gives a pod up whose webhook fails once; ours tries for a minute"),
];

/// kubectl compares the group of the DaemonSet since 1.34 (`kubectl: pkg/drain/filters.go:isControllerRefDaemonSet`): an older one
/// looks for a DaemonSet of this name in `apps`, and leaves the pod.
pub(super) fn takes_any_daemon_set() -> bool {
    selected_kubernetes()
        .is_some_and(|version| ["1.32", "1.33"].iter().any(|old| version.trim_start_matches('v').starts_with(old)))
}

/// Random numbers without a dependency: SplitMix64.
pub(super) struct Draws(pub(super) u64);

impl Draws {
    fn choose<T: Copy>(&mut self, of: &[T]) -> T {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        of[usize::try_from(mixed >> 33).unwrap() % of.len()]
    }

    pub(super) fn draw_cluster(&mut self) -> Cluster {
        let owner =
            self.choose(&[Owner::Deployment, Owner::Deployment, Owner::StatefulSet, Owner::Custom, Owner::None]);
        let pdb = self.choose(&[Pdb::None, Pdb::All, Pdb::Zero, Pdb::One, Pdb::Two]);
        Cluster {
            owner,
            replicas: self.choose(&[1, 2, 3]),
            reschedules_here: self.choose(&[false, false, true]),
            ready: self.choose(&[true, true, false]),
            pdb,
            act: self.choose(&[Act::Nothing, Act::PdbGoes, Act::PdbLowers, Act::PodGoes]),
            force: self.choose(&[true, false]),
            two: self.choose(&[true, false, false]),
            webhook: self.choose(&[Hook::None, Hook::None, Hook::None, Hook::FailsOnce]),
        }
    }
}
