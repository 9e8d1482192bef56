//! Programs that run against the API server: kube-controller-manager, kube-scheduler, kubectl, the loader, and pod-safety.

use std::ffi::OsStr;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};

use kube::Client;

use crate::port::Port;
use crate::{ControlPlane, Error, Output, Program, access, apiserver, command, tool};

/// A running component of Kubernetes; everything that [`Program`] offers, and its metrics.
pub struct Component {
    program: Program,
    client: Client,
    port: Port,
}

impl Component {
    /// Its metrics as Prometheus text.
    pub async fn metrics(&self) -> Result<String, Error> {
        let failed = |error| Error::api(format!("read the metrics of {}", self.program.name()))(error);
        let request = http::Request::get("/metrics").body(Vec::new());
        let request = request.map_err(|error| failed(kube::Error::HttpError(error)))?;
        self.client.request_text(request).await.map_err(failed)
    }

    /// The URL of /healthz and /metrics, without authentication.
    pub fn url(&self) -> String {
        self.port.url("https")
    }
}

impl Deref for Component {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl DerefMut for Component {
    fn deref_mut(&mut self) -> &mut Program {
        &mut self.program
    }
}

impl ControlPlane {
    /// Starts kube-controller-manager with these controllers (its `--controllers`, for example
    /// `"pod-garbage-collector-controller,statefulset-controller"`) and waits until it is healthy.
    pub async fn kube_controller_manager(&self, controllers: &str, extra_args: &[&str]) -> Result<Component, Error> {
        let mut args = vec![
            format!("--controllers={controllers}"),
            format!("--service-account-private-key-file={}", self.pki.token_key_file().display()),
            format!("--root-ca-file={}", self.pki.authority_file().display()),
            "--use-service-account-credentials=false".to_owned(),
        ];
        args.extend(extra_args.iter().map(|arg| (*arg).to_owned()));
        self.component("kube-controller-manager", args).await
    }

    /// Starts kube-scheduler and waits until it is healthy.
    pub async fn kube_scheduler(&self, extra_args: &[&str]) -> Result<Component, Error> {
        self.component("kube-scheduler", extra_args.iter().map(|arg| (*arg).to_owned()).collect()).await
    }

    async fn component(&self, name: &str, args: Vec<String>) -> Result<Component, Error> {
        let port = Port::reserve()?;
        let kubeconfig = self.admin_kubeconfig();
        let mut all = vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", port.number()),
            format!("--tls-cert-file={}", self.pki.server_certificate_file().display()),
            format!("--tls-private-key-file={}", self.pki.server_key_file().display()),
            // Tests read its health and metrics without a role of their own.
            "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics".to_owned(),
            // There is one, and a test that restarts it does not want to wait for the lease of the last.
            "--leader-elect=false".to_owned(),
        ];
        all.extend(args);
        let mut program = Program::start(name, &tool(name).await?, all, [], self.folder.clone())?;
        let client = self.component_client(&port).await?;
        program.wait_for("become healthy", async || apiserver::healthy(&client, "/healthz").await).await?;
        Ok(Component { program, client, port })
    }

    /// An anonymous client that trusts the servers of the control plane.
    async fn component_client(&self, port: &Port) -> Result<Client, Error> {
        let url = port.url("https");
        let kubeconfig = access::anonymous_kubeconfig(&self.pki, &url, &self.folder.access(), port.number())?;
        access::client(&kubeconfig).await
    }

    /// Runs kubectl with all rights.
    pub async fn kubectl(&self, args: &[&str]) -> Result<Output, Error> {
        self.kubectl_with(args, "").await
    }

    /// Runs kubectl with input on stdin, for `kubectl apply -f -`.
    pub async fn kubectl_with(&self, args: &[&str], input: &str) -> Result<Output, Error> {
        let kubeconfig = self.admin_kubeconfig();
        // Its discovery cache goes into the folder of the test, and not into the home of the user who runs the tests.
        let env = [("KUBECONFIG", kubeconfig.as_path()), ("HOME", self.folder.path())];
        command::run(&tool("kubectl").await?, args, &env, input).await
    }

    /// Runs kubectl with plugins from one of the folders of `path`.
    pub async fn kubectl_as(&self, path: &OsStr, args: &[&str]) -> Result<Output, Error> {
        let kubeconfig = self.admin_kubeconfig();
        let env = [("KUBECONFIG", kubeconfig.as_path()), ("HOME", self.folder.path()), ("PATH", Path::new(path))];
        command::run(&tool("kubectl").await?, args, &env, "").await
    }

    /// Runs the loader, which writes objects directly into etcd; `-help` lists its flags.
    pub async fn loader(&self, args: &[&str]) -> Result<String, Error> {
        let etcd = self.etcd_url();
        // A subcommand comes before the flags.
        let (subcommand, flags) = match args {
            ["compact", flags @ ..] => (Some("compact"), flags),
            flags => (None, flags),
        };
        let all: Vec<&str> = subcommand.into_iter().chain(["-etcd", &etcd]).chain(flags.iter().copied()).collect();
        command::run(&tool("loader").await?, &all, &[], "").await?.text()
    }

    /// Compacts all history up to now, as API servers do every few minutes: requests for older resourceVersions are answered with 410 Gone. The
    /// API server's watch cache still serves what it holds; watches only notice after a restart, or on a control plane without that cache.
    pub async fn compact(&self) -> Result<(), Error> {
        self.loader(&["compact"]).await.map(drop)
    }

    /// The log file of a program of this name.
    pub fn log(&self, name: &str) -> PathBuf {
        self.folder.log(name)
    }

    /// Starts any other program beside the control plane, with a log and cleanup like the others'. `name` names the log.
    pub fn program<A>(&self, name: &str, path: &Path, args: A, env: &[(&str, &str)]) -> Result<Program, Error>
    where
        A: IntoIterator<Item: AsRef<OsStr>>,
    {
        let env = env.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Program::start(name, path, args, env, self.folder.clone())
    }
}
