//! A node without a power switch: the shipped agent, a pod that is a process, a task that acts as the watchdog and cuts the power, and a
//! connection to the API server that can be cut.

use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pod_safety_control_plane::{ControlPlane, agent};
use rustix::fs::{CWD, FileType, OFlags, mknodat};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::super::machine::Machine;

/// The watchdog timeout: the minimum of the agent.
pub(super) const TIMEOUT: Duration = Duration::from_secs(4);
/// From a reset to the next kernel.
const FIRMWARE: Duration = Duration::from_secs(2);
const NAMESPACE: &str = "pod-safety";
/// The cgroups of its pods.
const PODS: &str = "cgroups/pids/kubepods";
/// The UID of the agent's own pod.
const OWN: &str = "0aaaaaaa-1b7e-4d51-9c6e-6d1f2a3b4c5d";

/// The state of the machine.
#[derive(Default)]
pub(super) struct MachineState {
    petted: Option<Instant>,
    boots_at: Option<Instant>,
    /// How often the watchdog cut the power.
    pub(super) resets: u32,
    /// When the process of the pod was observed to have ended.
    pub(super) ended: Option<Instant>,
    agent: Option<Child>,
    pod: Option<Child>,
    /// The cgroup of the pod.
    cgroup: Option<PathBuf>,
}

impl MachineState {
    /// Whether the cgroup of the pod is empty.
    fn empty(&self) {
        self.cgroup.iter().for_each(|cgroup| fs::write(cgroup.join("cgroup.procs"), "").unwrap());
    }
}

impl Drop for MachineState {
    fn drop(&mut self) {
        for child in [self.agent.take(), self.pod.take()].iter_mut().flatten() {
            let _gone = child.kill();
            let _reaped = child.wait();
        }
    }
}

pub(super) struct Guarded {
    folder: PathBuf,
    name: String,
    program: PathBuf,
    port: u16,
    pub(super) machine: Arc<Machine>,
    powered: Arc<AtomicBool>,
    cable: watch::Sender<bool>,
    state: tokio::sync::Mutex<MachineState>,
}

