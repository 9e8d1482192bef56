//! What must happen sometimes: a campaign in which it does not has not looked there.

use std::collections::BTreeMap;

/// How many seeds the numbers below are for.
const SEEDS: u64 = 2_000;

/// What must happen, and at least how often in [`SEEDS`] seeds: about a third of
/// what was measured, so that another drawing of faults does not break them. Two are small for a reason: a kubelet whose Node is gone makes no
/// mirror pod, and has a Lease only where garbage collection stands still.
const SOMETIMES: [(&str, u64); 154] = [
    ("a budget came to rest", 330),
    ("a budget's status met a conflict", 60),
    ("a clock ran too fast or too slow", 1830),
    ("a detachment was refused by admission", 750),
    ("a device acted after it had said that it failed", 13),
    ("a device said off of a machine that was on", 127),
    ("a device was told off", 670),
    ("a device was told on", 191),
    ("a drain came to its end", 230),
    ("a drain was given up", 185),
    ("a kubelet began with the past", 50),
    ("a kubelet could make no Lease: its Node is gone", 5219),
    ("a kubelet could make no mirror pod: its Node is gone", 15585),
    ("a kubelet lacks BootId", 70),
    ("a kubelet lacks BootUuid", 60),
    ("a kubelet lacks Lease", 55),
    ("a kubelet made a mirror pod", 756),
    ("a kubelet restarted a container for its new image", 80),
    ("a kubelet said that it has seen a deletion", 1500),
    ("a kubelet said that its node is not ready, and renewed", 180),
    ("a leader died, and another leads in time", 176),
    ("a machine lost both of its supplies", 120),
    ("a machine without supply did not start", 16),
    ("a newer process took the place of an older one", 114),
    ("a person learned nothing of a switch, and left the Node", 47),
    ("a pod waits behind the gate", 63),
    ("a process ended, and its kubelet could not say so", 10),
    ("a process outlived its SIGKILL", 50),
    ("a process started with two volumes", 240),
    ("a sick node did not end a pod", 1987),
    ("a sick node did not start a pod", 457),
    ("a sidecar outlived the main container", 234),
    ("a switch said off of a machine that ran", 76),
    ("a switch said off of a machine that was off", 154),
    ("a taint was lifted while a pod's time ran", 528),
    ("a volume got its next writer", 2974),
    ("a volume was attached to its next node", 560),
    ("a volume was detached", 822),
    ("a volume was detached by force", 129),
    ("a volume was given back", 611),
    ("a volume was held", 419),
    ("a volume was taken", 1380),
    ("a volume's owner was relieved", 254),
    ("a watchdog reset a machine", 60),
    ("a workload was scaled during a drain", 20),
    ("an agent ended a process", 130),
    ("an agent let a kubelet start again", 28),
    ("an attachment waits: the volume is attached elsewhere", 335),
    ("an attachment was refused by admission", 157),
    ("an entry went, and its pod did not", 35),
    ("an eviction spent nothing", 300),
    ("an eviction was counted and refused", 60),
    ("an eviction was counted twice", 9),
    ("an eviction was let through", 700),
    ("an eviction was refused: the budget is exhausted", 5681),
    ("an eviction was refused: the budget is still being processed", 142),
    ("an incident became AwaitingOperator", 31),
    ("an incident became Cancelled", 96),
    ("an incident became Done", 145),
    ("an incident became Fenced", 192),
    ("an orphan is held: KubeletAlive", 55),
    ("an orphan is held: Quarantine", 9),
    ("asked to end for a taint after its time", 451),
    ("asked to end for a taint at once", 583),
    ("asked to end for the first of several taints", 298),
    ("called an orphan on Missing", 630),
    ("called an orphan on NodeGone", 320),
    ("marked terminated on NeverScheduled", 662),
    ("marked terminated on NodeGone", 550),
    ("marked terminated on PodsEnded", 4),
    ("marked terminated on PowerOff", 456),
    ("evidence was written by two looks", 192),
    ("fault AddTaint", 600),
    ("fault ChangeBudget", 294),
    ("fault Confirm", 680),
    ("fault CrashReplica", 737),
    ("fault CutLink", 280),
    ("fault CutNode", 1141),
    ("fault CutReplica", 287),
    ("fault CutServer", 301),
    ("fault DeafKubelet", 291),
    ("fault DeleteNode", 811),
    ("fault DeletePod", 888),
    ("fault Deploy", 330),
    ("fault Drain", 400),
    ("fault EditPod", 350),
    ("fault Evict", 142),
    ("fault EvictAtOnce", 380),
    ("fault FenceByHand", 278),
    ("fault ForceDelete", 220),
    ("fault Forget", 297),
    ("fault Freeze", 295),
    ("fault HealNode", 66),
    ("fault JumpNode", 297),
    ("fault JumpReplica", 300),
    ("fault KillKubelet", 304),
    ("fault LagServer", 302),
    ("fault LiftTaint", 200),
    ("fault MakeBrief", 240),
    ("fault MakePod", 183),
    ("fault Malfunction", 146),
    ("fault PauseFencing", 240),
    ("fault PauseReplica", 288),
    ("fault PowerOff", 518),
    ("fault Reboot", 300),
    ("fault RemovePolicy", 150),
    ("fault RenewVolume", 80),
    ("fault RestartAttacher", 163),
    ("fault RestartServer", 318),
    ("fault Scale", 296),
    ("fault Sicken", 80),
    ("fault SickenNode", 267),
    ("fault SilenceWatch", 180),
    ("fault StallWorkloads", 120),
    ("fault StopReplica", 277),
    ("fault StuckProcesses", 287),
    ("fault SwitchServer", 295),
    ("fault Taint", 311),
    ("fault TearOff", 34),
    ("fault Tolerate", 690),
    ("fault TroubleNode", 583),
    ("fault TroubleReplica", 599),
    ("kubelet completed a deletion", 680),
    ("one of two supplies was switched off, and the machine ran on", 80),
    ("one watch fell silent beside live ones: Lease", 54),
    ("one watch fell silent beside live ones: Node", 62),
    ("one watch fell silent beside live ones: Pod", 54),
    ("our taint went when the node was back", 117),
    ("quorum read found a node", 11468),
    ("quorum read found a node that an earlier one had missed", 305),
    ("quorum read missed a node", 2476),
    ("limit: a person was wrong about a machine that ran, and its kubelet was not heard", 22),
    ("released by a person's word", 570),
    ("removed on KubeletTerminated", 2650),
    ("removed on NodeGone", 550),
    ("renewal of leadership failed", 2046),
    ("request met: answer cut", 534),
    ("request met: answer lost", 1086),
    ("request met: delay", 1219),
    ("request met: error 401", 677),
    ("request met: error 403", 762),
    ("request met: error 409", 757),
    ("request met: error 429", 774),
    ("request met: error 500", 668),
    ("request met: error 503", 300),
    ("request met: error 504", 748),
    ("request met: request dropped", 362),
    ("the Lease of a volume that is gone was forgotten", 240),
    ("the leader changed during a drain", 17),
    ("the leader changed while a pod's time ran", 80),
    ("the out-of-service taint was added by proof", 166),
    ("the promise of an agent was taken back", 40),
    ("the world came to rest", 176),
    ("tolerations changed on a tainted node", 220),
];

