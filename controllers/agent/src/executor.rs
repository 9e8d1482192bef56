//! The loop, and the execution of orders.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{Either, select};
use http::{Method, StatusCode};
use pod_safety_clock::since_boot;
use pod_safety_watchdog::agent::{Agent, Answer, Order, Phase};
use pod_safety_watchdog::record::{BootSurvival, Record, State, Version, lease_name};
use tokio::signal::unix::Signal;

use crate::api::Api;
use crate::arguments::ENDING;
use crate::cgroups::Cgroups;
use crate::device::Watchdog;
use crate::gate::Marks;
use crate::kubelet::Kubelet;
use crate::report::{HostPaths, PodReporter};
use crate::survival::SurvivalLog;
use crate::{lease, log_line, mounts};

/// How often cgroups are read while pods end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Executes the orders of the agent's state machine.
pub struct Executor {
    /// The client of the API server.
    pub api: Api,
    /// The file with the token, which the kubelet renews.
    pub token: PathBuf,
    /// The name of the node.
    pub node: String,
    /// The namespace of its Lease.
    pub namespace: String,
    /// The minimum timeout of the device, which leaves time to end pods.
    pub min_timeout: Duration,
    /// The watchdog device.
    pub watchdog: Box<dyn Watchdog>,
    /// The cgroups of the pods.
    pub cgroups: Cgroups,
    /// The kubelet.
    pub kubelet: Kubelet,
    /// The kubelet's folder.
    pub kubelet_dir: PathBuf,
    /// The processes of the host.
    pub proc: PathBuf,
    /// The UID of the agent's own pod.
    pub own_pod_uid: String,
    /// The state that outlives this process.
    pub marks: Marks,
    /// The log that records for how long this boot outlives its last pet.
    pub survival: SurvivalLog,
    /// What an earlier boot recorded there.
    pub survived: Option<BootSurvival>,
    /// The boot ID.
    pub boot: Arc<str>,
    /// The report about the pods.
    pub report: PodReporter,
    /// When the device was petted last.
    pub last_pet: Option<Duration>,
    /// Since when the API server has refused each request.
    pub refused_since: Option<Duration>,
    /// The lines that were logged in this phase, so that each is logged once.
    pub logged: BTreeSet<String>,
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor").field("node", &self.node).finish_non_exhaustive()
    }
}

/// How often it is recorded that a machine that is to be reset still runs.
const SURVIVAL_INTERVAL: Duration = Duration::from_millis(250);

/// For how long an agent whose pods have ended is refused before its machine is reset. An API server that starts
/// refuses for seconds.
const REFUSED: Duration = Duration::from_secs(60);

/// Executes one order after the other, until the last.
pub async fn run(agent: &mut Agent, executor: &mut Executor, terminate: &mut Signal) {
    let mut phase = agent.phase();
    log_line(describe(phase));
    loop {
        if terminate.recv().now_or_never().is_some() {
            agent.shut_down();
        }
        let order = agent.next(since_boot());
        executor.log_phase_change(&mut phase, agent);
        let answer = match &order {
            Order::Exit => return,
            Order::Wait(until) => {
                let now = since_boot();
                let mut wait = until.saturating_sub(now);
                if phase == Phase::Fenced {
                    executor.record_survival(now);
                    wait = wait.min(SURVIVAL_INTERVAL);
                }
                let wait = Box::pin(tokio::time::sleep(wait));
                if let Either::Right(_) = select(wait, Box::pin(terminate.recv())).await {
                    agent.shut_down();
                }
                Answer::Done
            }
            order => executor.carry_out(order).await,
        };
        agent.handle_answer(since_boot(), &order, answer);
        executor.log_phase_change(&mut phase, agent);
    }
}

const fn describe(phase: Phase) -> &'static str {
    match phase {
        Phase::Begin => "Begin: no grant yet",
        Phase::Unarmed => "Unarmed: there is a grant, the watchdog is being opened",
        Phase::Armed => "Armed: the watchdog is petted once for each grant",
        Phase::Ending => {
            "Ending: the last grant is too old, or was revoked: the kubelet is stopped, pods are ended, nothing is petted"
        }
        Phase::Ended => "Ended: the pods have ended; the watchdog is petted while that can be proved",
        Phase::Fenced => {
            "Fenced: the controller revoked the grant, and the pods have ended; nothing is petted, so the watchdog resets this machine"
        }
        Phase::Left => "Left: the promise is taken back",
    }
}

