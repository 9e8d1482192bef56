//! The control plane: two API servers, three members of etcd, and the ways that lead to the one or the other.
//!
//! Each API server asks the member of its number, so a member that is in the minority takes its server with it. Machines and
//! replicas of ours have a balancer each: it leads to the first server that is ready, until it is pinned to one.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result};
use pod_safety_control_plane::{ControlPlane, Options};

use crate::cluster::{Cluster, Extra};
use crate::machine::{Machine, run, scripts};

/// Where members speak to each other; scripts/world.sh makes these addresses.
const PEERS: [Ipv4Addr; 3] = [Ipv4Addr::new(10, 88, 0, 2), Ipv4Addr::new(10, 88, 0, 3), Ipv4Addr::new(10, 88, 0, 4)];
const SERVERS: usize = 2;
/// What serves EvictionRequests and Evictions, as in charts/kind-evictions.yaml.
const EVICTIONS: [&str; 2] =
    ["--feature-gates=EvictionRequestAPI=true", "--runtime-config=lifecycle.k8s.io/v1alpha1=true"];

/// What happens to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessFault {
    Die,
    StandStill,
}

pub(crate) async fn start(extra: Extra) -> Result<ControlPlane> {
    let etcd_peers = PEERS.map(Into::into).to_vec();
    let service_accounts = extra == Extra::ServiceAccounts;
    let apiserver_args = if extra == Extra::Evictions { &EVICTIONS[..] } else { &[] };
    let apiserver_args = apiserver_args.iter().map(|arg| (*arg).to_owned()).collect();
    let options = Options { etcd_peers, apiservers: SERVERS, service_accounts, apiserver_args, ..Options::default() };
    Ok(ControlPlane::start(options).await?)
}

/// What passes between programs of the control plane, by iptables.
async fn packets(args: &[&str]) -> Result<()> {
    run(&scripts().join("packets.sh").to_string_lossy(), args).await.map(drop)
}

impl Cluster {
    pub(crate) fn break_server(&mut self, at: usize, what: ProcessFault) -> Result<()> {
        let server = self.plane.apiserver_of(at).context("no such API server")?;
        match what {
            ProcessFault::Die => server.kill_9()?,
            ProcessFault::StandStill => server.pause()?,
        }
        Ok(())
    }

    pub(crate) fn break_member(&mut self, at: usize, what: ProcessFault) -> Result<()> {
        let member = self.plane.etcd_of(at).context("no such member")?;
        match what {
            ProcessFault::Die => member.kill_9()?,
            ProcessFault::StandStill => member.pause()?,
        }
        Ok(())
    }

    /// All members of etcd at once.
    pub(crate) fn pause_etcd(&mut self) -> Result<()> {
        (0..PEERS.len()).try_for_each(|at| self.break_member(at, ProcessFault::StandStill))
    }

    pub(crate) fn resume_etcd(&mut self) -> Result<()> {
        for at in 0..PEERS.len() {
            if let Some(member) = self.plane.etcd_of(at)
                && member.exited()?.is_none()
            {
                member.resume()?;
            }
        }
        Ok(())
    }

    /// It and the other members do not hear each other; its API server hears it.
    pub(crate) async fn cut_member(&self, at: usize) -> Result<()> {
        let address = PEERS.get(at).context("no such member")?.to_string();
        packets(&["-A", "INPUT", "-s", &address, "-j", "DROP"]).await?;
        packets(&["-A", "INPUT", "-d", &address, "-j", "DROP"]).await
    }

    /// Its kubelet speaks to this server, whatever becomes of it.
    pub(crate) fn pin(&self, victim: Machine, server: usize) -> Result<()> {
        self.ways.get(&victim).context("it has no way")?.pin(server);
        Ok(())
    }

    /// Everything runs, hears each other, and is chosen among.
    pub(crate) async fn repair_plane(&mut self) -> Result<()> {
        packets(&["-F", "INPUT"]).await?;
        self.resume_etcd()?;
        self.plane.start_etcd().await?;
        for at in 0..SERVERS {
            if let Some(server) = self.plane.apiserver_of(at)
                && server.exited()?.is_none()
            {
                server.resume()?;
            }
        }
        self.plane.start_apiserver().await?;
        self.ways.values().for_each(|way| way.unpin());
        self.ours.iter().for_each(|ours| ours.way.unpin());
        Ok(())
    }
}
