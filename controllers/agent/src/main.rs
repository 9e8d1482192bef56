//! The program of the node agent: flags, and how the parts are put together.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use pod_safety_agent::api::{Api, Server};
use pod_safety_agent::arguments::{Arguments, Command, Device, Drill, ENDING, Gate, Run};
use pod_safety_agent::cgroups::Cgroups;
use pod_safety_agent::device::{Keeper, Watchdog};
use pod_safety_agent::executor::{self, Executor};
use pod_safety_agent::gate::Marks;
use pod_safety_agent::kubelet::Kubelet;
use pod_safety_agent::linux::Linux;
use pod_safety_agent::report::PodReporter;
use pod_safety_agent::survival::SurvivalLog;
use pod_safety_agent::{host, log_line, mounts, realtime};
use pod_safety_clock::since_boot;
use pod_safety_watchdog::agent::{Agent, StartupState};
use pod_safety_watchdog::record::Class;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How often a waiting process checks again.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.map_err(|error| error.to_string()).and_then(|runtime| match arguments.command {
        Command::Run(flags) => runtime.block_on(run(*flags)),
        Command::Gate(flags) => runtime.block_on(gate(flags)),
        Command::Drill(flags) => runtime.block_on(drill(flags)),
        Command::Check(flags) => {
            check(&flags);
            Ok(())
        }
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log_line(format_args!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// The cgroups of this node's pods, if the agent can guard them.
fn cgroups(flags: &Run) -> Result<Cgroups, String> {
    let cgroups = Cgroups::find(&flags.cgroups, &flags.proc).ok_or_else(|| {
        format!("--cgroups {}: there are none: is it mounted into this container?", flags.cgroups.display())
    })?;
    let pods = cgroups.pods(&flags.pod_uid).ok_or_else(|| {
        format!(
            "--cgroups {}: they cannot be read, or the agent's own pod {} (--pod-uid) is not among them, so other pods may not be either. A kubelet with another --cgroup-root cannot be guarded",
            flags.cgroups.display(),
            flags.pod_uid
        )
    })?;
    if let Some(pod) = pods.iter().find(|pod| pod.is_static())
        && !flags.end_static_pods
    {
        return Err(format!(
            "static pod {} runs here, and an outage of the API server would end it: keep the agent from nodes of the control plane, or add --end-static-pods if it is no part of one",
            pod.uid
        ));
    }
    Ok(cgroups)
}

/// Checks that the flags name the kubelet of this host: without a process and without mounts, all would count as ended.
fn check_kubelet(flags: &Run, kubelet: &Kubelet) -> Result<(), String> {
    let (name, folder) = (&flags.kubelet_process, flags.kubelet.display());
    if let Some(process) = kubelet.find_misnamed() {
        return Err(format!("--kubelet-process {name}: there is none, but {process}: name that one"));
    }
    if let Some(other) = mounts::find_other_folder(&flags.proc, &flags.kubelet, &flags.pod_uid) {
        return Err(format!("--kubelet {folder}: the agent's own volumes are in {}: name that one", other.display()));
    }
    Ok(())
}

async fn run(flags: Run) -> Result<(), String> {
    let times = flags.times()?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    realtime::request_realtime().into_iter().for_each(log_line);
    let marks = marks(&flags.gate)?;
    let Some(_lock) = wait_for_lock(&marks, &mut terminate).await? else { return Ok(()) };
    let token = flags.account.join("token");
    let read = |path: &Path| fs::read(path).map_err(|error| format!("{}: {error} (--account)", path.display()));
    let uid = host::node_uid_from_token(&String::from_utf8_lossy(&read(&token)?))?;
    let boot = host::boot(&flags.proc, uid)?;
    let server = Server::new(flags.server.clone(), flags.port, &read(&flags.account.join("ca.crt"))?)?;
    let cgroups = cgroups(&flags)?;
    let kubelet = Kubelet::new(&flags.proc, &flags.cgroups, &flags.kubelet_process, flags.gated);
    check_kubelet(&flags, &kubelet)?;
    let startup =
        StartupState { predecessor: marks.has_promised(&boot.id), stopped: marks.is_closed() || kubelet.is_stopped() };
    let survival =
        SurvivalLog::new(&flags.record).map_err(|error| format!("--record {}: {error}", flags.record.display()))?;
    let mut random = [0; 8];
    // A machine that has just booted may have none for a while, and no other line would give the reason.
    log_line("drawing a random number of the kernel");
    getrandom::fill(&mut random).map_err(|error| format!("no random number: {error}"))?;
    let (survived, id) = (survival.read_earlier_boot(&boot.id), boot.id.clone());
    let mut agent = Agent::new(boot, times, u64::from_ne_bytes(random), startup, since_boot());
    let mut executor = Executor {
        api: Api::new(server, times.interval),
        token,
        node: flags.node.clone(),
        namespace: flags.namespace.clone(),
        min_timeout: times.soft + times.interval + ENDING,
        watchdog: watchdog(&flags.device),
        cgroups,
        kubelet,
        kubelet_dir: flags.kubelet.clone(),
        proc: flags.proc.clone(),
        own_pod_uid: flags.pod_uid.clone(),
        marks,
        survival,
        survived,
        boot: id,
        report: PodReporter::default(),
        last_pet: None,
        refused_since: None,
        logged: BTreeSet::new(),
    };
    executor::run(&mut agent, &mut executor, &mut terminate).await;
    Ok(())
}

fn marks(flags: &Gate) -> Result<Marks, String> {
    Marks::new(&flags.marks).map_err(|error| format!("--marks {}: {error}", flags.marks.display()))
}

/// Waits until the agent before this one has ended. None: this process was terminated before that.
async fn wait_for_lock(marks: &Marks, terminate: &mut Signal) -> Result<Option<fs::File>, String> {
    use futures::FutureExt as _;
    let mut is_logged = false;
    loop {
        if let Some(lock) = marks.lock().map_err(|error| format!("the lock of the agents: {error}"))? {
            return Ok(Some(lock));
        }
        if !std::mem::replace(&mut is_logged, true) {
            log_line("another agent runs on this host: waiting until it ends");
        }
        if terminate.recv().now_or_never().is_some() {
            return Ok(None);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn class(flags: &Device) -> Class {
    flags.class.unwrap_or_else(|| host::class(Path::new("/proc"), Path::new("/sys")))
}

fn linux(flags: &Device) -> Linux {
    Linux::new(flags.device, flags.timeout(), class(flags), host::kernel())
}

fn watchdog(flags: &Device) -> Box<dyn Watchdog> {
    match &flags.keeper {
        Some(path) => Box::new(Keeper::new(path.clone(), flags.timeout(), host::kernel())),
        None => Box::new(linux(flags)),
    }
}

async fn gate(flags: Gate) -> Result<(), String> {
    let marks = marks(&flags)?;
    if marks.is_closed() {
        log_line("the agent of this node has stopped the kubelet: waiting until it has a grant");
    }
    while marks.is_closed() {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Prints what `check` finds. Opens nothing: opening a watchdog starts it.
fn check(flags: &Device) {
    let device = linux(flags);
    let attributes = device.sysfs_attributes();
    log_line(format_args!("machine: {}, kernel {}", class(flags), host::kernel()));
    log_line(format_args!("/dev/watchdog{}: {attributes:?}", flags.device));
    log_line(format_args!("held by: {}", device.holder().unwrap_or_else(|| "no process".to_owned())));
    let cgroups = Cgroups::find(Path::new("/sys/fs/cgroup"), Path::new("/proc"));
    log_line(format_args!("cgroups: version {}", cgroups.map_or(0, |cgroups| cgroups.version())));
    let refused = realtime::request_realtime();
    log_line(format_args!("real-time: {}", if refused.is_empty() { "yes".to_owned() } else { refused.join("; ") }));
}

/// How much later than its timeout a watchdog may fire in a drill.
const DRILL_TOLERANCE: Duration = Duration::from_secs(5);

async fn drill(flags: Drill) -> Result<(), String> {
    if !flags.reset_this_machine {
        return Err(
            "this resets the machine, with all that runs on it: add --reset-this-machine if that may be".to_owned()
        );
    }
    let mut watchdog = watchdog(&flags.device);
    let device = watchdog.open().map_err(|error| error.to_string())?;
    log_line(format_args!("{device:?}"));
    log_line(format_args!("this machine is reset in {} s", device.timeout.as_secs()));
    tokio::time::sleep(device.timeout + DRILL_TOLERANCE).await;
    let _stopped = watchdog.close();
    Err(format!(
        "{} did not reset this machine within {} s: its promise is worth nothing",
        device.identity,
        (device.timeout + DRILL_TOLERANCE).as_secs()
    ))
}
