//! A description of a fault, as the timeline of a run shows it.

use std::fmt;

use super::evictions::Withdrawal;
use super::fencing::Malfunction;
use super::kubelets::Edit;
use super::plan::{Ailment, Fault, Limit, Manner, Restart, Trouble};
use crate::world::TROUBLES;

/// Longer than any run: until a person ends it.
const WITHOUT_END: u64 = 1_000_000;

/// ` for 90 s`, or nothing if it does not end by itself.
fn lasting(seconds: u64) -> String {
    if seconds < WITHOUT_END { format!(" for {seconds} s") } else { String::new() }
}

fn taint(key: usize) -> &'static str {
    TROUBLES.get(key).copied().unwrap_or("an unknown taint")
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CutNode { node, seconds } => write!(f, "node-{node} loses its network{}", lasting(*seconds)),
            Self::CutLink { node, server, seconds } => {
                write!(f, "node-{node} does not reach apiserver-{server}{}", lasting(*seconds))
            }
            Self::TroubleNode { node, trouble, percent, seconds } => {
                write!(f, "{percent}% of the requests of node-{node} fail ({trouble}){}", lasting(*seconds))
            }
            Self::PowerOff { node, back: None } => write!(f, "node-{node} loses power"),
            Self::PowerOff { node, back: Some(back) } => write!(f, "node-{node} loses power for {back} s"),
            Self::Reboot { node } => write!(f, "node-{node} reboots"),
            Self::KillKubelet { node, seconds } => write!(f, "the kubelet of node-{node} is down{}", lasting(*seconds)),
            Self::Freeze { node, seconds } => write!(f, "node-{node} freezes{}", lasting(*seconds)),
            Self::KillAgent { node, seconds } => {
                write!(f, "the agent of node-{node} is killed, and away{}", lasting(*seconds))
            }
            Self::PauseAgent { node, seconds } => {
                write!(f, "the agent of node-{node} stands still{}", lasting(*seconds))
            }
            Self::DeafKubelet { node, seconds } => {
                write!(f, "the kubelet of node-{node} receives no changes of its pods{}", lasting(*seconds))
            }
            Self::StuckProcesses { node, seconds } => {
                write!(f, "processes on node-{node} hang in the kernel{}", lasting(*seconds))
            }
            Self::SickenNode { node, ailment, seconds } => {
                let what = match ailment {
                    Ailment::Runtime => "container runtime",
                    Ailment::Network => "pod network",
                };
                write!(f, "the {what} of node-{node} fails{}", lasting(*seconds))
            }
            Self::HealNode { node } => write!(f, "node-{node} is repaired"),
            Self::JumpNode { node, seconds } => write!(f, "the clock of node-{node} jumps by {seconds} s"),
            Self::Terminate { node } => write!(f, "another actor terminates the instance of node-{node}"),
            Self::StartAgain { node } => write!(f, "another actor starts the instance of node-{node}"),
            Self::Malfunction { node, how, seconds } => {
                write!(f, "the fence device of node-{node} {how}{}", lasting(*seconds))
            }
            other => other.fmt_control_fault(f),
        }
    }
}

