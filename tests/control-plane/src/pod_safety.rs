//! The program under test: the shipped binary, as a process, under its own service account.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::port::Port;
use crate::{ControlPlane, Error, Options, Output, PATIENCE, Program, raw, until};

/// Timing for fast tests: a quarantine of 3 s, and a released lease is taken immediately. A lease that was not released expires no sooner
/// than by default: a busy machine must not cause a change of the leader.
pub const QUICK: [&str; 4] = [
    "--pod-gc-quarantine=3s",
    "--leader-elect-lease-duration=15s",
    "--leader-elect-renew-deadline=10s",
    "--leader-elect-retry-period=500ms",
];

/// For tests in which leaders die: their lease expires after 3 s.
pub const SHORT_LEADER_LEASE: [&str; 3] =
    ["--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms"];

/// A running `pod-safety run`; everything that [`Program`] offers, and its admin server.
pub struct PodSafety {
    program: Program,
    port: Port,
}

/// An answer of the admin server.
#[derive(Clone, Debug)]
pub struct Page {
    /// The HTTP code.
    pub code: u16,
    /// The body.
    pub body: String,
}

impl ControlPlane {
    /// Starts a control plane with the usual options and installs pod-safety on it; also returns the kubeconfig of its service account.
    pub async fn with_pod_safety() -> Result<(Self, PathBuf), Error> {
        let plane = Self::start(Options::default()).await?;
        let kubeconfig = plane.install_pod_safety().await?;
        Ok((plane, kubeconfig))
    }

    /// Applies the output of `pod-safety manifests`, and nothing else, and returns the kubeconfig of its service account.
    pub async fn install_pod_safety(&self) -> Result<PathBuf, Error> {
        let manifests = manifests().await?;
        self.kubectl_with(&["apply", "-f", "-"], &manifests).await?.text()?;
        self.service_account("pod-safety", "pod-safety").await
    }

    /// Binds the service account to a shipped but unbound role, or to one of a test.
    pub async fn bind_pod_safety(&self, role: &str) -> Result<(), Error> {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": role },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            "subjects": [{ "kind": "ServiceAccount", "name": "pod-safety", "namespace": "pod-safety" }],
        });
        let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{role}");
        raw::apply(&self.admin(), &path, &binding).await.map(drop)
    }

    /// Starts `pod-safety run` with [`QUICK`] timing and `args`, which override it. `name` names the log. Does not wait: see
    /// [`PodSafety::ready`].
    pub async fn pod_safety<A>(&self, name: &str, kubeconfig: &Path, args: A) -> Result<PodSafety, Error>
    where
        A: IntoIterator<Item: AsRef<OsStr>>,
    {
        self.pod_safety_with_flags(name, kubeconfig, args, &[]).await
    }

    /// Starts one with its usual name, and waits until it leads.
    pub async fn leading_pod_safety<A>(&self, kubeconfig: &Path, args: A) -> Result<PodSafety, Error>
    where
        A: IntoIterator<Item: AsRef<OsStr>>,
    {
        let mut pod_safety = self.pod_safety("pod-safety", kubeconfig, args).await?;
        pod_safety.is_leader().await?;
        Ok(pod_safety)
    }

    /// Starts it with additional environment variables.
    pub async fn pod_safety_with_flags<A>(
        &self,
        name: &str,
        kubeconfig: &Path,
        args: A,
        env: &[(&str, &str)],
    ) -> Result<PodSafety, Error>
    where
        A: IntoIterator<Item: AsRef<OsStr>>,
    {
        let port = Port::reserve()?;
        let mut all = vec!["run".into(), "--kubeconfig".into(), kubeconfig.as_os_str().to_owned()];
        all.push(format!("--admin-address={}:{}", Ipv4Addr::LOCALHOST, port.number()).into());
        let args: Vec<_> = args.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
        let flag = |arg: &OsStr| arg.to_string_lossy().split('=').next().unwrap_or_default().to_owned();
        // A flag may be given only once.
        let given: Vec<String> = args.iter().map(|arg| flag(arg)).collect();
        all.extend(QUICK.iter().filter(|quick| !given.contains(&flag(quick.as_ref()))).map(Into::into));
        all.extend(args);
        let program = self.program(name, &binary().await?, all, env)?;
        Ok(PodSafety { program, port })
    }

    /// Starts `pod-safety fence-agents` with the agents of a folder, and waits until it listens at `socket`.
    pub async fn fence_agents(&self, name: &str, agents: &Path, socket: &Path) -> Result<Program, Error> {
        let args = [
            "fence-agents".to_owned(),
            format!("--listen={}", socket.display()),
            format!("--fence-agents-path={}", agents.display()),
        ];
        let mut program = self.program(name, &binary().await?, args, &[])?;
        let listens = async || crate::check_that(socket.exists(), "not yet".to_owned());
        program.wait_for("listen", listens).await?;
        Ok(program)
    }

    /// Runs `pod-safety` with `args` to its end, with this kubeconfig.
    pub async fn start_pod_safety_once(&self, kubeconfig: &Path, args: &[&str]) -> Result<Output, Error> {
        let env = [("POD_SAFETY_KUBECONFIG", kubeconfig)];
        crate::command::run(&binary().await?, args, &env, "").await
    }
}

impl PodSafety {
    /// Waits until it has listed everything. A standby becomes ready, too.
    pub async fn ready(&mut self) -> Result<(), Error> {
        let port = self.port.number();
        self.program
            .wait_for("become ready", async || match get(port, "/readyz").await {
                Ok(Page { code: 200, .. }) => Ok(()),
                Ok(page) => Err(page.body),
                Err(error) => Err(error.to_string()),
            })
            .await
    }