impl Executor {
    fn log_phase_change(&mut self, phase: &mut Phase, agent: &Agent) {
        if agent.phase() != *phase {
            *phase = agent.phase();
            self.logged.clear();
            log_line(describe(*phase));
        }
    }

    /// Logs a line, unless it was logged in this phase.
    fn log_once(&mut self, line: String) {
        if !self.logged.contains(&line) {
            log_line(&line);
            self.logged.insert(line);
        }
    }

    async fn carry_out(&mut self, order: &Order) -> Answer {
        match order {
            Order::Read => self.read().await,
            Order::Write(record, over) => self.write(record, over.as_ref()).await,
            Order::Open => match self.watchdog.open() {
                Ok(device) => {
                    self.last_pet = Some(since_boot());
                    log_line(format_args!("the watchdog is open: {device:?}"));
                    if device.timeout < self.min_timeout {
                        let (has, least) = (device.timeout.as_secs(), self.min_timeout.as_secs());
                        log_line(format_args!(
                            "its timeout of {has} s is less than the {least} s that --late and --interval need: an outage of the API server may reset this machine"
                        ));
                    }
                    Answer::Opened(Arc::new(device))
                }
                Err(error) => self.failed(&error),
            },
            Order::Pet => match self.watchdog.pet() {
                Ok(()) => {
                    self.last_pet = Some(since_boot());
                    Answer::Done
                }
                Err(error) => self.failed(&format_args!("the watchdog was not petted: {error}")),
            },
            Order::Stop => self.stop().await,
            Order::Prove => {
                let blockers = self.list_blockers();
                let proved = blockers.is_empty();
                blockers.into_iter().for_each(|line| self.log_once(line));
                Answer::Verified(proved)
            }
            Order::Release => {
                self.kubelet.kill();
                match self.marks.open_gate() {
                    Ok(()) => {
                        log_line("the kubelet may start");
                        Answer::Done
                    }
                    Err(error) => self.failed(&format_args!("the gate of the kubelet does not open: {error}")),
                }
            }
            Order::Close => {
                self.marks.clear_promise();
                if let Err(error) = self.watchdog.close() {
                    log_line(format_args!("the watchdog was not stopped: {error}"));
                }
                Answer::Done
            }
            Order::Wait(_) | Order::Exit => Answer::Done,
        }
    }

    /// Records for how long this boot outlives its last pet: a drill compares it with the timeout of the device.
    fn record_survival(&mut self, now: Duration) {
        let Some(petted) = self.last_pet else { return };
        if let Err(error) = self.survival.record(&self.boot, now.saturating_sub(petted)) {
            self.log_once(format!(
                "it is not written down for how long this machine outlives its last pet: {error} (--record)"
            ));
        }
    }

    fn failed(&mut self, why: &dyn std::fmt::Display) -> Answer {
        self.log_once(why.to_string());
        Answer::Failed
    }

    async fn send(&mut self, method: Method, path: &str, body: Vec<u8>) -> Result<(StatusCode, bytes::Bytes), String> {
        let token =
            std::fs::read_to_string(&self.token).map_err(|error| format!("{}: {error}", self.token.display()))?;
        let answer = self.api.send(method, path, &token, body).await;
        self.note_refusal(answer.as_ref().ok().map(|(status, _)| *status));
        answer
    }

