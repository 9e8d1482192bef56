//! Rounds of random faults drawn from a seed. In every round: no violation, and the identities recover or pod-safety
//! reports which evidence is missing.

use std::time::Duration;

use crate::fault::Fault::{self, *};
use crate::machine::Service::{Agent, Containerd, Kubelet};
use crate::plane::ProcessFault::{Die, StandStill};

/// The length of a round, then a person repairs the remaining faults.
const LASTS: u64 = 70;
/// The time in which a machine is drained, confirmed and back, before it is lost.
const CONFIRMED_WITHIN: u64 = 150;

/// The length of a round with agents, whose promises take time.
const LASTS_WITH_AGENTS: u64 = 110;

/// Random numbers, the same for the same seed (`SplitMix64`).
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % limit.max(1) as u64).unwrap_or_default()
    }
}

/// Faults of the machine, and what ends each; some never end by themselves.
const OF_MACHINE: [(Fault, Option<Fault>); 15] = [
    (CablePulled, Some(CablePlugged)),
    (CablePulled, None),
    (PowerLost, None),
    (Rebooted, None),
    (Frozen, Some(Thawed)),
    (NotHeard, Some(NothingLost)),
    (Deaf, Some(NothingLost)),
    (Lossy(50), Some(NothingLost)),
    (Slow(1000), None),
    (Killed(Kubelet), None),
    (Stopped(Kubelet), Some(GoesOn(Kubelet))),
    (Killed(Containerd), None),
    (Stopped(Containerd), Some(GoesOn(Containerd))),
    (NodeCordonedAndDeleted, None),
    (ConfirmedBefore, Some(CablePulled)),
];

/// Faults of other parts, at the same time.
const OF_REST: [(Fault, Option<Fault>); 15] = [
    (Reset, None),
    (ApiServerKilled, Some(ApiServerStarted)),
    (EtcdPaused, Some(EtcdResumed)),
    (Server(0, Die), None),
    (Server(0, StandStill), None),
    (Member(0, Die), None),
    (MemberCut(0), None),
    (OursLogFull, None),
    (KcmKilled, Some(KcmStarted)),
    (OursKilled, Some(OursStarted)),
    (OursPaused, Some(OursResumed)),
    (SwitchSilent, Some(SwitchAnswers)),
    (SwitchSilent, None),
    (ForcedByScript, None),
    (PodDeleted, None),
];

/// Faults of a machine that has an agent, and what ends each.
const OF_MACHINE_WITH_AGENT: [(Fault, Option<Fault>); 13] = [
    (CablePulled, Some(CablePlugged)),
    (CablePulled, None),
    (NotHeard, Some(NothingLost)),
    (Deaf, Some(NothingLost)),
    (Lossy(50), Some(NothingLost)),
    (PowerLost, None),
    (Frozen, Some(Thawed)),
    (Starved, Some(Fed)),
    (Killed(Agent), None),
    (Stopped(Agent), Some(GoesOn(Agent))),
    (Stopped(Agent), None),
    (Killed(Kubelet), None),
    (Stopped(Containerd), Some(GoesOn(Containerd))),
];

/// Faults of other parts, at the same time.
const OF_REST_WITH_AGENT: [(Fault, Option<Fault>); 10] = [
    (CablePulled, Some(CablePlugged)),
    (Stopped(Agent), Some(GoesOn(Agent))),
    (Killed(Agent), Some(Started(Agent))),
    (Reset, None),
    (ApiServerKilled, Some(ApiServerStarted)),
    (EtcdPaused, Some(EtcdResumed)),
    (Server(0, Die), None),
    (Member(0, Die), None),
    (OursKilled, Some(OursStarted)),
    (OursPaused, Some(OursResumed)),
];

/// The faults of a round on machines with agents, in the order of their times. In every other round there is also a
/// switch that reports falsely.
pub(crate) fn draw_with_agents(chance: &mut Chance) -> Vec<(u64, Fault)> {
    let mut faults = match chance.below(2) {
        0 => vec![(0, Agents)],
        _ => vec![(0, AgentsAndSwitch), (0, SwitchLies)],
    };
    let (fault, end) = OF_MACHINE_WITH_AGENT[chance.below(OF_MACHINE_WITH_AGENT.len())];
    faults.push((1, fault));
    faults.extend(end.map(|end| (3 + chance.below(40) as u64, end)));
    if chance.below(3) > 0 {
        let (fault, end) = OF_REST_WITH_AGENT[chance.below(OF_REST_WITH_AGENT.len())];
        let begins = 1 + chance.below(30) as u64;
        faults.push((begins, fault));
        faults.extend(end.map(|end| (begins + 2 + chance.below(20) as u64, end)));
    }
    faults.sort_by_key(|(at, _)| *at);
    faults
}

/// The faults of a round, in the order of their times.
pub(crate) fn draw(chance: &mut Chance) -> Vec<(u64, Fault)> {
    let (fault, end) = OF_MACHINE[chance.below(OF_MACHINE.len())];
    let mut faults = vec![(0, fault)];
    let ends = 4 + chance.below(26) as u64;
    faults.extend(end.map(|end| (ends, end)));
    // Every third round has only one fault.
    if chance.below(3) > 0 {
        let (fault, end) = OF_REST[chance.below(OF_REST.len())];
        let begins = chance.below(20) as u64;
        faults.push((begins, fault));
        faults.extend(end.map(|end| (begins + 2 + chance.below(12) as u64, end)));
    }
    faults.sort_by_key(|(at, _)| *at);
    // A script that force deletes a pod must reach an API server.
    if faults.iter().any(|(_, fault)| *fault == ForcedByScript) && !ends_no_service(&faults) {
        faults.retain(|(_, fault)| *fault != ForcedByScript);
    }
    faults
}

/// How long these faults last.
pub(crate) fn lasts(faults: &[(u64, Fault)]) -> Duration {
    let has = |one: Fault| faults.iter().any(|(_, fault)| *fault == one);
    Duration::from_secs(match () {
        () if has(Agents) || has(AgentsAndSwitch) => LASTS_WITH_AGENTS,
        () if has(ConfirmedBefore) => LASTS + CONFIRMED_WITHIN,
        () => LASTS,
    })
}

/// Whether the pod is sure to be deleted gracefully.
fn ends_no_service(faults: &[(u64, Fault)]) -> bool {
    faults.iter().any(|(_, fault)| matches!(fault, PowerLost | Killed(Kubelet)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_its_round() {
        let rounds = |seed| {
            let mut chance = Chance::new(seed);
            (0..20).map(|_| draw(&mut chance)).collect::<Vec<_>>()
        };
        assert_eq!(rounds(1), rounds(1));
        assert_ne!(rounds(1), rounds(2));
    }

    #[test]
    fn each_listed_fault_is_drawn_eventually() {
        let mut chance = Chance::new(7);
        let drawn: Vec<_> = (0..2000).flat_map(|_| draw(&mut chance)).map(|(_, fault)| fault).collect();
        for (fault, _) in OF_MACHINE.into_iter().chain(OF_REST) {
            assert!(drawn.contains(&fault), "{fault:?}");
        }
        let drawn: Vec<_> = (0..2000).flat_map(|_| draw_with_agents(&mut chance)).map(|(_, fault)| fault).collect();
        for (fault, _) in OF_MACHINE_WITH_AGENT.into_iter().chain(OF_REST_WITH_AGENT) {
            assert!(drawn.contains(&fault), "{fault:?}");
        }
    }
}
