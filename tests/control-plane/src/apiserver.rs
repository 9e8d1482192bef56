//! Starts kube-apiserver and waits until it serves everything that tests rely on.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};

use crate::folder::Folder;
use crate::pki::Pki;
use crate::port::Port;
use crate::{Error, Options, Program, access, tool};

/// The API server creates these by itself, but after it reports ready.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// One API server: its address, and the program, unless it is stopped.
pub(crate) struct Server {
    name: String,
    pub(crate) port: Port,
    /// A client of this server, also if a balancer serves all of them.
    pub(crate) client: Client,
    pub(crate) program: Option<Program>,
}

impl Server {
    /// The first is called `kube-apiserver`, another `kube-apiserver-1`.
    pub(crate) async fn prepare(at: usize, pki: &Pki, folder: &Folder) -> Result<Self, Error> {
        let name = if at == 0 { "kube-apiserver".to_owned() } else { format!("kube-apiserver-{at}") };
        let port = Port::reserve()?;
        let user = format!("admin-of-{at}");
        let kubeconfig = access::admin_kubeconfig(pki, &port.url("https"), &folder.access(), &user)?;
        Ok(Self { name, port, client: access::client(&kubeconfig).await?, program: None })
    }

    /// Starts it, if it does not run, and waits until it is ready.
    pub(crate) async fn start(
        &mut self,
        etcd: &Port,
        pki: &Pki,
        options: &Options,
        folder: &Arc<Folder>,
    ) -> Result<(), Error> {
        if let Some(program) = &mut self.program
            && program.exited()?.is_none()
        {
            return Ok(());
        }
        let mut args = arguments(&self.port, etcd, pki);
        args.push(format!("--watch-cache={}", options.watch_cache));
        if !options.service_accounts {
            // It rejects pods until kube-controller-manager has created their namespace's service account.
            args.push("--disable-admission-plugins=ServiceAccount".to_owned());
        }
        args.extend(options.apiserver_args.iter().cloned());
        let path = tool("kube-apiserver").await?;
        let mut program = Program::start(&self.name, &path, args, [], folder.clone())?;
        ready(&mut program, &self.client).await?;
        self.program = Some(program);
        Ok(())
    }

    /// Kills it, as a crash would.
    pub(crate) fn kill(&mut self) -> Result<(), Error> {
        self.program.take().map_or(Ok(()), |mut program| program.kill_9())
    }
}

fn arguments(port: &Port, etcd: &Port, pki: &Pki) -> Vec<String> {
    vec![
        format!("--etcd-servers={}", etcd.url("http")),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={}", port.number()),
        // It needs an address that other machines could use and looks for one on the default route. A test machine may have none, so it gets an
        // address that is reserved for examples, and does not advertise it.
        "--advertise-address=192.0.2.1".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--tls-cert-file={}", pki.server_certificate_file().display()),
        format!("--tls-private-key-file={}", pki.server_key_file().display()),
        format!("--client-ca-file={}", pki.authority_file().display()),
        format!("--token-auth-file={}", pki.admin_token_file().display()),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", pki.token_public_key_file().display()),
        format!("--service-account-signing-key-file={}", pki.token_key_file().display()),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--allow-privileged=true".to_owned(),
    ]
}

/// Waits for /readyz, which includes the built-in roles, and for the built-in namespaces.
async fn ready(program: &mut Program, client: &Client) -> Result<(), Error> {
    program.wait_for("become ready", async || healthy(client, "/readyz").await).await?;
    program
        .wait_for("make its namespaces", async || {
            let namespaces = Api::<Namespace>::all(client.clone());
            for name in NAMESPACES {
                namespaces.get(name).await.map_err(|error| error.to_string())?;
            }
            Ok(())
        })
        .await
}

/// Queries a health endpoint.
pub(crate) async fn healthy(client: &Client, path: &str) -> Result<(), String> {
    let request = http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
    client.request_text(request).await.map(drop).map_err(|error| error.to_string())
}