impl Fault {
    /// Faults of API servers and of processes under test.
    fn fmt_control_fault(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CutReplica { replica, seconds } => {
                write!(f, "replica-{replica} reaches no API server{}", lasting(*seconds))
            }
            Self::SilenceWatch { replica, kind, seconds } => {
                write!(f, "the watch of replica-{replica} for {kind} gets no events{}", lasting(*seconds))
            }
            Self::TroubleReplica { replica, trouble, percent, seconds } => {
                let lasting = lasting(*seconds);
                write!(f, "{percent}% of the requests of replica-{replica} fail ({trouble}){lasting}")
            }
            Self::CutServer { server, answers_lost, seconds } => {
                let how = if *answers_lost { ", but its writes are applied" } else { "" };
                write!(f, "apiserver-{server} does not reach etcd{}{how}", lasting(*seconds))
            }
            Self::LagServer { server, seconds } => write!(f, "apiserver-{server} shows old state{}", lasting(*seconds)),
            Self::RestartServer { server } => write!(f, "apiserver-{server} restarts"),
            Self::Forget => f.write_str("the history of changes is compacted"),
            Self::SwitchServer { replica } => write!(f, "replica-{replica} changes to the next API server"),
            Self::CrashReplica { replica, seconds } => {
                write!(f, "replica-{replica} crashes and is away{}", lasting(*seconds))
            }
            Self::PauseReplica { replica, seconds } => write!(f, "replica-{replica} is paused{}", lasting(*seconds)),
            Self::StopReplica { replica, seconds } => {
                write!(f, "replica-{replica} gets SIGTERM and is away{}", lasting(*seconds))
            }
            Self::JumpReplica { replica, seconds } => write!(f, "the clock of replica-{replica} jumps by {seconds} s"),
            other => other.fmt_operator_action(f),
        }
    }

    /// Actions of people and their programs.
    fn fmt_operator_action(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeleteNode { node } => write!(f, "the Node object of node-{node} is deleted"),
            Self::FenceByHand { node, manner } => {
                let how = match manner {
                    Manner::Honest => "which works",
                    Manner::SaysOffWhileOn => "which reports off and does nothing",
                    Manner::Late(_) => "which acts late",
                    Manner::Twice(_) => "which acts twice",
                    Manner::DoneButSilent => "which acts and does not answer",
                    Manner::Dead => "which does not work",
                };
                write!(f, "a person powers node-{node} off with its switch, {how}")
            }
            Self::Confirm { node, wrong, .. } => {
                let how = if *wrong { ", wrongly" } else { "" };
                write!(f, "a person confirms that node-{node} is off{how}")
            }
            Self::PauseFencing { node, seconds } => {
                write!(f, "a person pauses fencing of node-{node}{}", lasting(*seconds))
            }
            Self::RemovePolicy { node, seconds } => {
                write!(f, "a person deletes the FencePolicy of node-{node}{}", lasting(*seconds))
            }
            Self::Taint { node } => write!(f, "node-{node} gets the out-of-service taint"),
            Self::AddTaint { node, key, .. } => write!(f, "node-{node} gets the taint {}", taint(*key)),
            Self::LiftTaint { node, key } => write!(f, "node-{node} loses the taint {}", taint(*key)),
            Self::Tolerate { pod, key, seconds } => {
                let taint = taint(*key);
                match seconds {
                    None => write!(f, "a person lets data-{pod} tolerate the taint {taint}"),
                    Some(0) => write!(f, "data-{pod} is set not to tolerate the taint {taint}"),
                    Some(seconds) => write!(f, "a person lets data-{pod} tolerate the taint {taint} for {seconds} s"),
                }
            }
            Self::DeletePod { pod } => write!(f, "data-{pod} is deleted"),
            Self::ForceDelete { pod } => write!(f, "data-{pod} is force deleted"),
            Self::MakePod { pod } => write!(f, "another pod is created with the volume of data-{pod}"),
            Self::MakeBrief { number } => write!(f, "brief-{number} is created, with a volume of its own"),
            Self::RenewVolume { pod, force } => {
                let how = if *force { ", without their finalizers" } else { "" };
                write!(f, "the claim and the volume of data-{pod} are deleted and created again{how}")
            }
            Self::TearOff { pod } => write!(f, "the attachments of the volume of data-{pod} are deleted"),
            Self::RestartAttacher => f.write_str("the attach/detach controller restarts"),
            Self::RestartContainer { pod, why: Restart::Crashed, seconds } => {
                write!(f, "a container of data-{pod} crashes, and takes {seconds} s to start again")
            }
            Self::RestartContainer { pod, why: Restart::Unhealthy, seconds } => {
                write!(f, "a container of data-{pod} fails its probe, and takes {seconds} s to start again")
            }
            Self::Linger { node } => write!(f, "a tenant has a pod on node-{node} that does not end"),
            Self::ConfirmFormer { node } => write!(f, "a person confirms that a former life of node-{node} has ended"),
            Self::EditPod { pod, how } => write!(f, "a tenant edits data-{pod}: {how}"),
            Self::Evict { pod } => write!(f, "the kubelet of data-{pod} evicts it"),
            other => other.fmt_workload_fault(f),
        }
    }

    /// What happens to workloads with a PodDisruptionBudget.
    fn fmt_workload_fault(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deploy { workload, replicas, limit, .. } => {
                write!(f, "shop-{workload} is created: replicas {replicas}, {limit}")
            }
            Self::Scale { workload, replicas } => write!(f, "shop-{workload} is scaled: replicas {replicas}"),
            Self::ChangeBudget { workload, limit } => write!(f, "shop-{workload} now has {limit}"),
            Self::StallWorkloads { seconds } => {
                write!(f, "the controllers of workloads do nothing{}", lasting(*seconds))
            }
            Self::Sicken { workload, pod, seconds } => {
                write!(f, "pod {pod} of shop-{workload} is not ready{}", lasting(*seconds))
            }
            Self::Drain { node, careful, .. } => {
                let how = if *careful { "pod-safety drain" } else { "kubectl drain" };
                write!(f, "node-{node} is drained with {how}")
            }
            Self::RequestEviction { pod, requester, .. } => {
                write!(f, "client-{requester} requests the eviction of pod {pod}")
            }
            Self::WithdrawRequest { requester, how } => {
                let how = match how {
                    Withdrawal::Properly => "withdraws its request",
                    Withdrawal::Delete => "deletes its request",
                    Withdrawal::Again => "withdraws its request, and requests again",
                };
                write!(f, "client-{requester} {how}")
            }
            Self::SwitchGateOff { seconds } => write!(f, "the Eviction API is switched off{}", lasting(*seconds)),
            Self::EvictAtOnce { workload, clients, .. } => {
                write!(f, "the pods of shop-{workload} are evicted at once (clients: {clients})")
            }
            // All other faults are described above.
            _ => f.write_str(&self.kind()),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delay(milliseconds) => write!(f, "up to {milliseconds} ms late"),
            other => f.write_str(&other.name()),
        }
    }
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image => f.write_str("another image"),
            Self::Finalizer(seconds) => write!(f, "a finalizer{}", lasting(*seconds)),
            Self::ShortGrace => f.write_str("deleted with a grace period of 1 s"),
            Self::Report => f.write_str("reported not ready, and ready, in turns"),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MinAvailable(count) => write!(f, "minAvailable {count}"),
            Self::MinPercent(percent) => write!(f, "minAvailable {percent}%"),
            Self::MaxUnavailable(count) => write!(f, "maxUnavailable {count}"),
            Self::MaxPercent(percent) => write!(f, "maxUnavailable {percent}%"),
        }
    }
}