    fn note_refusal(&mut self, status: Option<StatusCode>) {
        let is_refused = matches!(status, Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN));
        self.refused_since = is_refused.then(|| self.refused_since.unwrap_or_else(since_boot));
    }

    fn leases_path(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    async fn read(&mut self) -> Answer {
        let path = format!("{}/{}", self.leases_path(), lease_name(&self.node));
        match self.send(Method::GET, &path, Vec::new()).await {
            Ok((StatusCode::OK, body)) => match lease::parse(&body) {
                Ok(seen) => Answer::Lease(Some(seen)),
                Err(error) => self.failed(&error),
            },
            Ok((StatusCode::NOT_FOUND, _)) => Answer::Lease(None),
            Ok((status, body)) => self.fail_with_status(status, &body),
            Err(error) => self.failed(&format_args!("the Lease was not read: {error}")),
        }
    }

    async fn write(&mut self, record: &Record, over: Option<&Version>) -> Answer {
        if record.state == State::Armed
            && !self.marks.has_promised(&record.boot.id)
            && let Err(error) = self.marks.record_promise(&record.boot.id)
        {
            return self.failed(&format_args!("no promise is made, because it cannot be written down: {error}"));
        }
        let paths = HostPaths {
            cgroups: &self.cgroups,
            proc: &self.proc,
            folder: &self.kubelet_dir,
            own_pod_uid: &self.own_pod_uid,
        };
        let pods = self.report.update(since_boot(), record, paths);
        let body = lease::encode((&self.namespace, &self.node), record, self.survived.as_ref(), pods, over);
        let (method, path) = match over {
            Some(_) => (Method::PUT, format!("{}/{}", self.leases_path(), lease_name(&self.node))),
            None => (Method::POST, self.leases_path()),
        };
        match self.send(method, &path, body).await {
            Ok((StatusCode::OK | StatusCode::CREATED, body)) => match lease::parse(&body) {
                Ok(seen) => Answer::Written(seen.version),
                Err(error) => self.failed(&error),
            },
            Ok((StatusCode::CONFLICT | StatusCode::NOT_FOUND, _)) => Answer::Conflict,
            Ok((status, body)) => self.fail_with_status(status, &body),
            Err(error) => self.failed(&format_args!("the Lease was not written: {error}")),
        }
    }

    fn fail_with_status(&mut self, status: StatusCode, body: &[u8]) -> Answer {
        let text: String =
            String::from_utf8_lossy(body).chars().filter(|letter| !letter.is_control()).take(300).collect();
        let way_out = match status {
            StatusCode::FORBIDDEN => {
                ": the agent needs get, create and update of its own Lease (agent.enabled of the chart)"
            }
            StatusCode::UNAUTHORIZED => ": the token of the service account is not accepted",
            _ => "",
        };
        self.failed(&format_args!("the API server answered {status}{way_out}: {text}"))
    }

    /// Stops the kubelet first, so that it does not restart the pods that are ended.
    async fn stop(&mut self) -> Answer {
        if let Err(error) = self.marks.close_gate() {
            return self.failed(&format_args!("the gate of the kubelet does not close: {error}"));
        }
        self.kubelet.stop();
        let until = since_boot() + ENDING;
        loop {
            // An unreadable cgroup is found by the proof.
            let pods = self.cgroups.pods(&self.own_pod_uid).unwrap_or_default();
            let running: Vec<_> = pods.iter().filter(|pod| !self.cgroups.is_empty(pod)).collect();
            if running.is_empty() || since_boot() >= until {
                break;
            }
            running.into_iter().for_each(|pod| self.cgroups.kill(pod));
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let leftover = mounts::volume_mounts(&self.proc, &self.kubelet_dir, &self.own_pod_uid).unwrap_or_default();
        if !leftover.is_empty() {
            // Logged before it is done: an unmount whose server is dead may never return.
            let names: Vec<String> = leftover.iter().map(ToString::to_string).collect();
            self.log_once(format!("unmounting {}", names.join(", ")));
            mounts::unmount_all(&leftover);
        }
        Answer::Done
    }

    /// What prevents the proof that all pods have ended, or a pet although they have.
    fn list_blockers(&self) -> Vec<String> {
        let mut blockers: Vec<String> = self.kubelet.why_not_stopped().into_iter().collect();
        if !self.marks.is_closed() {
            blockers.push("the gate of the kubelet is open".to_owned());
        }
        // A token lasts an hour, and only the kubelet renews it.
        if self.refused_since.is_some_and(|since| since_boot() >= since.saturating_add(REFUSED)) {
            blockers.push("the API server refuses the agent, and a stopped kubelet renews no token".to_owned());
        }
        let pods = self.cgroups.pods(&self.own_pod_uid);
        if pods.is_none() {
            blockers.push("the cgroups of pods cannot be read, or the agent's own is not among them".to_owned());
        }
        for pod in pods.iter().flatten().filter(|pod| !self.cgroups.is_empty(pod)) {
            let processes: Vec<String> =
                self.cgroups.remaining_processes(pod).iter().map(ToString::to_string).collect();
            blockers.push(format!("pod {} has not ended: {}", pod.uid, processes.join(", ")));
        }
        match mounts::volume_mounts(&self.proc, &self.kubelet_dir, &self.own_pod_uid) {
            Some(mounts) => blockers.extend(mounts.iter().map(|mount| format!("still mounted: {mount}"))),
            None => blockers.push(format!("the mounts of the host cannot be read in {}", self.proc.display())),
        }
        blockers
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::api::Server;
    use crate::device::Keeper;

    const OWN: &str = "0aaaaaaa-1b7e-4d51-9c6e-6d1f2a3b4c5d";
    const POD: &str = "1aaaaaaa-1b7e-4d51-9c6e-6d1f2a3b4c5d";

    /// Of a host whose only pod has ended, and whose kubelet is stopped.
    fn executor(root: &Path) -> Executor {
        let [own_cgroup, pod_cgroup] = [OWN, POD].map(|uid| format!("kubepods/pod{uid}"));
        for name in ["1", "kubelet.service", &own_cgroup, &pod_cgroup] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        for (file, text) in [
            ("cgroup.controllers", ""),
            ("closed", ""),
            ("kubelet.service/cgroup.freeze", ""),
            ("1/mountinfo", ""),
            ("1/stat", "1 (kubelet) S 0 1"),
            ("1/cgroup", "0::/kubelet.service"),
            ("kubelet.service/cgroup.events", "frozen 1"),
            (&format!("{pod_cgroup}/cgroup.events"), "populated 0"),
        ] {
            fs::write(root.join(file), text).unwrap();
        }
        let ca = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap().cert.pem();
        Executor {
            api: Api::new(Server::new("127.0.0.1".to_owned(), 1, ca.as_bytes()).unwrap(), ENDING),
            token: PathBuf::new(),
            node: "a".to_owned(),
            namespace: "safe".to_owned(),
            min_timeout: ENDING,
            watchdog: Box::new(Keeper::new(PathBuf::new(), ENDING, "6.1".into())),
            cgroups: Cgroups::find(root, root).unwrap(),
            kubelet: Kubelet::new(root, root, "kubelet", false),
            kubelet_dir: "/kubelet".into(),
            proc: root.to_owned(),
            own_pod_uid: OWN.to_owned(),
            marks: Marks::new(root).unwrap(),
            survival: SurvivalLog::new(root).unwrap(),
            survived: None,
            boot: "b".into(),
            report: PodReporter::default(),
            last_pet: None,
            refused_since: None,
            logged: BTreeSet::new(),
        }
    }

    #[test]
    fn whatever_is_left_or_cannot_be_read_prevents_the_proof() {
        let folder = tempfile::tempdir().unwrap();
        let (root, executor) = (folder.path(), executor(folder.path()));
        let write = |file: &str, text: &str| fs::write(root.join(file), text).unwrap();
        let left = || executor.list_blockers().join(", ");
        assert_eq!(left(), "");
        write("kubelet.service/cgroup.events", "populated 1");
        write(&format!("kubepods/pod{POD}/cgroup.events"), "populated 1");
        write("1/mountinfo", "33 22 0:40 / /kubelet/pods/a/x rw - nfs4 server:/ rw");
        for expected in ["the kubelet: process 1", POD, "still mounted: /kubelet/pods/a/x (nfs4)"] {
            assert!(left().contains(expected), "{expected}: {}", left());
        }
        fs::remove_file(root.join("closed")).unwrap();
        fs::remove_file(root.join("1/mountinfo")).unwrap();
        fs::remove_dir(root.join(format!("kubepods/pod{OWN}"))).unwrap();
        for expected in ["gate of the kubelet is open", "mounts of the host cannot", "cgroups of pods cannot"] {
            assert!(left().contains(expected), "{expected}: {}", left());
        }
    }

    /// A token lasts an hour, and the stopped kubelet does not renew it: after a longer outage the agent got no grant and
    /// petted on, and the node had no pods until a person reset it.
    #[test]
    fn bug_a_machine_whose_agent_is_refused_was_petted_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let mut executor = executor(folder.path());
        let [refused, forbidden, ok] = [401, 403, 200].map(|code| StatusCode::from_u16(code).ok());
        for (answers, lasts) in [([refused, None], false), ([forbidden, ok], false), ([refused, forbidden], true)] {
            answers.into_iter().for_each(|status| executor.note_refusal(status));
            assert_eq!(executor.refused_since.is_some(), lasts, "{answers:?}");
            assert_eq!(executor.list_blockers(), Vec::<String>::new(), "an API server that starts refuses, too");
        }
        executor.refused_since = Some(Duration::ZERO);
        executor.note_refusal(refused);
        assert!(executor.list_blockers().join(", ").contains("renews no token"), "{:?}", executor.list_blockers());
    }
}
