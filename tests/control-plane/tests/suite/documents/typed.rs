//! Runs the commands of kubectl, helm and curl in a shell, unchanged, against a control plane with the chart installed and pod-safety running.
//! Changes are server-side dry runs.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Output, Stdio};

use pod_safety_control_plane::objects::{self, PodExt as _};
use pod_safety_control_plane::{ControlPlane, Options, PodSafety, binary, chart, tool};
use pod_safety_locks::documents::{TestedBy, commands, with_stand_ins};
use pod_safety_locks::repository;
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

/// Names in the documentation, and the corresponding names here.
const NAMES: [(&str, &str); 3] = [("NODE", "node-0"), ("NODEFENCE", "incident"), ("db-0", "data-0")];

/// Commands that run until they are stopped.
const LONG_RUNNING: [&str; 2] = [" -w", " --watch"];

/// kubectl without changes; a diff with differences is no failure.
const KUBECTL: &str = r#"#!/bin/bash
verb= value=
for word in "$@"; do
  if [ -n "$value" ]; then value=; continue; fi
  case $word in -n | --namespace) value=yes ;; -*) ;; *) verb=$word && break ;; esac
done
case $verb in
  annotate | apply | cordon | create | delete | label | patch | replace | scale | taint | uncordon)
    exec PROGRAM "$@" --dry-run=server ;;
  diff) PROGRAM "$@" || [ $? = 1 ] ;;
  *) exec PROGRAM "$@" ;;
esac
"#;

/// helm without changes.
const HELM: &str = r#"#!/bin/bash
case " $* " in
  *" install "* | *" upgrade "*) exec PROGRAM "$@" --dry-run=server ;;
  *" rollback "* | *" uninstall "*) exec PROGRAM "$@" --dry-run ;;
  *) exec PROGRAM "$@" ;;
esac
"#;

/// grep, where no match is no failure.
const GREP: &str = "#!/bin/bash\nPROGRAM \"$@\" || [ $? = 1 ]\n";

/// A control plane, and a folder with the programs for the commands.
struct Desk {
    plane: ControlPlane,
    home: TempDir,
}

#[tokio::test]
async fn every_command_of_the_documentation_for_a_cluster_is_accepted() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let desk = Desk { plane, home: TempDir::new().unwrap() };
    desk.create_objects().await;
    let pod_safety = desk.run_pod_safety().await;
    let (mut typed, mut refused) = (BTreeSet::new(), Vec::new());
    for command in commands().unwrap().iter().filter(|command| command.tested_by == TestedBy::ControlPlane) {
        let line = with_stand_ins(&command.text, &NAMES).replace("localhost:8080", &pod_safety.address());
        if typed.insert(line.clone())
            && let Err(why) = desk.accepts(&line).await
        {
            refused.push(format!("{}: {line}\n{why}", command.place));
        }
    }
    assert!(typed.len() > 40, "{typed:?}");
    for (_, there) in NAMES {
        assert!(typed.iter().any(|line| line.contains(there)), "nothing names {there} any more");
    }
    assert!(refused.is_empty(), "{}", refused.join("\n\n"));
    for wrong in
        ["kubectl get nodefence --frobnicate", "helm upgrade nothing charts/nothing", "kubectl get nothing | jq ."]
    {
        assert!(desk.accepts(wrong).await.is_err(), "{wrong}");
    }
}

impl Desk {
    async fn helm(&self, args: &[&str]) {
        let chart = chart();
        let chart = [chart.to_str().unwrap(), "--namespace=pod-safety", "pod-safety"];
        self.plane.helm(&[args, &chart[1..], &chart[..1]].concat()).await.unwrap().text().unwrap();
    }