impl fmt::Display for Malfunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DoneButSilent => f.write_str("acts and does not answer"),
            Self::AcksOnly => f.write_str("acknowledges orders and does not act"),
            Self::LateAfterFailure(seconds) => write!(f, "reports a failure and acts {seconds} s later"),
            Self::WrongMachine(node) => write!(f, "reaches the machine of node-{node}"),
            Self::Flaps => f.write_str("does not act, and reports off and on in turns"),
            Self::Unreachable => f.write_str("cannot be reached"),
            Self::Silent => f.write_str("does not answer"),
            Self::StaleOff => f.write_str("does not act, and reports off from an old cache"),
            Self::Throttles => f.write_str("limits the rate of requests"),
            Self::RegionLost => f.write_str("has lost its region"),
            Self::StopsSlowly(seconds) => write!(f, "takes {seconds} s to stop the instance"),
            Self::DiesWithIt => f.write_str("loses its own power with the machine"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The timeline printed `fault: PowerOff { node: 0, back: None }`.
    #[test]
    fn bug_faults_were_described_by_debug_text() {
        let line = |fault: Fault| fault.to_string();
        assert_eq!(line(Fault::PowerOff { node: 0, back: None }), "node-0 loses power");
        assert_eq!(line(Fault::PowerOff { node: 0, back: Some(9) }), "node-0 loses power for 9 s");
        assert_eq!(
            line(Fault::CutNode { node: 1, seconds: 100_000_000 }),
            "node-1 loses its network",
            "what a key does lasts until another key"
        );
        let how = Malfunction::WrongMachine(2);
        assert_eq!(
            line(Fault::Malfunction { node: 1, how, seconds: 9 }),
            "the fence device of node-1 reaches the machine of node-2 for 9 s"
        );
        for seed in 0..200 {
            for (_, fault) in crate::campaign::draw(seed).faults {
                let text = line(fault.clone());
                let is_debug = text == fault.kind() || ["{", "Some(", "None"].iter().any(|mark| text.contains(mark));
                assert!(!is_debug, "{fault:?}: {text}");
            }
        }
    }
}