/// Fewer are a look at some worlds: what happens seven times in most of them may happen in none of these.
const FEWEST_SEEDS: u64 = 100;

/// What happened too rarely in a campaign of `seeds` seeds: name, count, and the
/// least count. Fewer seeds than the table is for want proportionally less, and
/// nothing of what would come out below three.
#[must_use]
pub fn unreached(probes: &BTreeMap<String, u64>, seeds: u64) -> Vec<(&'static str, u64, u64)> {
    let wanted = |count: u64| count.saturating_mul(seeds.min(SEEDS)) / SEEDS;
    let counted = |name: &str| probes.get(name).copied().unwrap_or_default();
    let rows = SOMETIMES.iter().map(|(name, count)| (*name, counted(name), wanted(*count)));
    rows.filter(|(_, count, wanted)| seeds >= FEWEST_SEEDS && *wanted >= 3 && count < wanted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_happens_is_unreached_and_a_small_campaign_owes_less() {
        let missing = unreached(&BTreeMap::new(), SEEDS);
        assert_eq!(missing.len(), SOMETIMES.len());
        let (name, count) = SOMETIMES[0];
        let probes = BTreeMap::from([(name.to_owned(), count)]);
        assert!(unreached(&probes, SEEDS).iter().all(|(other, ..)| *other != name));
        assert_eq!(unreached(&BTreeMap::new(), 1), [], "one seed owes nothing");
    }
}
