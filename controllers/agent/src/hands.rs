//! The loop, and who carries out which order.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{Either, select};
use http::{Method, StatusCode};
use pod_safety_clock::since_boot;
use pod_safety_watchdog::agent::{Agent, Answer, Order, Phase};
use pod_safety_watchdog::record::{Record, State, Survived, Version, lease_name};
use tokio::signal::unix::Signal;

use crate::api::Api;
use crate::arguments::ENDING;
use crate::cgroups::Cgroups;
use crate::device::Watchdog;
use crate::gate::Marks;
use crate::kubelet::Kubelet;
use crate::report::{Places, Report};
use crate::survived::Survival;
use crate::{lease, mounts, say};

/// How often cgroups are looked at while pods end.
const LOOK: Duration = Duration::from_millis(50);

/// What carries out orders.
pub struct Hands {
    /// To the API server.
    pub api: Api,
    /// The file with the token, which the kubelet renews.
    pub token: PathBuf,
    /// The name of the node.
    pub node: String,
    /// The namespace of its Lease.
    pub namespace: String,
    /// The timeout that ending pods needs.
    pub least: Duration,
    /// The device.
    pub watchdog: Box<dyn Watchdog>,
    /// The pods.
    pub cgroups: Cgroups,
    /// The kubelet.
    pub kubelet: Kubelet,
    /// Its folder.
    pub folder: PathBuf,
    /// The processes of the host.
    pub proc: PathBuf,
    /// The UID of the agent's own pod.
    pub own: String,
    /// What outlives this process.
    pub marks: Marks,
    /// Where is written down for how long this boot outlives its last pet.
    pub survival: Survival,
    /// What an earlier boot wrote there.
    pub survived: Option<Survived>,
    /// The boot ID.
    pub boot: Arc<str>,
    /// What is reported of the pods.
    pub report: Report,
    /// When the device was petted last.
    pub petted: Option<Duration>,
    /// What was said last, so that it is said once.
    pub said: BTreeSet<String>,
}

impl std::fmt::Debug for Hands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hands").field("node", &self.node).finish_non_exhaustive()
    }
}

/// How often it is written down that a machine that is to be reset still runs.
const SURVIVES: Duration = Duration::from_millis(250);

/// Carries out one order after the other, until the last.
pub async fn run(agent: &mut Agent, hands: &mut Hands, terminate: &mut Signal) {
    let mut phase = agent.phase();
    say(explained(phase));
    loop {
        if terminate.recv().now_or_never().is_some() {
            agent.leave();
        }
        let order = agent.next(since_boot());
        hands.notice(&mut phase, agent);
        let answer = match &order {
            Order::Exit => return,
            Order::Wait(until) => {
                let now = since_boot();
                let mut wait = until.saturating_sub(now);
                if phase == Phase::Fenced {
                    hands.survives(now);
                    wait = wait.min(SURVIVES);
                }
                let wait = Box::pin(tokio::time::sleep(wait));
                if let Either::Right(_) = select(wait, Box::pin(terminate.recv())).await {
                    agent.leave();
                }
                Answer::Done
            }
            order => hands.carry_out(order).await,
        };
        agent.answer(since_boot(), &order, answer);
        hands.notice(&mut phase, agent);
    }
}

const fn explained(phase: Phase) -> &'static str {
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

impl Hands {
    fn notice(&mut self, phase: &mut Phase, agent: &Agent) {
        if agent.phase() != *phase {
            *phase = agent.phase();
            self.said.clear();
            say(explained(*phase));
        }
    }

    /// Says it, unless it was said in this phase.
    fn once(&mut self, line: String) {
        if !self.said.contains(&line) {
            say(&line);
            self.said.insert(line);
        }
    }

    async fn carry_out(&mut self, order: &Order) -> Answer {
        match order {
            Order::Read => self.read().await,
            Order::Write(record, over) => self.write(record, over.as_ref()).await,
            Order::Open => match self.watchdog.open() {
                Ok(device) => {
                    self.petted = Some(since_boot());
                    say(format_args!("the watchdog is open: {device:?}"));
                    if device.timeout < self.least {
                        let (has, least) = (device.timeout.as_secs(), self.least.as_secs());
                        say(format_args!(
                            "its timeout of {has} s is less than the {least} s that --late and --interval need: an outage of the API server may reset this machine"
                        ));
                    }
                    Answer::Opened(Arc::new(device))
                }
                Err(error) => self.failed(&error),
            },
            Order::Pet => match self.watchdog.pet() {
                Ok(()) => {
                    self.petted = Some(since_boot());
                    Answer::Done
                }
                Err(error) => self.failed(&format_args!("the watchdog was not petted: {error}")),
            },
            Order::Stop => self.stop().await,
            Order::Prove => {
                let left = self.left();
                let proved = left.is_empty();
                left.into_iter().for_each(|line| self.once(line));
                Answer::Proof(proved)
            }
            Order::Release => {
                self.kubelet.end();
                match self.marks.open() {
                    Ok(()) => {
                        say("the kubelet may start");
                        Answer::Done
                    }
                    Err(error) => {
                        self.failed(&format_args!("the gate of the kubelet does not open: {error}"))
                    }
                }
            }
            Order::Close => {
                self.marks.forget();
                if let Err(error) = self.watchdog.close() {
                    say(format_args!("the watchdog was not stopped: {error}"));
                }
                Answer::Done
            }
            Order::Wait(_) | Order::Exit => Answer::Done,
        }
    }

