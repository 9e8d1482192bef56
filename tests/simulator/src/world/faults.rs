//! The effects of a plan's faults on the world.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::json;

use super::host::Host;
use super::request::send_request;
use super::run::World;
use super::switch::{Order, ReportedPower, Switch};
use crate::api::{ApiServer, Disturbance, Following, Reach};
use crate::campaign::{Ailment, Fault};
use crate::checker::Assumption;

/// For how long a machine that a person turned off stays off, in seconds.
const REPAIR: u64 = 60;

/// The assumption about one kubelet, or about all, that a fault breaks, and for how many seconds.
const fn broken_by(fault: &Fault) -> Option<(Assumption, Option<usize>, u64)> {
    match fault {
        Fault::TroubleNode { node, seconds, .. } => Some((Assumption::Reports, Some(*node), *seconds)),
        Fault::CutServer { seconds, .. } | Fault::LagServer { seconds, .. } => {
            Some((Assumption::WatchDelivers, None, *seconds))
        }
        Fault::DeafKubelet { node, seconds } => Some((Assumption::WatchDelivers, Some(*node), *seconds)),
        Fault::StuckProcesses { node, seconds } | Fault::SickenNode { node, ailment: Ailment::Runtime, seconds } => {
            Some((Assumption::Ends, Some(*node), *seconds))
        }
        _ => None,
    }
}

impl World {
    /// Applies the fault, and undoes it when its time is over.
    pub(crate) async fn inject(self: &Arc<Self>, fault: &Fault) {
        let until = |seconds: u64| self.checker.now() + Duration::from_secs(seconds);
        if let Some(seconds) = fault.troubles_control() {
            self.checker.control_is_troubled(until(seconds));
        }
        self.break_assumption(fault);
        match fault {
            Fault::CutNode { node, seconds } => self.links.cut(&self.node(*node), until(*seconds)),
            Fault::CutReplica { replica, seconds } => self.cut_replica(*replica, *seconds).await,
            Fault::SilenceWatch { replica, kind, seconds } => self.silence_watch(*replica, kind, *seconds).await,
            Fault::TroubleReplica { replica, trouble, percent, seconds } => {
                let Some(place) = self.replicas.get(*replica) else { return };
                self.links.trouble(&place.name(), *trouble, *percent, until(*seconds));
            }
            Fault::TroubleNode { node, trouble, percent, seconds } => {
                self.links.trouble(&self.node(*node), *trouble, *percent, until(*seconds));
            }
            Fault::CutServer { server, answers_lost, seconds } => {
                let Some(server) = self.servers.get(*server) else { return };
                server.reach(if *answers_lost { Reach::AnswersLost } else { Reach::Cut });
                server.follow(Following::Held);
                self.servers_changed();
                self.wait(*seconds).await;
                server.reach(Reach::Whole);
                server.follow(Following::AtOnce);
                self.servers_changed();
            }
            Fault::LagServer { server, seconds } => {
                let Some(server) = self.servers.get(*server) else { return };
                server.follow(Following::Held);
                self.wait(*seconds).await;
                server.follow(Following::AtOnce);
            }
            Fault::RestartServer { server } => self.restart_server(*server),
            Fault::Forget => {
                let now = self.etcd.revision();
                self.etcd.compact(now);
                self.servers.all().iter().for_each(|server| server.compact_watch_cache(now));
            }
            Fault::SwitchServer { replica } => {
                let Some(place) = self.replicas.get(*replica) else { return };
                place.switch();
                self.disturb(place.caller(), Disturbance::Reset);
            }
            Fault::CrashReplica { replica, seconds } => self.end_replica(*replica, *seconds, false).await,
            Fault::StopReplica { replica, seconds } => self.end_replica(*replica, *seconds, true).await,
            Fault::PauseReplica { replica, seconds } => {
                let Some(host) = self.replicas.get(*replica).and_then(super::replica::Replica::host) else {
                    return;
                };
                host.pause();
                self.wait(*seconds).await;
                host.resume();
            }
            Fault::JumpReplica { replica, seconds } => self.jump_replica(*replica, *seconds),
            fault => self.inject_on_node(fault).await,
        }
    }

    fn break_assumption(&self, fault: &Fault) {
        if let Some((assumption, node, seconds)) = broken_by(fault) {
            let node = node.map(|node| self.node(node));
            let until = self.checker.now() + Duration::from_secs(seconds);
            self.checker.break_assumption(assumption, node.as_deref(), until);
        }
    }

    /// While no API server reaches etcd, no report of any kubelet arrives.
    pub(crate) fn servers_changed(&self) {
        self.checker.all_servers_are_cut(self.servers.all().iter().all(|server| server.is_cut()));
    }

