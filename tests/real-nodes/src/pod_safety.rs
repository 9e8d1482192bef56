//! Replicas of ours: each with its own way to the API servers, its own clock if it is to have one, and a log that can be full.

use std::net::Ipv4Addr;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use pod_safety_control_plane::{Balancer, PodSafety};
use serde_json::Value;

use crate::cluster::{Cluster, Extra, Mode};
use crate::machine::run;

/// A small file system, where they log; scripts/world.sh mounts it.
const LOGS: &str = "/run/ours";
/// Takes what is left there.
const FILLER: &str = "/run/ours/filler";

/// One of them; all that a [`PodSafety`] can.
pub(crate) struct Replica {
    program: PodSafety,
    pub(crate) way: Balancer,
}

impl Deref for Replica {
    type Target = PodSafety;

    fn deref(&self) -> &PodSafety {
        &self.program
    }
}

impl DerefMut for Replica {
    fn deref_mut(&mut self) -> &mut PodSafety {
        &mut self.program
    }
}

/// Where the clock of one is told what to show: `+0`, `-3600`, `+0 x2`, in libfaketime's words.
fn clock() -> PathBuf {
    Path::new(LOGS).join("clock")
}

impl Cluster {
    /// One replica more.
    pub(crate) async fn start_pod_safety(&mut self) -> Result<()> {
        self.start_pod_safety_with(&[]).await
    }

    async fn start_pod_safety_with(&mut self, env: &[(&str, &str)]) -> Result<()> {
        let Some(account) = self.account.clone() else { return Ok(()) };
        let eviction = if self.extra == Extra::Evictions { ",eviction" } else { "" };
        let args = [
            format!("--mode={}", self.mode.name()),
            format!("--controllers=pod-gc,disruption,node-lifecycle,taint-eviction,fencing{eviction}"),
            "--node-monitor-grace-period=8s".to_owned(),
            "--agent-reports-from=pod-safety".to_owned(),
            format!("--fence-agents-path={}", self.rigs.agents().display()),
        ];
        // Of those that live, each has a name of its own.
        let taken: Vec<_> = self.ours.iter().map(|ours| ours.name().to_owned()).collect();
        let mut names = (0..).map(|number: u32| format!("pod-safety-{number}"));
        let name = names.find(|name| !taken.contains(name)).context("no name is left")?;
        let log = self.plane.log(&name);
        if !log.is_symlink() {
            std::os::unix::fs::symlink(Path::new(LOGS).join(format!("{name}.log")), &log)?;
        }
        let way = self.plane.balancer(Ipv4Addr::LOCALHOST).await?;
        let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&account)?)?;
        config["clusters"][0]["cluster"]["server"] = way.url().into();
        let kubeconfig = account.with_file_name(format!("{name}.kubeconfig"));
        std::fs::write(&kubeconfig, config.to_string())?;
        let mut program = self.plane.pod_safety_with_flags(&name, &kubeconfig, args, env).await?;
        program.ready().await?;
        self.ours.push(Replica { program, way });
        Ok(())
    }

    /// Which of ours leads, if one does.
    pub(crate) async fn leader(&self) -> Result<Option<usize>> {
        for (at, ours) in self.ours.iter().enumerate() {
            if ours.metric("leader_election_master_status", &[]).await.is_ok_and(|status| status > 0.5) {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Ours begin anew, and who leads has a clock that shows this. Its monotonic clock goes as always.
    pub(crate) async fn pod_safety_by_clock(&mut self, shows: &str) -> Result<()> {
        if self.account.is_none() {
            return Ok(());
        }
        set_clock(shows)?;
        self.ours.clear();
        let tools = std::env::var("REAL_NODES_TOOLS")?;
        let library = format!("{tools}/root/usr/lib/{}-linux-gnu/faketime/libfaketime.so.1", std::env::consts::ARCH);
        ensure!(Path::new(&library).exists(), "there is no {library}");
        let clock = clock();
        let env = [
            ("LD_PRELOAD", library.as_str()),
            ("FAKETIME_TIMESTAMP_FILE", &clock.to_string_lossy()),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("NO_FAKE_STAT", "1"),
        ];
        self.start_pod_safety_with(&env).await?;
        let first = self.ours.first().context("none of ours")?;
        // A library that does not fit is left out with a warning, and its clock would be everybody's.
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", first.pid()))?;
        ensure!(maps.contains("libfaketime"), "{} has the clock of everybody", first.name());
        self.ours.first_mut().context("none of ours")?.is_leader().await?;
        self.start_pod_safety().await
    }

    /// Nothing more can be written to their logs.
    pub(crate) async fn fill_log(&self) -> Result<()> {
        let filled = run("dd", &["if=/dev/zero", &format!("of={FILLER}"), "bs=4k"]).await;
        ensure!(filled.is_err(), "there is room without end");
        Ok(())
    }

    /// All are there, with clocks like everybody's and room for their logs. One that has ended by itself is an error.
    pub(crate) async fn repair_pod_safety(&mut self) -> Result<()> {
        if std::fs::exists(FILLER)? {
            std::fs::remove_file(FILLER)?;
        }
        for ours in &mut self.ours {
            let ended = ours.exited()?;
            ensure!(ended.is_none(), "{} ended by itself ({ended:?})", ours.name());
            ours.resume()?;
        }
        if clock().exists() {
            std::fs::remove_file(clock())?;
            self.ours.clear();
        }
        while self.mode != Mode::Plain && self.ours.len() < 2 {
            self.start_pod_safety().await?;
        }
        Ok(())
    }
}

/// It is read whenever somebody asks for the time.
pub(crate) fn set_clock(shows: &str) -> Result<()> {
    // At once, so that nobody reads half of it.
    let new = Path::new(LOGS).join("clock.new");
    std::fs::write(&new, format!("{shows}\n"))?;
    Ok(std::fs::rename(new, clock())?)
}