    /// A drill compares it with the timeout of the device.
    fn survives(&mut self, now: Duration) {
        let Some(petted) = self.petted else { return };
        if let Err(error) = self.survival.note(&self.boot, now.saturating_sub(petted)) {
            self.once(format!(
                "it is not written down for how long this machine outlives its last pet: {error} (--record)"
            ));
        }
    }

    fn failed(&mut self, why: &dyn std::fmt::Display) -> Answer {
        self.once(why.to_string());
        Answer::Failed
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<(StatusCode, bytes::Bytes), String> {
        let token = std::fs::read_to_string(&self.token)
            .map_err(|error| format!("{}: {error}", self.token.display()))?;
        self.api.send(method, path, &token, body).await
    }

    fn collection(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    async fn read(&mut self) -> Answer {
        let path = format!("{}/{}", self.collection(), lease_name(&self.node));
        match self.send(Method::GET, &path, Vec::new()).await {
            Ok((StatusCode::OK, body)) => match lease::read(&body) {
                Ok(seen) => Answer::Lease(Some(seen)),
                Err(error) => self.failed(&error),
            },
            Ok((StatusCode::NOT_FOUND, _)) => Answer::Lease(None),
            Ok((status, body)) => self.refused(status, &body),
            Err(error) => self.failed(&format_args!("the Lease was not read: {error}")),
        }
    }

    async fn write(&mut self, record: &Record, over: Option<&Version>) -> Answer {
        if record.state == State::Armed
            && !self.marks.promised(&record.boot.id)
            && let Err(error) = self.marks.promise(&record.boot.id)
        {
            return self
                .failed(&format_args!("no promise is made, because it cannot be written down: {error}"));
        }
        let places =
            Places { cgroups: &self.cgroups, proc: &self.proc, folder: &self.folder, own: &self.own };
        let pods = self.report.at(since_boot(), record, places);
        let body = lease::written((&self.namespace, &self.node), record, self.survived.as_ref(), pods, over);
        let (method, path) = match over {
            Some(_) => (Method::PUT, format!("{}/{}", self.collection(), lease_name(&self.node))),
            None => (Method::POST, self.collection()),
        };
        match self.send(method, &path, body).await {
            Ok((StatusCode::OK | StatusCode::CREATED, body)) => match lease::read(&body) {
                Ok(seen) => Answer::Written(seen.version),
                Err(error) => self.failed(&error),
            },
            Ok((StatusCode::CONFLICT | StatusCode::NOT_FOUND, _)) => Answer::Conflict,
            Ok((status, body)) => self.refused(status, &body),
            Err(error) => self.failed(&format_args!("the Lease was not written: {error}")),
        }
    }

    fn refused(&mut self, status: StatusCode, body: &[u8]) -> Answer {
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

    /// The kubelet first, so that nothing starts what is ended.
    async fn stop(&mut self) -> Answer {
        if let Err(error) = self.marks.close() {
            return self.failed(&format_args!("the gate of the kubelet does not close: {error}"));
        }
        self.kubelet.stop();
        let until = since_boot() + ENDING;
        loop {
            // What cannot be read is found by the proof.
            let pods = self.cgroups.pods(&self.own).unwrap_or_default();
            let running: Vec<_> = pods.iter().filter(|pod| !self.cgroups.is_empty(pod)).collect();
            if running.is_empty() || since_boot() >= until {
                break;
            }
            running.into_iter().for_each(|pod| self.cgroups.end(pod));
            tokio::time::sleep(LOOK).await;
        }
        let left = mounts::of_volumes(&self.proc, &self.folder, &self.own).unwrap_or_default();
        if !left.is_empty() {
            // Before it is done: a mount whose server is dead may never return.
            let names: Vec<String> = left.iter().map(ToString::to_string).collect();
            self.once(format!("unmounting {}", names.join(", ")));
            mounts::take_away(&left);
        }
        Answer::Done
    }

    /// What speaks against everything having ended.
    fn left(&self) -> Vec<String> {
        let mut left: Vec<String> = self.kubelet.runs().into_iter().collect();
        if !self.marks.is_closed() {
            left.push("the gate of the kubelet is open".to_owned());
        }
        let pods = self.cgroups.pods(&self.own);
        if pods.is_none() {
            left.push("the cgroups of pods cannot be read, or the agent's own is not among them".to_owned());
        }
        for pod in pods.iter().flatten().filter(|pod| !self.cgroups.is_empty(pod)) {
            let processes: Vec<String> = self.cgroups.left(pod).iter().map(ToString::to_string).collect();
            left.push(format!("pod {} has not ended: {}", pod.uid, processes.join(", ")));
        }
        match mounts::of_volumes(&self.proc, &self.folder, &self.own) {
            Some(mounts) => left.extend(mounts.iter().map(|mount| format!("still mounted: {mount}"))),
            None => left.push(format!("the mounts of the host cannot be read in {}", self.proc.display())),
        }
        left
    }
}