    fn jump_replica(&self, replica: usize, seconds: i64) {
        let place = self.replicas.get(replica);
        if let Some((host, caller)) = place.and_then(|place| place.host().zip(place.caller())) {
            host.jump(SignedDuration::from_secs(seconds));
            self.checker.clock_jumps();
            self.checker.clock_of(&caller, seconds);
        }
    }

    async fn inject_on_node(self: &Arc<Self>, fault: &Fault) {
        match fault {
            Fault::JumpNode { node, seconds } => {
                if let Some(host) = self.machine_host(*node) {
                    host.jump(SignedDuration::from_secs(*seconds));
                }
            }
            Fault::PowerOff { node, back } => {
                self.power_off(*node);
                if let Some(back) = back {
                    self.wait(*back).await;
                    self.power_on(*node).await;
                }
            }
            Fault::Reboot { node } => {
                self.power_off(*node);
                self.power_on(*node).await;
            }
            Fault::KillKubelet { node, seconds } => {
                if let Some(host) = self.machine_host(*node) {
                    host.crash();
                    self.wait(*seconds).await;
                    self.start_kubelet_of(*node, Some(&host));
                }
            }
            Fault::Freeze { node, seconds } => {
                let hosts = [self.machine_host(*node), self.agent_of(*node)];
                self.stand_still(hosts, *seconds).await;
            }
            Fault::KillAgent { node, seconds } => self.kill_agent(*node, *seconds).await,
            Fault::PauseAgent { node, seconds } => {
                self.stand_still([self.agent_of(*node)], *seconds).await;
            }
            Fault::Terminate { node } => self.terminate(*node),
            Fault::StartAgain { node } => self.start_again(*node).await,
            Fault::Malfunction { node, how, seconds } => self.malfunction(*node, *how, *seconds),
            Fault::CutLink { node, server, seconds } => {
                let until = self.checker.now() + Duration::from_secs(*seconds);
                self.links.cut_from(&self.node(*node), &format!("apiserver-{server}"), until);
            }
            Fault::DeafKubelet { node, seconds } => {
                let until = self.checker.now() + Duration::from_secs(*seconds);
                self.with_machine(*node, |machine| machine.deaf_until = until.max(machine.deaf_until));
            }
            Fault::StuckProcesses { node, seconds } => {
                let until = self.checker.now() + Duration::from_secs(*seconds);
                self.with_machine(*node, |machine| machine.stuck_until = until.max(machine.stuck_until));
            }
            Fault::SickenNode { node, ailment, seconds } => {
                let until = self.checker.now() + Duration::from_secs(*seconds);
                self.with_machine(*node, |machine| machine.sick = Some((*ailment, until)));
            }
            Fault::HealNode { node } => self.with_machine(*node, |machine| machine.sick = None),
            fault => self.operator_action(fault).await,
        }
    }

