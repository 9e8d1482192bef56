//! The control plane as a whole: started, disturbed, taken down.

use std::sync::Arc;

use kube::Client;

use crate::folder::Folder;
use crate::pki::Pki;
use crate::port::Port;
use crate::{Error, Program, access, apiserver, etcd};

/// How often a start is tried when a stranger takes one of our ports.
const ATTEMPTS: u32 = 3;

/// How a control plane differs from the usual.
#[derive(Clone, Debug)]
pub struct Options {
    /// More arguments of kube-apiserver. Those that take lists add to ours.
    pub apiserver_args: Vec<String>,
    /// Whether the API server answers lists and watches from its cache. Without it every read is a quorum
    /// read, and a compaction is felt by watches at once.
    pub watch_cache: bool,
    /// Whether etcd stores in memory (where there is `/dev/shm`). What it stores then counts against this
    /// machine's memory: not for tests that measure that.
    pub etcd_data_in_tmpfs: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { apiserver_args: Vec::new(), watch_cache: true, etcd_data_in_tmpfs: true }
    }
}

/// A running control plane. Dropping it kills its programs and removes its files.
pub struct ControlPlane {
    // Dropped in this order: nobody loses what it depends on.
    apiserver: Option<Program>,
    etcd: Program,
    pub(crate) admin: Client,
    pub(crate) pki: Pki,
    pub(crate) folder: Arc<Folder>,
    options: Options,
    ports: Ports,
}

struct Ports {
    api: Port,
    etcd: Port,
    /// etcd insists on it, though it is alone.
    peer: Port,
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
        let folder = Arc::new(Folder::create(options.etcd_data_in_tmpfs)?);
        let ports = Ports { api: Port::reserve()?, etcd: Port::reserve()?, peer: Port::reserve()? };
        let pki = Pki::create(folder.pki())?;
        let (url, masters) = (ports.api.url("https"), ["system:masters"]);
        let kubeconfig = access::user_kubeconfig(&pki, &url, &folder.access(), "admin", &masters)?;
        let admin = access::client(&kubeconfig).await?;
        let etcd = etcd::start(&ports.etcd, &ports.peer, &folder).await?;
        let options = options.clone();
        let mut plane = Self { apiserver: None, etcd, admin, pki, folder, options, ports };
        plane.start_apiserver().await?;
        Ok(plane)
    }

    /// Starts kube-apiserver, if it does not run, on the same port and with the same keys as before.
    pub async fn start_apiserver(&mut self) -> Result<(), Error> {
        if let Some(program) = &mut self.apiserver
            && program.exited()?.is_none()
        {
            return Ok(());
        }
        let (ports, pki, folder) = (&self.ports, &self.pki, &self.folder);
        let mut program = apiserver::start(&ports.api, &ports.etcd, pki, &self.options, folder).await?;
        apiserver::ready(&mut program, &self.admin).await?;
        self.apiserver = Some(program);
        Ok(())
    }

    /// Kills kube-apiserver, as a crash would: no watch is closed properly, no answer is finished.
    pub fn stop_apiserver(&mut self) -> Result<(), Error> {
        self.apiserver.take().map_or(Ok(()), |mut program| program.kill_9())
    }

    /// Kills kube-apiserver and starts it again.
    pub async fn restart_apiserver(&mut self) -> Result<(), Error> {
        self.stop_apiserver()?;
        self.start_apiserver().await
    }

    /// kube-apiserver, to pause or to measure it; `None` while it is stopped.
    pub fn apiserver(&mut self) -> Option<&mut Program> {
        self.apiserver.as_mut()
    }

    /// etcd, to pause or to measure it.
    pub fn etcd(&mut self) -> &mut Program {
        &mut self.etcd
    }

    /// Where the API server listens.
    pub fn url(&self) -> String {
        self.ports.api.url("https")
    }

    /// Where etcd listens.
    pub fn etcd_url(&self) -> String {
        self.ports.etcd.url("http")
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.folder.keep_logs_if_failing();
    }
}
