//! The control plane as a whole: start, disturbance, cleanup.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use kube::Client;

use crate::apiserver::Server;
use crate::balancer::{Balancer, ReadinessProbes};
use crate::etcd::{self, Member};
use crate::folder::Folder;
use crate::pki::Pki;
use crate::read::Resources;
use crate::{Error, Program, access};

/// How often a start is tried when another process takes one of the ports.
const ATTEMPTS: u32 = 3;

/// How a control plane differs from the default.
#[derive(Clone, Debug)]
pub struct Options {
    /// Additional arguments of kube-apiserver. List arguments are merged with the default ones.
    pub apiserver_args: Vec<String>,
    /// Whether the API server answers lists and watches from its watch cache. Without it every read is a quorum read, and a compaction
    /// affects watches immediately.
    pub watch_cache: bool,
    /// Whether etcd stores in memory (where `/dev/shm` exists). Its data then counts against the memory of the machine, so this is not for
    /// tests that measure memory.
    pub etcd_data_in_tmpfs: bool,
    /// Whether its programs are measured: then they run with production settings, and not with those that save time in tests.
    pub measured: bool,
    /// The peer addresses of etcd's members, one for each member. Those of several members must be different addresses of this machine outside
    /// of loopback.
    pub etcd_peers: Vec<IpAddr>,
    /// The number of API servers, at most the number of members: each uses the member of its number. Several of them have a balancer in front,
    /// which clients of "the API server" use.
    pub apiservers: usize,
    /// Whether the admission plugin for service accounts is enabled; a namespace must then have its service account first, which
    /// kube-controller-manager creates.
    pub service_accounts: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            apiserver_args: Vec::new(),
            watch_cache: true,
            etcd_data_in_tmpfs: true,
            measured: false,
            etcd_peers: vec![Ipv4Addr::LOCALHOST.into()],
            apiservers: 1,
            service_accounts: false,
        }
    }
}

/// A running control plane. Dropping it kills its programs and removes its files.
pub struct ControlPlane {
    // Dropped in this order: each before what it depends on.
    balancer: Option<Balancer>,
    probes: ReadinessProbes,
    apiservers: Vec<Server>,
    etcd: Vec<Member>,
    pub(crate) admin: Client,
    pub(crate) resources: Resources,
    pub(crate) pki: Pki,
    pub(crate) folder: Arc<Folder>,
    options: Options,
}