    /// Waits until it leads.
    pub async fn is_leader(&mut self) -> Result<(), Error> {
        let port = self.port.number();
        self.program
            .wait_for("lead", async || {
                let page = get(port, "/metrics").await.map_err(|error| error.to_string())?;
                crate::check_that(sum(&page.body, "leader_election_master_status", &[]) == 1.0, "not yet".to_owned())
            })
            .await
    }

    /// Requests a page of the admin server.
    pub async fn get(&self, path: &str) -> Result<Page, Error> {
        let program = self.program.name().to_owned();
        let answer = get(self.port.number(), path).await;
        answer.map_err(|source| Error::Process { act: "ask", program, source })
    }

    /// The sum of the metric's samples with these labels; 0 if there is none.
    pub async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Result<f64, Error> {
        Ok(sum(&self.get("/metrics").await?.body, name, labels))
    }

    /// Its recorded decisions and actions for this pod.
    pub async fn records(&self, pod: &str) -> Result<Vec<Value>, Error> {
        Ok(of_pod(&self.debug("/debug/decisions").await?["records"], |record| &record["pod"]["name"], pod))
    }

    /// Its current holds on this pod.
    pub async fn holds(&self, pod: &str) -> Result<Vec<Value>, Error> {
        let decisions = self.debug("/debug/decisions").await?;
        Ok(of_pod(&decisions["holds"], |hold| &hold["subject"]["pod"]["name"], pod))
    }

    /// Waits until it holds the pod for this reason; returns the message.
    pub async fn until_held(&self, pod: &str, reason: &str) -> Result<String, Error> {
        until(&format!("{pod} is held because of {reason}"), async || {
            let holds = self.holds(pod).await.map_err(|error| format!("{error:?}"))?;
            let hold = holds.iter().find(|hold| hold["reason"] == reason);
            let message = hold.and_then(|hold| hold["message"].as_str()).map(str::to_owned);
            message.ok_or_else(|| format!("{holds:?}"))
        })
        .await
    }

    /// A page of `/debug`.
    pub async fn debug(&self, path: &str) -> Result<Value, Error> {
        let page = self.get(path).await?;
        Ok(serde_json::from_str(&page.body).unwrap_or_default())
    }

    /// The address of its admin server.
    pub fn address(&self) -> String {
        format!("{}:{}", Ipv4Addr::LOCALHOST, self.port.number())
    }
}

fn of_pod(list: &Value, name: impl Fn(&Value) -> &Value, pod: &str) -> Vec<Value> {
    list.as_array().into_iter().flatten().filter(|entry| name(entry) == pod).cloned().collect()
}

impl Deref for PodSafety {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl DerefMut for PodSafety {
    fn deref_mut(&mut self) -> &mut Program {
        &mut self.program
    }
}

/// The output of `pod-safety manifests`.
pub async fn manifests() -> Result<String, Error> {
    crate::command::run(&binary().await?, &["manifests"], &[], "").await?.text()
}

/// The path of the program to test, if it was built before the tests began (`make test` does that).
const BUILT: &str = "POD_SAFETY_PROGRAM";

/// The shipped binary, built first if it is out of date, with the profile of the calling test or program.
pub async fn binary() -> Result<PathBuf, Error> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = tokio::task::spawn_blocking(|| BINARY.get_or_init(build).clone()).await;
    built.map_err(|error| Error::Tools(error.to_string()))?.map_err(Error::Tools)
}

fn build() -> Result<PathBuf, String> {
    if let Some(built) = std::env::var_os(BUILT) {
        return Ok(built.into());
    }
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    // target/<profile>/deps/<test>, target/<profile>/examples/<example>, or target/<profile>/<program>
    let apart = |folder: &&Path| !folder.ends_with("deps") && !folder.ends_with("examples");
    let profile = program.ancestors().skip(1).find(apart).ok_or("this program does not lie in a target folder")?;
    let mut cargo = Command::new(env!("CARGO"));
    // Without the demonstration, as in the container image.
    cargo.args(["build", "--quiet", "--locked", "--workspace", "--no-default-features", "--bin=pod-safety"]);
    cargo.arg("--target-dir").args(profile.parent()).current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo.args(["--profile", if profile.ends_with("release") { "release" } else { "test" }]);
    // Cargo's variables for this test would make the build scripts of dependencies run again.
    for (name, _) in std::env::vars_os() {
        let own = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_"];
        if own.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            cargo.env_remove(name);
        }
    }
    let output = cargo.stdin(Stdio::null()).output().map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!("cannot build pod-safety:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(profile.join("pod-safety"))
}

/// One request on one connection: the minimum of HTTP for a test, without retries that could hide errors.
async fn get(port: u16, path: &str) -> std::io::Result<Page> {
    let exchange = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        Ok(Page { code, body: body.to_owned() })
    };
    tokio::time::timeout(PATIENCE, exchange).await?
}

/// Adds up the samples of a Prometheus page.
fn sum(page: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let samples = page.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
    let matching = samples.filter(|(series, _)| {
        let (metric, own) = series.split_once('{').unwrap_or((series, ""));
        metric == name && labels.iter().all(|(key, value)| own.contains(&format!("{key}=\"{value}\"")))
    });
    matching.filter_map(|(_, value)| value.parse::<f64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_selected_by_name_and_labels() {
        let page = "# HELP a b\na{x=\"1\",y=\"2\"} 3\na{x=\"2\"} 4\nab 5\na 0.5\n";
        assert_eq!(sum(page, "a", &[]), 7.5);
        assert_eq!(sum(page, "a", &[("x", "1")]), 3.0);
        assert_eq!(sum(page, "none", &[]), 0.0);
    }
}
