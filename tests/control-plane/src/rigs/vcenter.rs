//! A vCenter to fence with: govmomi's simulator, with Debian's fence_vmware_soap as its client.

use std::path::{Path, PathBuf};

use kube::Client;

use super::{PASSWORD, Rigs, USER};
use crate::port::Port;
use crate::tools::tool;
use crate::{Error, Program};

/// A running vCenter. Dropping it ends it.
pub struct Vcenter {
    _program: Program,
    port: Port,
    client: Client,
    agents: PathBuf,
}

/// A virtual machine of the vCenter.
#[derive(Clone, Debug)]
pub struct VirtualMachine {
    /// Its name in the inventory.
    pub name: String,
    /// Its `config.uuid`, which is the systemUUID of its Node.
    pub uuid: String,
    /// `poweredOn`, `poweredOff` or `suspended`.
    pub power: String,
}

impl Rigs {
    /// A vCenter with some virtual machines, all of them on.
    pub async fn vcenter(&self) -> Result<Vcenter, Error> {
        let port = Port::reserve()?;
        let (certificate, key) = self.certificate();
        let args = [
            format!("-listen=127.0.0.1:{}", port.number()),
            format!("-user={USER}"),
            format!("-password={PASSWORD}"),
            format!("-certificate={}", certificate.display()),
            format!("-key={}", key.display()),
        ];
        let name = format!("vcenter-{}", port.number());
        let mut program = Program::start(&name, &tool("vcenter").await?, args, [], self.folder.clone())?;
        program.wait_for("listen", async || super::listens(port.number()).await).await?;
        let url = port.url("https");
        let mut config = kube::Config::new(url.parse().map_err(|error| Error::Tools(format!("{url}: {error}")))?);
        config.accept_invalid_certs = true;
        let client = Client::try_from(config).map_err(|error| Error::Tools(format!("a client of {url}: {error}")))?;
        // The agent trusts the certificates of its container: it reads the WSDL with one library, and makes the calls with another.
        let authority = self.pki.authority_file();
        let trusts = format!("SSL_CERT_FILE={0} REQUESTS_CA_BUNDLE={0}", authority.display());
        let agents = self.wrapped("vcenter-agents", "fence_vmware_soap", &trusts)?;
        Ok(Vcenter { _program: program, port, client, agents })
    }
}

impl Vcenter {
    /// The folder of its fence_vmware_soap.
    pub fn agents(&self) -> &Path {
        &self.agents
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// All of its machines.
    pub async fn machines(&self) -> Result<Vec<VirtualMachine>, Error> {
        let text = self.request("machines").await?;
        let read = |line: &str| {
            let mut words = line.split(' ').map(str::to_owned);
            let [name, uuid, power] = [words.next()?, words.next()?, words.next()?];
            Some(VirtualMachine { name, uuid, power })
        };
        text.lines().map(read).collect::<Option<_>>().ok_or_else(|| Error::Tools(format!("no machines: {text}")))
    }

    /// `poweredOn`, `poweredOff` or `suspended`.
    pub async fn power(&self, uuid: &str) -> Result<String, Error> {
        let matching = self.machines().await?.into_iter().find(|machine| machine.uuid == uuid);
        matching.map(|machine| machine.power).ok_or_else(|| Error::Tools(format!("no machine {uuid}")))
    }

    /// Suspends a virtual machine, or destroys it, like another client of the vCenter.
    pub async fn change_machine(&self, uuid: &str, what: &str) -> Result<(), Error> {
        self.request(&format!("{what}?uuid={uuid}")).await.map(drop)
    }

    /// From now on this call fails with this fault, until another one is set: `("", "")` ends it.
    pub async fn fails(&self, call: &str, fault: &str) -> Result<(), Error> {
        self.request(&format!("fault?method={call}&fault={fault}")).await.map(drop)
    }

    async fn request(&self, what: &str) -> Result<String, Error> {
        let failed = |error: String| Error::Tools(format!("{what} of the vCenter: {error}"));
        let request =
            http::Request::get(format!("/rig/{what}")).body(Vec::new()).map_err(|error| failed(error.to_string()))?;
        self.client.request_text(request).await.map_err(|error| failed(error.to_string()))
    }
}
