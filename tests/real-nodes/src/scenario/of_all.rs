//! Machines, and what is around them as a whole.

use super::{
    A_RACE, ANY_SAFE, BACK, BROKEN, CONTROLLER, ETCD, KUBELET, NO_BMC, PARTITION, QUIET, RECOVERS, STUCK, Scenario,
    case,
};
use crate::busy::WorkerBlock::{Hook, Image};
use crate::cluster::Mode;
use crate::fault::Fault::*;
use crate::machine::Service::{Agent, Containerd, Kubelet};

pub(super) const ALL: &[Scenario] = &[
    case("cable pulled", PARTITION).faults(&[(0, CablePulled)]).ends(50, [STUCK, RECOVERS, RECOVERS]).short(&Mode::ALL),
    case("cable pulled, a script deletes by force", "kubernetes#55713")
        .faults(&[(0, CablePulled), (1, ForcedByScript)])
        .ends(50, [BROKEN, RECOVERS, RECOVERS])
        .short(&[Mode::Plain, Mode::Replace]),
    case("power lost", "kubernetes#74689")
        .faults(&[(0, PowerLost)])
        .ends(60, [STUCK, RECOVERS, RECOVERS])
        .short(&[Mode::Guard]),
    case("power lost, no switch answers, a person confirms", "kubernetes#55713")
        .faults(&[(0, SwitchSilent), (0, PowerLost), (1, Confirmed)])
        .ends(60, [STUCK, BACK, BACK]),
    // Most of the 200 s passes before the loss.
    case("an old confirmation and a new loss", PARTITION)
        .faults(&[(0, ConfirmedBefore), (1, CablePulled)])
        .ends(200, [STUCK, STUCK, STUCK]),
    case("cable pulled, the power switch does not answer", "medik8s/self-node-remediation#258")
        .faults(&[(0, SwitchSilent), (0, CablePulled)])
        .ends(50, [STUCK, STUCK, STUCK])
        .short(&[Mode::Replace]),
    case("cable pulled, the switch is another machine's", "rook#14832")
        .faults(&[(0, SwitchOfAnother), (3, CablePulled)])
        .ends(50, [STUCK, STUCK, STUCK]),
    case("cable pulled, the switch says off and has not switched", "medik8s/self-node-remediation#261")
        .faults(&[(0, SwitchLies), (0, CablePulled)])
        .ends(60, [STUCK, BROKEN, BROKEN]),
    case("kubelet killed, the switch says off and has not switched", "medik8s/self-node-remediation#261")
        .faults(&[(0, SwitchLies), (0, Killed(Kubelet))])
        .ends(60, [STUCK, BROKEN, BROKEN]),
    case(
        "kubelet killed, the switch says off and has not switched, a second fact is asked for",
        "medik8s/self-node-remediation#261",
    )
    .faults(&[(0, SecondFact), (0, SwitchLies), (0, Killed(Kubelet))])
    .ends(60, [STUCK, STUCK, STUCK]),
    case("kubelet killed, a second fact is asked for", KUBELET)
        .faults(&[(0, SecondFact), (0, Killed(Kubelet))])
        .ends(60, [STUCK, RECOVERS, RECOVERS]),
    case("cable pulled, no switch, but agents with watchdogs", NO_BMC)
        .faults(&[(0, Agents), (4, CablePulled)])
        .ends(90, [STUCK, RECOVERS, RECOVERS]),
    case("cable pulled, its agent stopped: its watchdog resets it", NO_BMC)
        .faults(&[(0, Agents), (4, Stopped(Agent)), (4, CablePulled)])
        .ends(90, [STUCK, RECOVERS, RECOVERS]),
    case("an agent killed: its watchdog resets the machine", NO_BMC)
        .faults(&[(0, Agents), (4, Killed(Agent))])
        .ends(90, [QUIET, BACK, BACK]),
    case(
        "API server killed, back after 60 s, agents with watchdogs",
        "self-node-remediation: an outage of the API server resets no machine",
    )
    .faults(&[(0, Agents), (4, ApiServerKilled), (64, ApiServerStarted)])
    .ends(150, [BACK, BACK, BACK]),
    case(
        "API server killed, back after ten minutes, agents with watchdogs",
        "self-node-remediation: an outage of the API server resets no machine",
    )
    .faults(&[(0, Agents), (4, ApiServerKilled), (604, ApiServerStarted)])
    .ends(690, [BACK, BACK, BACK]),
    case("etcd restored to 20 s before, agents with watchdogs", ETCD)
        .faults(&[(0, Agents), (4, EtcdSaved), (24, EtcdRestored)])
        .ends(150, [BACK, BACK, BACK]),
    case("cable pulled, etcd restored to before that when the promise was revoked, agents with watchdogs", ETCD)
        .faults(&[(0, Agents), (4, EtcdSaved), (4, CablePulled), (24, EtcdRestored)])
        .ends(150, [STUCK, RECOVERS, RECOVERS]),
    case("cable pulled, plugged in when etcd is restored to before that, agents with watchdogs", ETCD)
        .faults(&[(0, Agents), (4, EtcdSaved), (4, CablePulled), (24, EtcdRestored), (24, CablePlugged)])
        .ends(150, [BACK, BACK, BACK]),
    case(
        "cable pulled, the switch says off and has not switched, agents with watchdogs as a second fact",
        "medik8s/self-node-remediation#261",
    )
    .faults(&[(0, AgentsAndSwitch), (4, SwitchLies), (4, CablePulled)])
    .ends(90, [STUCK, RECOVERS, RECOVERS]),
    case("cable pulled, a process that cannot be killed, agents: a watchdog resets the machine", NO_BMC)
        .faults(&[(0, Agents), (3, PodHangs), (4, CablePulled)])
        .ends(90, [STUCK, RECOVERS, RECOVERS]),
    case(
        "deleted, a process that cannot be killed, agents name it",
        "kubernetes: pods that stay Terminating on a node that reports",
    )
    .faults(&[(0, Agents), (4, PodHangs), (5, PodDeleted)])
    .ends(90, [ANY_SAFE, ANY_SAFE, ANY_SAFE]),
    case(
        "containerd hangs while a pod ends, agents report that it has ended",
        "kubernetes: pods that stay Terminating on a node that reports",
    )
    .faults(&[(0, Agents), (4, PodEndsUnseen)])
    .ends(130, [STUCK, RECOVERS, RECOVERS]),
    case("frozen, thawed after its pod was removed by force", "k9s#2819")
        .faults(&[(0, Frozen), (1, ForcedByScript), (30, Thawed)])
        .ends(60, [BROKEN, RECOVERS, RECOVERS]),
    case("frozen and thawed", "medik8s/self-node-remediation#258")
        .faults(&[(0, Frozen)])
        .ends(60, [STUCK, RECOVERS, RECOVERS]),
    case("cable pulled, tainted out-of-service by hand", "medik8s/fence-agents-remediation#92")
        .faults(&[(0, CablePulled), (1, TaintedByHand)])
        .ends(60, [BROKEN, RECOVERS, RECOVERS]),
    case("cable pulled, the Node deleted by hand", "kubernetes#23375")
        .faults(&[(0, CablePulled), (1, NodeDeleted)])
        .ends(60, [BROKEN, RECOVERS, RECOVERS]),
    case("the Node of a machine that is well, deleted by hand", "kubernetes#23375")
        .faults(&[(0, NodeCordonedAndDeleted)])
        .ends(130, [A_RACE, RECOVERS, RECOVERS])
        .short(&[Mode::Guard]),
    case("the Node of a machine that is well, deleted by hand while a hook postStart runs", "kubernetes#113606")
        .faults(&[(0, WorkerBusy(Hook)), (1, NodeCordonedAndDeleted)])
        .ends(200, [BROKEN, STUCK, STUCK]),
    case("the Node of a machine that is well, deleted by hand while an image is pulled", "kubernetes#113606")
        .faults(&[(0, WorkerBusy(Image)), (1, NodeCordonedAndDeleted)])
        .ends(200, [BROKEN, STUCK, STUCK]),
    case("containerd hangs, the switch is another machine's", "rook#14832")
        .faults(&[(0, SwitchOfAnother), (3, Stopped(Containerd))])
        .ends(60, [STUCK, STUCK, STUCK]),
    case("one way: it is not heard", PARTITION)
        .faults(&[(0, NotHeard)])
        .ends(60, [STUCK, RECOVERS, RECOVERS])
        .short(&[Mode::Guard]),
    case("one way: it does not hear", PARTITION).faults(&[(0, Deaf)]).ends(60, [STUCK, RECOVERS, RECOVERS]),
    case("half of its packets lost for 30 s", PARTITION)
        .faults(&[(0, Lossy(50)), (30, NothingLost)])
        .ends(60, [ANY_SAFE, BACK, BACK]),
    case("cable flaps: 5 s out, 5 s in, four times", "kubernetes#111385")
        .faults(&[
            (0, CablePulled),
            (5, CablePlugged),
            (10, CablePulled),
            (15, CablePlugged),
            (20, CablePulled),
            (25, CablePlugged),
            (30, CablePulled),
            (35, CablePlugged),
        ])
        .ends(60, [BACK, BACK, BACK]),
    case("its connections reset", PARTITION)
        .faults(&[(0, Reset), (2, Reset), (4, Reset)])
        .ends(20, [QUIET, QUIET, QUIET]),
    case("machines do not hear each other", "proposal: node and node")
        .faults(&[(0, PeersLost)])
        .ends(20, [QUIET, QUIET, QUIET]),
    case("two of three cables pulled", "gardener/machine-controller-manager#760")
        .faults(&[(0, CablePulled), (0, AnotherCablePulled)])
        .ends(45, [STUCK, STUCK, STUCK]),
    case("kubelet killed, its pods go on", KUBELET)
        .faults(&[(0, Killed(Kubelet))])
        .ends(60, [STUCK, RECOVERS, RECOVERS])
        .short(&[Mode::Replace]),
    case("kubelet stopped for 30 s", KUBELET)
        .faults(&[(0, Stopped(Kubelet)), (30, GoesOn(Kubelet))])
        .ends(70, [BACK, RECOVERS, RECOVERS]),
    case("kubelet restarted", KUBELET)
        .faults(&[(0, Killed(Kubelet)), (1, Started(Kubelet))])
        .ends(20, [BACK, BACK, BACK]),
    case("containerd killed", KUBELET).faults(&[(0, Killed(Containerd))]).ends(60, [STUCK, ANY_SAFE, ANY_SAFE]),
    case("rebooted", "medik8s/self-node-remediation#16").faults(&[(0, Rebooted)]).ends(40, [BACK, BACK, BACK]),
    case("power lost, no switch answers, the Node deleted by hand, it joins again after a boot", "kubernetes#23375")
        .faults(&[(0, SwitchSilent), (0, PowerLost), (1, NodeDeleted), (2, PowerBack)])
        .ends(100, [RECOVERS, RECOVERS, RECOVERS]),
    case("the Node of a machine that is well, deleted by hand, and the machine rebooted", "kubernetes#23375")
        .faults(&[(0, NodeCordonedAndDeleted), (1, Rebooted)])
        .ends(100, [BACK, BACK, BACK]),
    case("API server killed, back after 20 s", ETCD)
        .faults(&[(0, ApiServerKilled), (20, ApiServerStarted)])
        .ends(100, [BACK, BACK, BACK]),
    case("etcd stands still for 20 s", ETCD)
        .faults(&[(0, EtcdPaused), (20, EtcdResumed)])
        .ends(100, [BACK, BACK, BACK]),
    case("cable pulled, kube-controller-manager killed, back after 15 s", CONTROLLER)
        .faults(&[(0, CablePulled), (1, KcmKilled), (16, KcmStarted)])
        .ends(70, [STUCK, RECOVERS, RECOVERS]),
    case("cable pulled, our leader killed while it fences", CONTROLLER)
        .faults(&[(0, CablePulled), (14, OursKilled), (16, OursStarted)])
        .ends(80, [STUCK, RECOVERS, RECOVERS]),
    case("cable pulled, our leader stands still for 10 s and goes on", "proposal: concurrent controllers")
        .faults(&[(0, CablePulled), (14, OursPaused), (24, OursResumed)])
        .ends(80, [STUCK, RECOVERS, RECOVERS]),
    case("cable pulled, its pod deleted, plugged in after 30 s", "kubernetes#107543")
        .faults(&[(0, CablePulled), (1, PodDeleted), (30, CablePlugged)])
        .ends(110, [RECOVERS, RECOVERS, RECOVERS]),
];
