//! One of several API servers or members of etcd; clocks, logs, switches and storage of another kind.

use super::{BACK, CONTROLLER, ETCD, PARTITION, QUIET, RECOVERS, STUCK, Scenario, case};
use crate::fault::Fault::*;
use crate::plane::ProcessFault::{Die, StandStill};

pub(super) const ALL: &[Scenario] = &[
    case("one of two API servers killed", ETCD).faults(&[(0, Server(0, Die))]).ends(30, [BACK, BACK, BACK]),
    case("one of two API servers stands still", ETCD)
        .faults(&[(0, Server(0, StandStill))])
        .ends(30, [BACK, BACK, BACK]),
    case("one of three members of etcd killed", ETCD).faults(&[(0, Member(0, Die))]).ends(30, [BACK, BACK, BACK]),
    case("one of three members of etcd stands still", ETCD)
        .faults(&[(0, Member(0, StandStill))])
        .ends(30, [BACK, BACK, BACK]),
    case("one of three members of etcd cut from the others", ETCD)
        .faults(&[(0, MemberCut(0))])
        .ends(30, [BACK, BACK, BACK]),
    case("the node's API server stands still, and it is sent to no other", PARTITION)
        .faults(&[(0, Pinned(1)), (4, Server(1, StandStill))])
        .ends(60, [STUCK, RECOVERS, RECOVERS]),
    case("the node's API server is in etcd's minority, and it is sent to no other", PARTITION)
        .faults(&[(0, Pinned(1)), (4, MemberCut(1))])
        .ends(60, [STUCK, RECOVERS, RECOVERS]),
    case("cable pulled, and our leader's API server falls into etcd's minority while it fences", CONTROLLER)
        .faults(&[(0, OursPinned(1)), (3, CablePulled), (16, MemberCut(1))])
        .ends(60, [STUCK, RECOVERS, RECOVERS]),
    case("cable pulled, one member of etcd and one API server killed while we fence", CONTROLLER)
        .faults(&[(0, CablePulled), (13, Server(0, Die)), (13, Member(0, Die))])
        .ends(60, [STUCK, RECOVERS, RECOVERS]),
    case("its packets take 300 ms each way", PARTITION).faults(&[(0, Slow(300))]).ends(30, [QUIET, QUIET, QUIET]),
    case("its packets take 5 s each way", PARTITION).faults(&[(0, Slow(5000))]).ends(60, [STUCK, RECOVERS, RECOVERS]),
    case("cable pulled, the file system of our logs is full", CONTROLLER)
        .faults(&[(0, OursLogFull), (1, CablePulled)])
        .ends(60, [STUCK, RECOVERS, RECOVERS]),
    case("cable pulled, our leader's clock is an hour ahead", CONTROLLER)
        .faults(&[(0, OursClock("+3600")), (1, CablePulled)])
        .ends(60, [STUCK, RECOVERS, RECOVERS]),
    case("cable pulled, our leader's clock is an hour behind", CONTROLLER)
        .faults(&[(0, OursClock("-3600")), (1, CablePulled)])
        .ends(60, [STUCK, RECOVERS, RECOVERS]),
    case("cable pulled, our leader's clock is set an hour ahead and back while it fences", CONTROLLER)
        .faults(&[(0, OursClock("+0")), (1, CablePulled), (12, OursClockSet("+3600")), (16, OursClockSet("+0"))])
        .ends(60, [STUCK, RECOVERS, RECOVERS]),
    case("cable pulled, our leader's clock runs at twice its pace", CONTROLLER)
        .faults(&[(0, OursClock("+0 x2")), (1, CablePulled)])
        .ends(60, [STUCK, RECOVERS, RECOVERS]),
    case("cable pulled, a script deletes by force, the volume lets one in", "kubernetes#55713")
        .faults(&[(0, CablePulled), (1, ForcedByScript)])
        .ends(50, [STUCK, RECOVERS, RECOVERS])
        .alone(),
    case("cable pulled, the switch speaks IPMI", PARTITION)
        .faults(&[(0, SwitchByIpmi), (5, CablePulled)])
        .ends(60, [STUCK, RECOVERS, RECOVERS]),
];