impl ControlPlane {
    /// Starts etcd and kube-apiserver and waits until they serve.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let mut attempt = 1;
        loop {
            match Self::attempt(&options).await {
                Err(error) if error.is_port_conflict() && attempt < ATTEMPTS => attempt += 1,
                result => return result,
            }
        }
    }

    async fn attempt(options: &Options) -> Result<Self, Error> {
        let folder = Arc::new(Folder::create(options.etcd_data_in_tmpfs, options.measured)?);
        let pki = Pki::create(folder.pki())?;
        let members = options.etcd_peers.iter().enumerate();
        let etcd: Result<Vec<_>, Error> = members.map(|(at, peer)| Member::prepare(at, *peer)).collect();
        let mut etcd = etcd?;
        let mut apiservers = Vec::new();
        for at in 0..options.apiservers {
            apiservers.push(Server::prepare(at, &pki, &folder).await?);
        }
        // A single server needs no probes.
        let several = if apiservers.len() > 1 { &*apiservers } else { &[] };
        let looks = ReadinessProbes::begin(several.iter().map(|server| (server.port.number(), server.client.clone())));
        let balancer = if several.is_empty() { None } else { Some(Balancer::open(&looks, Ipv4Addr::LOCALHOST).await?) };
        let url = url(balancer.as_ref(), &apiservers);
        let kubeconfig = access::admin_kubeconfig(&pki, &url, &folder.access(), "admin")?;
        let admin = access::client(&kubeconfig).await?;
        etcd::start(&mut etcd, &folder).await?;
        let options = options.clone();
        let resources = Resources::default();
        let mut plane = Self { balancer, probes: looks, apiservers, etcd, admin, resources, pki, folder, options };
        plane.start_apiserver().await?;
        Ok(plane)
    }

    /// Starts each kube-apiserver that does not run, on the same port and with the same keys as before.
    pub async fn start_apiserver(&mut self) -> Result<(), Error> {
        let members = self.etcd.iter().map(|member| &member.client);
        for (server, etcd) in self.apiservers.iter_mut().zip(members) {
            server.start(etcd, &self.pki, &self.options, &self.folder).await?;
        }
        Ok(())
    }

    /// Kills kube-apiserver, like a crash: no watch is closed properly, no answer is finished. All of them, if there are several.
    pub fn stop_apiserver(&mut self) -> Result<(), Error> {
        self.apiservers.iter_mut().try_for_each(Server::kill)
    }

    /// Kills kube-apiserver and starts it again.
    pub async fn restart_apiserver(&mut self) -> Result<(), Error> {
        self.stop_apiserver()?;
        self.start_apiserver().await
    }

    /// Kills kube-apiserver and starts it with these additional arguments instead of those in [`Options`].
    pub async fn restart_apiserver_with(&mut self, args: &[String]) -> Result<(), Error> {
        self.options.apiserver_args = args.to_vec();
        self.restart_apiserver().await
    }

    /// kube-apiserver, to pause or to measure it; `None` while it is stopped. The first one, if there are several.
    pub fn apiserver(&mut self) -> Option<&mut Program> {
        self.apiserver_of(0)
    }

    /// The kube-apiserver of this number.
    pub fn apiserver_of(&mut self, at: usize) -> Option<&mut Program> {
        self.apiservers.get_mut(at)?.program.as_mut()
    }

    /// The member of etcd of this number, to pause or to kill it.
    pub fn etcd_of(&mut self, at: usize) -> Option<&mut Program> {
        self.etcd.get_mut(at)?.program.as_mut()
    }

    /// Starts each member of etcd that does not run.
    pub async fn start_etcd(&mut self) -> Result<(), Error> {
        etcd::start(&mut self.etcd, &self.folder).await
    }

    /// Copies what etcd stores, as a power failure at this moment would leave it: all members are paused meanwhile.
    pub async fn save_etcd(&mut self) -> Result<(), Error> {
        let mut members = self.etcd.iter_mut().filter_map(|member| member.program.as_mut());
        members.try_for_each(Program::pause)?;
        let saved = self.folder.copy_data().await;
        let mut members = self.etcd.iter_mut().filter_map(|member| member.program.as_mut());
        members.try_for_each(Program::resume)?;
        saved
    }

    /// Restores the copy, like the restore of a backup: versions that were assigned since then are assigned a second time. The API servers are
    /// restarted, because they have cached later versions.
    pub async fn restore_etcd(&mut self) -> Result<(), Error> {
        self.stop_apiserver()?;
        for mut program in self.etcd.iter_mut().filter_map(|member| member.program.take()) {
            program.kill_9()?;
        }
        self.folder.put_data_back().await?;
        self.start_etcd().await?;
        self.start_apiserver().await
    }

    /// Another route to the API servers, for a client that needs its own.
    pub async fn balancer(&self, address: Ipv4Addr) -> Result<Balancer, Error> {
        Balancer::open(&self.probes, address).await
    }

    /// The URL of the API server, or of the balancer before several.
    pub fn url(&self) -> String {
        url(self.balancer.as_ref(), &self.apiservers)
    }

    /// The URL of etcd; of its first member, if there are several.
    pub fn etcd_url(&self) -> String {
        self.etcd.first().map(|member| member.client.url("http")).unwrap_or_default()
    }
}

fn url(balancer: Option<&Balancer>, servers: &[Server]) -> String {
    let first = || servers.first().map(|server| server.port.url("https")).unwrap_or_default();
    balancer.map_or_else(first, Balancer::url)
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.folder.keep_logs_if_failing();
    }
}