impl Guarded {
    /// Its tasks run until `tasks` are dropped. Its files are in `folder`.
    pub(super) async fn start(plane: &ControlPlane, name: &str, folder: &Path, tasks: &mut JoinSet<()>) -> Arc<Self> {
        let (powered, closed) = (Arc::new(AtomicBool::new(true)), folder.join("run/closed"));
        let power = Arc::clone(&powered);
        // Its kubelet does nothing while the machine has no power.
        let machine = Machine::new(name, move || power.load(Ordering::SeqCst) && !closed.exists());
        tasks.spawn(Arc::clone(&machine).run_kubelet(plane.admin()));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cable, connected) = watch::channel(true);
        let server: u16 = plane.url().rsplit(':').next().unwrap().parse().unwrap();
        tasks.spawn(forward(listener, server, connected));
        let guarded = Arc::new(Self {
            folder: folder.to_owned(),
            name: name.to_owned(),
            program: agent().await.unwrap(),
            port,
            machine,
            powered,
            cable,
            state: tokio::sync::Mutex::default(),
        });
        guarded.prepare_folders(plane).await;
        mknodat(CWD, folder.join("keeper"), FileType::Fifo, 0o600.into(), 0).unwrap();
        tasks.spawn(Arc::clone(&guarded).run_watchdog());
        let mut state = guarded.state.lock().await;
        guarded.boot(&mut state, 1);
        drop(state);
        guarded
    }

    /// The folders of the machine, and the volumes of the agent's pod.
    async fn prepare_folders(&self, plane: &ControlPlane) {
        let own = format!("{PODS}/pod{OWN}");
        fs::create_dir_all(self.folder.join(&own)).unwrap();
        for folder in ["cgroups/pids", PODS, &own] {
            fs::write(self.folder.join(folder).join("cgroup.procs"), "").unwrap();
        }
        for folder in ["proc/1", "proc/sys/kernel/random", "account"] {
            fs::create_dir_all(self.folder.join(folder)).unwrap();
        }
        fs::write(self.folder.join("proc/1/mountinfo"), "").unwrap();
        fs::write(self.folder.join("proc/1/stat"), "1 (init) S 0 1\n").unwrap();
        fs::copy(plane.authority(), self.folder.join("account/ca.crt")).unwrap();
        fs::write(self.folder.join("account/token"), plane.agent_token(&self.name).await.unwrap()).unwrap();
    }

    /// Starts a kernel and an agent.
    fn boot(&self, state: &mut MachineState, number: u32) {
        let path = |path: &str| self.folder.join(path).display().to_string();
        fs::write(
            self.folder.join("proc/sys/kernel/random/boot_id"),
            format!("{}\n", pod_safety_control_plane::objects::boot_id(&self.name, number)),
        )
        .unwrap();
        let log = OpenOptions::new().create(true).append(true).open(self.folder.join("log")).unwrap();
        let agent = Command::new(&self.program)
            .args(["run", "--node", &self.name, "--namespace", NAMESPACE, "--server", "127.0.0.1", "--gated"])
            // No server is there: the agent must not use a proxy.
            .env("HTTPS_PROXY", "http://127.0.0.1:1")
            .args(["--port", &self.port.to_string(), "--timeout", "4", "--interval", "1", "--late", "2"])
            .args(["--account", &path("account"), "--keeper", &path("keeper"), "--marks", &path("run")])
            .args(["--record", &path("record"), "--proc", &path("proc"), "--cgroups", &path("cgroups")])
            .args(["--kubelet", &path("kubelet"), "--pod-uid", OWN])
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        state.agent = Some(agent);
        self.powered.store(true, Ordering::SeqCst);
    }

    /// Its kubelet starts the pod with this UID.
    pub(super) async fn start_pod(&self, uid: &str) {
        let pod = Command::new("sleep").arg("600").spawn().unwrap();
        let cgroup = self.folder.join(PODS).join(format!("pod{uid}"));
        fs::create_dir_all(&cgroup).unwrap();
        fs::write(cgroup.join("cgroup.procs"), format!("{}\n", pod.id())).unwrap();
        let mut state = self.state.lock().await;
        (state.pod, state.ended, state.cgroup) = (Some(pod), None, Some(cgroup));
    }

    /// The process of the pod ends, and its container runtime does not notice.
    pub(super) async fn end_pod(&self) {
        self.state.lock().await.pod.as_mut().unwrap().kill().unwrap();
    }

    pub(super) async fn cut_off(&self) {
        self.cable.send_replace(false);
        self.machine.cut_off().await;
    }

    /// Its kubelet reports again when the machine has booted.
    pub(super) fn connect(&self) {
        self.cable.send_replace(true);
    }

    pub(super) async fn lock_state(&self) -> tokio::sync::MutexGuard<'_, MachineState> {
        self.state.lock().await
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Cuts the power of a machine whose watchdog is not petted, and switches it on again.
    async fn run_watchdog(self: Arc<Self>) {
        let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
        let mut pipe =
            OpenOptions::new().read(true).custom_flags(nonblocking).open(self.folder.join("keeper")).unwrap();
        let mut words = [0; 64];
        loop {
            let mut state = self.state.lock().await;
            let length = pipe.read(&mut words).unwrap_or(0);
            match words[..length].last() {
                Some(b'V') => state.petted = None,
                Some(_) => state.petted = Some(Instant::now()),
                None => {}
            }
            self.check_programs(&mut state);
            drop(state);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn check_programs(&self, state: &mut MachineState) {
        if state.petted.is_some_and(|petted| petted.elapsed() > TIMEOUT) {
            state.petted = None;
            state.resets += 1;
            self.powered.store(false, Ordering::SeqCst);
            for child in [state.agent.take(), state.pod.take()].iter_mut().flatten() {
                child.kill().unwrap();
                child.wait().unwrap();
            }
            state.empty();
            fs::remove_dir_all(self.folder.join("run")).unwrap();
            state.ended.get_or_insert_with(Instant::now);
            state.boots_at = Some(Instant::now() + FIRMWARE);
        }
        // The kernel of the test reaps it; the cgroup is then empty.
        if state.pod.as_mut().is_some_and(|pod| pod.try_wait().unwrap().is_some()) {
            state.empty();
            (state.pod, state.ended) = (None, Some(Instant::now()));
        }
        if state.boots_at.is_some_and(|at| Instant::now() >= at) {
            state.boots_at = None;
            let number = state.resets + 1;
            self.boot(state, number);
        }
    }
}

/// A connection that can be cut.
async fn forward(listener: TcpListener, server: u16, mut connected: watch::Receiver<bool>) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Ok(()) = connected.changed() => open.abort_all(),
            Some(_) = open.join_next() => {}
            Ok((mut client, _)) = listener.accept() => {
                if *connected.borrow() {
                    open.spawn(async move {
                        if let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await {
                            let _ended = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                        }
                    });
                }
            }
        }
    }
}
