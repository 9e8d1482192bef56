//! Commands as typed by users, with their expected exit codes.

use std::path::Path;

use pod_safety_control_plane::{ControlPlane, Output, binary};
use serde_json::Value;

pub(crate) async fn run(plane: &ControlPlane, kubeconfig: &Path, args: &[&str]) -> Output {
    plane.start_pod_safety_once(kubeconfig, args).await.unwrap()
}

/// Runs a command, expects this exit code, and returns the output.
pub(crate) async fn ends_with(plane: &ControlPlane, code: i32, args: &[&str]) -> String {
    let output = run(plane, &plane.admin_kubeconfig(), args).await;
    assert_eq!(output.status.code(), Some(code), "{args:?}\n{output:?}");
    output.stdout
}

pub(crate) async fn json_of(plane: &ControlPlane, code: i32, args: &[&str]) -> Value {
    serde_json::from_str(&ends_with(plane, code, &[args, &["-o", "json"]].concat()).await).unwrap()
}

/// Creates or updates an object.
pub(crate) async fn apply(plane: &ControlPlane, object: &Value) {
    plane.kubectl_with(&["apply", "-f", "-"], &object.to_string()).await.unwrap().text().unwrap();
}

/// As called by kubectl: by the file name of the plugin. Machine-readable output is unchanged.
#[tokio::test]
async fn bug_usage_of_the_plugin_could_not_be_typed() {
    let own = binary().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-pod_safety");
    std::os::unix::fs::symlink(&own, &plugin).unwrap();
    let printed = |program: &Path, args: &[&str]| {
        let output = std::process::Command::new(program).args(args).output().unwrap();
        assert!(output.status.success(), "{args:?} {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for (args, usage) in [
        (&["--help"][..], "Usage: kubectl pod-safety <COMMAND>"),
        (&["explain", "--help"], "Usage: kubectl pod-safety explain [OPTIONS]"),
        (&["devices", "test", "--help"], "Usage: kubectl pod-safety devices test [OPTIONS]"),
    ] {
        let help = printed(&plugin, args);
        assert!(help.contains(usage), "{args:?}: {help}");
    }
    for args in [&["manifests"][..], &["completion", "bash"], &["man"]] {
        assert_eq!(printed(&plugin, args), printed(&own, args), "{args:?}");
    }
}
