//! A hostile fence agent, run like in the chart: by a separate process, as another user.

use std::os::unix::fs::{PermissionsExt, chown};

use pod_safety_control_plane::binary;

use super::*;

/// The users of the chart.
const CONTROLLERS_USER: u32 = 65_532;
const AGENTS_USER: u32 = 65_531;

/// An agent that attempts reads: each line of `wanted` is a name and a file. It records the files that it can open, and finally that it is
/// done.
const SPY: &str = r#"#!/bin/sh
here=${0%/*}
if grep -q action=metadata; then cat <<'END'
<resource-agent name="fence_spy"><parameters/><actions>
<action name="on"/><action name="off"/><action name="reboot"/><action name="status"/>
</actions></resource-agent>
END
exit 0
fi
{
    ( : </proc/$$/mem ) 2>/dev/null && echo own
    while read -r name file; do ( : <"$file" ) 2>/dev/null && echo "$name"; done <"$here/wanted"
    echo through
} >"$here/out/got.$$" && mv "$here/out/got.$$" "$here/out/got"
echo 'Status: ON'
exit 0
"#;

/// The files of both processes, in a folder that other users may enter.
struct Fixture {
    folder: tempfile::TempDir,
    /// Only root can start them as two users. Otherwise they share one, and fewer files are protected.
    two_users: bool,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let fixture = Self { folder, two_users: rustix::process::geteuid().is_root() };
        fixture.mode("", 0o755);
        std::fs::write(fixture.path("fence_spy"), SPY).unwrap();
        fixture.mode("fence_spy", 0o755);
        for (name, mode) in [("out", 0o777), ("run", 0o777)] {
            std::fs::create_dir(fixture.path(name)).unwrap();
            fixture.mode(name, mode);
        }
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn mode(&self, name: &str, mode: u32) {
        std::fs::set_permissions(self.path(name), PermissionsExt::from_mode(mode)).unwrap();
    }

    /// The kubeconfig with its token, as a file that only the controllers' user can read.
    fn token(&self, kubeconfig: &Path) -> PathBuf {
        let mut config: Value = serde_json::from_str(&std::fs::read_to_string(kubeconfig).unwrap()).unwrap();
        let authority = &mut config["clusters"][0]["cluster"]["certificate-authority"];
        std::fs::copy(authority.as_str().unwrap(), self.path("ca.crt")).unwrap();
        self.mode("ca.crt", 0o644);
        *authority = json!(self.path("ca.crt"));
        let token = self.path("token");
        std::fs::write(&token, config.to_string()).unwrap();
        self.mode("token", 0o400);
        if self.two_users {
            chown(&token, Some(CONTROLLERS_USER), Some(CONTROLLERS_USER)).unwrap();
        }
        token
    }

    /// Starts the binary as this user, with both in one group, like `fsGroup`.
    async fn start(&self, plane: &ControlPlane, user: u32, args: &[String]) -> Program {
        let program = self.path("pod-safety");
        if !program.exists() {
            std::fs::copy(binary().await.unwrap(), &program).unwrap();
            self.mode("pod-safety", 0o755);
        }
        let as_user = [
            format!("--reuid={user}"),
            format!("--regid={CONTROLLERS_USER}"),
            "--clear-groups".to_owned(),
            // A change of the user resets the parent-death signal of the harness.
            "--pdeathsig=KILL".to_owned(),
            program.display().to_string(),
        ];
        let (path, all) = if self.two_users {
            (PathBuf::from("/usr/bin/setpriv"), [&as_user[..], args].concat())
        } else {
            (program, args.to_vec())
        };
        plane.program(&args[0], &path, all, &[]).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attack_a_fence_agent_reads_neither_memory_nor_token_of_the_controllers() {
    let (plane, fixture) = (ControlPlane::start(Options::default()).await.unwrap(), Fixture::new());
    let kubeconfig = fixture.token(&plane.install_pod_safety().await.unwrap());
    let machine = Machine::new("w1", || true);
    let mut kubelets = JoinSet::new();
    kubelets.spawn(Arc::clone(&machine).run_kubelet(plane.admin()));

    let socket = fixture.path("run/agents.sock");
    let listen = format!("--listen={}", socket.display());
    let path = format!("--fence-agents-path={}", fixture.folder.path().display());
    let client = if fixture.two_users { CONTROLLERS_USER } else { rustix::process::geteuid().as_raw() };
    let client = format!("--client-uid={client}");
    let agents = fixture.start(&plane, AGENTS_USER, &["fence-agents".to_owned(), listen, path, client]).await;
    let args = [
        "run".to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
        "--admin-address=127.0.0.1:0".to_owned(),
        CONTROLLERS.to_owned(),
        format!("--fence-agents-socket={}", socket.display()),
    ];
    let controllers = fixture.start(&plane, CONTROLLERS_USER, &args).await;

    let mut targets = String::new();
    for (name, pid) in [("controllers", controllers.pid()), ("agents", agents.pid())] {
        for file in ["mem", "environ", "auxv", "maps"] {
            targets.push_str(&format!("{name}-{file} /proc/{pid}/{file}\n"));
        }
    }
    if fixture.two_users {
        targets.push_str(&format!("token {}\n", kubeconfig.display()));
    }
    std::fs::write(fixture.path("wanted"), targets).unwrap();
    let spec = json!({ "driver": "Agent", "agent": "fence_spy", "monitorSeconds": 1 });
    apply(&plane, &device("spy", spec)).await;
    let got = wait_until("the agent is through", async || {
        let got = std::fs::read_to_string(fixture.path("out/got"));
        got.map_err(|error| error.to_string())
    })
    .await;
    // It can open its own file, so the others were denied.
    assert_eq!(got.lines().collect::<Vec<_>>(), ["own", "through"]);
    wait_until("the device says that the machine is on", async || {
        let device = plane.find("fencedevices", "pod-safety", "spy").await.unwrap().ok_or("none")?;
        check_that(device["status"]["targets"][0]["power"] == "On", device["status"].to_string())
    })
    .await;
}