    /// The objects for the commands: a release with a history, a lost node, its pod, its fencing.
    async fn create_objects(&self) {
        // With the policies, only pod-safety may write the status of a FencePolicy.
        self.helm(&["install", "--create-namespace", "--set=admissionPolicies.fence=Audit"]).await;
        // The namespaces of the providers whose objects the pages name.
        for namespace in ["capi", "metal3", "openshift-machine-api"] {
            self.plane.kubectl(&["create", "namespace", namespace]).await.unwrap().text().unwrap();
        }
        let admin = self.plane.admin();
        let node = objects::create_node(&admin, &objects::node("node-0")).await.unwrap();
        objects::renew_lease(&admin, "node-0").await.unwrap();
        let taints = "node.kubernetes.io/out-of-service=x:NoExecute pod-safety.dev/suspect=x:NoSchedule";
        let taint = ["taint", "node", "node-0"].into_iter().chain(taints.split(' ')).collect::<Vec<_>>();
        self.plane.kubectl(&taint).await.unwrap().text().unwrap();
        let pod = objects::pod("default", "data-0").on_node("node-0").with_phase("Running");
        objects::create_pod(&admin, &pod).await.unwrap();
        let object = |kind: &str, name: &str, spec| json!({ "apiVersion": "pod-safety.dev/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec });
        let incarnation =
            json!({ "name": "node-0", "uid": node.metadata.uid, "bootID": objects::boot_id("node-0", 1) });
        let level = json!({ "name": "bmc", "devices": [{ "namespace": "pod-safety", "name": "bmc" }] });
        for object in [
            object("FenceDevice", "bmc", json!({ "driver": "Manual" })),
            object("FencePolicy", "databases", json!({ "levels": [level] })),
            object(
                "NodeFence",
                "incident",
                json!({ "node": incarnation, "policy": "databases",
                "trigger": { "kind": "Person", "reason": "a disk dies", "by": "admin" } }),
            ),
        ] {
            self.plane
                .kubectl_with(&["create", "-n", "pod-safety", "-f", "-"], &object.to_string())
                .await
                .unwrap()
                .text()
                .unwrap();
        }
        let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True", "reason": "DevicesReady",
            "message": "all devices are ready", "lastTransitionTime": "2026-01-01T00:00:00Z" }] } });
        let patch = ["patch", "fencepolicy", "databases", "--subresource=status", "--type=merge", "-p"];
        self.plane.kubectl(&[&patch[..], &[&ready.to_string()]].concat()).await.unwrap().text().unwrap();
        self.helm(&["upgrade", "--reset-then-reuse-values", "--set=admissionPolicies.fence=Deny"]).await;
        let bin = self.home.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        symlink(std::fs::canonicalize(binary().await.unwrap()).unwrap(), bin.join("pod-safety")).unwrap();
        wrap(&bin, "kubectl", KUBECTL, &tool("kubectl").await.unwrap());
        wrap(&bin, "helm", HELM, &tool("helm").await.unwrap());
        wrap(&bin, "grep", GREP, Path::new("/usr/bin/grep"));
    }

    /// It leads, serves its admin port, and does not touch the objects of this test.
    async fn run_pod_safety(&self) -> PodSafety {
        let kubeconfig = self.plane.admin_kubeconfig();
        let mut pod_safety = self.plane.pod_safety("ours", &kubeconfig, ["--controllers=pod-gc"]).await.unwrap();
        pod_safety.ready().await.unwrap();
        pod_safety.is_leader().await.unwrap();
        pod_safety
    }

    /// Runs a line in a shell at the root of the repository.
    async fn type_in(&self, line: &str, timeout: &str) -> Output {
        let mut command = Command::new("timeout");
        command.args([timeout, "bash", "-o", "pipefail", "-c", line]).current_dir(repository());
        let path = format!("{}:{}", self.home.path().join("bin").display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("KUBECONFIG", self.plane.admin_kubeconfig());
        for home in ["HOME", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(home, self.home.path());
        }
        command.stdin(Stdio::null()).output().await.unwrap()
    }

    async fn accepts(&self, line: &str) -> Result<(), String> {
        let goes_on = LONG_RUNNING.iter().any(|flag| line.contains(flag));
        let output = self.type_in(line, if goes_on { "5" } else { "120" }).await;
        let expected = if goes_on { 124 } else { 0 };
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        println!("$ {line}\n{text}");
        // A filter may match nothing.
        let is_mute = text.is_empty() && !line.contains('|') && !line.contains("jsonpath");
        match output.status.code() {
            Some(code) if code == expected && !is_mute => Ok(()),
            code => Err(format!("exit code {code:?}: {text}")),
        }
    }
}

/// Installs a wrapper script for a program.
fn wrap(bin: &Path, name: &str, script: &str, program: &Path) {
    let file = bin.join(name);
    std::fs::write(&file, script.replace("PROGRAM", program.to_str().unwrap())).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
}