    /// Changes of objects by people, scripts and kubelets.
    async fn operator_action(self: &Arc<Self>, fault: &Fault) {
        match fault {
            Fault::DeleteNode { node } => {
                self.person("DELETE", &format!("/api/v1/nodes/{}", self.node(*node)), None).await
            }
            Fault::FenceByHand { node, manner } => {
                let switch = Switch::new(self, *node, *manner);
                switch.execute(self, Order::Off).await;
                if switch.execute(self, Order::Status).await != Some(ReportedPower::Off) {
                    return self.checker.probe("a person learned nothing of a switch, and left the Node");
                }
                let runs = self.machine_host(*node).is_some();
                self.checker.probe(if runs {
                    "a switch said off of a machine that ran"
                } else {
                    "a switch said off of a machine that was off"
                });
                self.person("DELETE", &format!("/api/v1/nodes/{}", self.node(*node)), None).await;
                self.wait(REPAIR).await;
                switch.execute(self, Order::On).await;
            }
            Fault::Confirm { node, wrong, valid } => self.confirm_down(*node, *wrong, *valid).await,
            Fault::Taint { node } => {
                let taint = json!({ "key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute" });
                let patch = json!({ "spec": { "taints": [taint] } });
                self.person("PATCH", &format!("/api/v1/nodes/{}", self.node(*node)), Some(patch)).await;
            }
            Fault::DeletePod { pod } => {
                self.person("DELETE", &format!("/api/v1/namespaces/default/pods/data-{pod}"), None).await;
            }
            Fault::EditPod { pod, how } => self.edit_pod(*pod, *how).await,
            Fault::Linger { node } => self.linger(*node).await,
            Fault::ConfirmFormer { node } => self.confirm_former(*node).await,
            Fault::PauseFencing { node, seconds } => self.pause_fencing(*node, *seconds).await,
            Fault::RemovePolicy { node, seconds } => self.remove_policy(*node, *seconds).await,
            Fault::ForceDelete { pod } => self.force_delete(*pod).await,
            Fault::MakePod { pod } => self.make_pod(*pod).await,
            Fault::MakeBrief { number } => self.make_brief(*number).await,
            Fault::RenewVolume { pod, force } => self.renew_volume(*pod, *force).await,
            Fault::TearOff { pod } => self.tear_off(*pod).await,
            Fault::RestartAttacher => {
                self.attacher_starts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            Fault::Evict { pod } => {
                let pod = self.etcd.object("Pod", &format!("default/data-{pod}"));
                let uid = pod.map(|pod| super::str_at(&pod, "/metadata/uid").to_owned());
                self.evicted.lock().extend(uid);
            }
            Fault::RestartContainer { pod, why, seconds } => {
                let pod = self.etcd.object("Pod", &format!("default/data-{pod}"));
                let uid = pod.map(|pod| super::str_at(&pod, "/metadata/uid").to_owned());
                self.restarts.lock().extend(uid.map(|uid| (uid, (*why, *seconds))));
            }
            Fault::AddTaint { node, key, stamped } => self.add_taint(*node, *key, *stamped).await,
            Fault::LiftTaint { node, key } => self.lift_taint(*node, *key).await,
            Fault::Tolerate { pod, key, seconds } => self.tolerate(*pod, *key, *seconds).await,
            fault => self.tend_shops(fault).await,
        }
    }

    async fn stand_still(&self, hosts: impl IntoIterator<Item = Option<Arc<Host>>>, seconds: u64) {
        let hosts: Vec<_> = hosts.into_iter().flatten().collect();
        hosts.iter().for_each(|host| host.pause());
        self.wait(seconds).await;
        hosts.iter().for_each(|host| host.resume());
    }

    pub(super) async fn wait(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// A person sends a request that is not part of the timeline; 0: no answer came.
    pub(super) async fn prepare(&self, method: &str, path: &str, body: Option<serde_json::Value>) -> u16 {
        let Some(server) = self.servers.get(0) else { return 0 };
        send_request(&server, "person", method, path, body).await.map_or(0, |(code, _)| code)
    }

    pub(super) async fn person(&self, method: &str, path: &str, body: Option<serde_json::Value>) {
        let code = self.prepare(method, path, body).await;
        self.checker.note(format!("a person sends {method} {path}: {code}"));
    }

    fn disturb(&self, caller: Option<String>, how: Disturbance) {
        for server in self.servers.all() {
            caller.iter().for_each(|caller| server.disturb(caller, how));
        }
    }

    /// Its open watches hang, and break when the link is back.
    async fn cut_replica(&self, replica: usize, seconds: u64) {
        let Some(place) = self.replicas.get(replica) else { return };
        self.links.cut(&place.name(), self.checker.now() + Duration::from_secs(seconds));
        self.disturb(place.caller(), Disturbance::Mute);
        self.wait(seconds).await;
        self.disturb(place.caller(), Disturbance::Reset);
    }

    async fn silence_watch(&self, replica: usize, kind: &str, seconds: u64) {
        let caller = self.replicas.get(replica).and_then(super::replica::Replica::caller);
        let Some(caller) = caller else { return };
        let disturb = |how| {
            self.servers.all().iter().for_each(|server| server.disturb_kind(&caller, kind, how));
        };
        disturb(Disturbance::Mute);
        self.checker.probe(&format!("one watch fell silent beside live ones: {kind}"));
        self.wait(seconds).await;
        disturb(Disturbance::Reset);
    }

    async fn end_replica(self: &Arc<Self>, replica: usize, seconds: u64, gently: bool) {
        let Some(place) = self.replicas.get(replica) else { return };
        let (Some(launch), Some(caller)) = (self.launch, place.caller()) else { return };
        if gently {
            place.stop();
            // The kubelet's grace of a Deployment's pod.
            self.wait(30).await;
        }
        // When another process runs there already, the crash has nothing to end.
        if place.caller() == Some(caller) {
            place.crash();
        }
        self.wait(seconds).await;
        place.start(self, launch, self.plant);
    }

    pub(crate) fn restart_server(self: &Arc<Self>, index: usize) {
        let name = format!("apiserver-{index}");
        let host = Host::start(&name, self.chance.part(&name, self.etcd.revision()), &self.checker);
        let before = self.servers.get(index);
        let server = ApiServer::start(&name, &self.etcd, host.env(), Arc::<super::links::Links>::clone(&self.links));
        self.servers.set(index, server);
        if let Some(before) = before {
            before.crash();
        }
        self.servers_changed();
        let place = {
            let mut hosts = self.server_hosts.lock();
            if index < hosts.len() {
                hosts.get_mut(index).map(|place| std::mem::replace(place, host))
            } else {
                hosts.push(host);
                None
            }
        };
        if let Some(host) = place {
            host.crash();
        }
    }
}
