//! Wrong input and the binary's answer: one line that names the flag, the value, and the allowed values.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use pod_safety_control_plane::{PATIENCE, Port, binary, check_that, manifests, tool, wait_until};

struct ExitOutput {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

async fn pod_safety(args: &[&str], env: &[(&str, &str)]) -> ExitOutput {
    let mut command = tokio::process::Command::new(binary().await.unwrap());
    command.args(args).env_clear().envs(env.iter().copied()).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await.unwrap().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ExitOutput { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

/// Expects exit code `code` and one line on stderr that contains all of `expected`.
async fn refuses(args: &[&str], env: &[(&str, &str)], code: i32, expected: &[&str]) {
    let ExitOutput { code: got, stdout, stderr } = pod_safety(&[&["run"], args].concat(), env).await;
    assert_eq!(got, Some(code), "{args:?} {env:?}: {stderr}");
    assert_eq!(stdout, "", "{args:?}");
    assert_eq!(stderr.trim_end().lines().count(), 1, "{args:?} {env:?}: {stderr}");
    assert!(stderr.starts_with("pod-safety: "), "{stderr}");
    for word in expected {
        assert!(stderr.contains(word), "{args:?} {env:?}: no {word:?} in: {stderr}");
    }
}

#[tokio::test]
async fn an_invalid_flag_value_is_reported_with_flag_and_allowed_values() {
    let cases: [(&[&str], &[&str]); 24] = [
        (&["--controllers=nosuch"], &["--controllers", "\"nosuch\"", "pod-gc"]),
        (&["--controllers=*,-nosuch"], &["--controllers", "\"-nosuch\"", "pod-gc"]),
        (&["--exclusive-csi-drivers=a b"], &["--exclusive-csi-drivers", "a b"]),
        (&["--controllers=-pod-gc"], &["--controllers", "pod-gc"]),
        (&["--pod-gc-quarantine=-5s"], &["--pod-gc-quarantine", "-5s", "allowed is 1ms to 24h"]),
        (&["--pod-gc-quarantine=40"], &["--pod-gc-quarantine", "'40'", "allowed is 1ms to 24h"]),
        (&["--leader-elect-lease-duration=-15s"], &["--leader-elect-lease-duration", "-15s", "allowed is"]),
        (
            &["--leader-elect-lease-duration=8s"],
            &["--leader-elect-lease-duration=8s", "longer than --leader-elect-renew-deadline=8s"],
        ),
        (
            &["--leader-elect-retry-period=9s"],
            &["--leader-elect-renew-deadline=8s", "1.2 times --leader-elect-retry-period=9s"],
        ),
        (&["--leader-elect-lease-duration=500ms"], &["--leader-elect-lease-duration=500ms", "at least 1s"]),
        (&["--leader-elect-resource-lock=endpoints"], &["--leader-elect-resource-lock", "endpoints", "leases"]),
        (&["--leader-elect-resource-name=../x"], &["--leader-elect-resource-name", "../x", "use lower-case letters"]),
        (&["--leader-elect=perhaps"], &["--leader-elect", "perhaps", "true, false"]),
        (&["--mode=brave"], &["--mode", "brave", "observe, guard, replace"]),
        (&["--otlp-endpoint=collector:4318"], &["--otlp-endpoint", "collector:4318", "http://"]),
        (&["--otlp-endpoint=https://collector:4318"], &["--otlp-endpoint", "https is not supported; use http://"]),
        (&["--log-format=xml"], &["--log-format", "xml", "text, json"]),
        (&["--terminated-pod-gc-threshold=many"], &["--terminated-pod-gc-threshold", "many", "allowed is"]),
        (&["--admin-address=8080"], &["--admin-address", "8080", "allowed is"]),
        (&["--admin-address=localhost:http"], &["--admin-address", "localhost:http", "allowed is"]),
        (&["--node-eviction-rate=NaN"], &["--node-eviction-rate", "NaN", "allowed is 0 to 1000"]),
        (&["--unhealthy-zone-threshold=-1"], &["--unhealthy-zone-threshold", "-1", "allowed is more than 0"]),
        (&["--large-cluster-size-threshold=few"], &["--large-cluster-size-threshold", "few", "allowed is"]),
        (&["--no-such-flag"], &["--no-such-flag"]),
    ];
    for (args, expected) in cases {
        refuses(args, &[], 2, expected).await;
    }
}

#[tokio::test]
async fn an_invalid_environment_value_is_reported() {
    for (name, value, expected) in [
        ("POD_SAFETY_MODE", "brave", ["--mode", "observe, guard, replace"]),
        ("POD_SAFETY_POD_GC_QUARANTINE", "soon", ["--pod-gc-quarantine", "allowed is 1ms to 24h"]),
        ("POD_SAFETY_CONTROLLERS", "nosuch", ["--controllers", "known controllers"]),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "grpc://collector:4317", ["--otlp-endpoint", "4318, not 4317"]),
        ("POD_SAFETY_LEADER_ELECT", "7", ["--leader-elect", "true, false"]),
    ] {
        refuses(&[], &[(name, value)], 2, &[expected[0], expected[1], value]).await;
    }
}

#[tokio::test]
async fn an_unusable_kubeconfig_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let good = unreachable_kubeconfig(folder.path());
    let missing = folder.path().join("missing").display().to_string();
    for path in [
        missing.clone(),
        folder.path().display().to_string(),
        file("not-yaml", "clusters: [\n  {{{\n"),
        file("other", "a: b\nclusters: 7\n"),
        file("empty", ""),
        file(
            "no-server",
            r#"{"clusters": [{"name": "a", "cluster": {}}], "users": [{"name": "a", "user": {}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}], "current-context": "a"}"#,
        ),
    ] {
        refuses(&["--kubeconfig", &path], &[], 1, &["kubeconfig", &path]).await;
    }
    refuses(&["--kubeconfig", &good, "--context=nosuch"], &[], 1, &["nosuch", &good]).await;
    refuses(&[], &[("KUBECONFIG", &missing)], 1, &[&missing]).await;
    refuses(&[], &[("POD_SAFETY_KUBECONFIG", &missing)], 1, &[&missing]).await;
    let in_cluster = [("KUBERNETES_SERVICE_HOST", "127.0.0.1"), ("KUBERNETES_SERVICE_PORT", "1")];
    refuses(&[], &in_cluster, 1, &["service account"]).await;
    refuses(&["--context=nosuch"], &in_cluster, 1, &["--context=nosuch needs a kubeconfig"]).await;
}

/// A kubeconfig for a server that does not answer.
fn unreachable_kubeconfig(folder: &Path) -> String {
    let kubeconfig = folder.join("kubeconfig");
    let text = r#"{"clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}], "users": [{"name": "a", "user": {}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}], "current-context": "a"}"#;
    std::fs::write(&kubeconfig, text).unwrap();
    kubeconfig.to_string_lossy().into_owned()
}

#[tokio::test]
async fn an_address_in_use_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = unreachable_kubeconfig(folder.path());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let flag = format!("--admin-address={}", taken.local_addr().unwrap());
    let ended = pod_safety(&["run", "--kubeconfig", &kubeconfig, &flag], &[]).await;
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    // Log lines may precede it.
    let last = ended.stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("pod-safety: ") && last.contains(&flag) && last.contains("in use"), "{}", ended.stderr);
}

/// A full log disk stopped fencing: a process that could not write a log line panicked.
#[tokio::test]
async fn an_unwritable_log_does_not_end_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = unreachable_kubeconfig(folder.path());
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let port = Port::reserve().unwrap();
    let admin = SocketAddr::from(([127, 0, 0, 1], port.number()));
    let mut command = tokio::process::Command::new(binary().await.unwrap());
    command.args(["run", "--kubeconfig", &kubeconfig, &format!("--admin-address={admin}")]);
    let mut child = command.stdin(Stdio::null()).stderr(full).kill_on_drop(true).spawn().unwrap();
    wait_until("it listens", async || {
        let ended = child.try_wait().map_err(|error| error.to_string())?;
        check_that(ended.is_some() || tokio::net::TcpStream::connect(admin).await.is_ok(), String::new())
    })
    .await;
    // By now it has logged a line for each list that is not answered.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(child.try_wait().unwrap(), None);
    assert!(tokio::net::TcpStream::connect(admin).await.is_ok());
}

#[tokio::test]
async fn help_and_version_are_printed_on_request() {
    let version = pod_safety(&["version", "-o", "json"], &[]).await;
    let version: serde_json::Value = serde_json::from_str(&version.stdout).unwrap();
    assert!(version["version"].as_str().is_some_and(|text| !text.is_empty()), "{version}");
    let completion = pod_safety(&["completion", "bash"], &[]).await;
    assert!(completion.code == Some(0) && completion.stdout.contains("--pod-gc-quarantine"));
    let syntax = tokio::process::Command::new("bash").args(["-n", "-c", &completion.stdout]).output().await.unwrap();
    assert!(syntax.status.success(), "{}", String::from_utf8_lossy(&syntax.stderr));
    let manifests = manifests().await.unwrap();
    assert_eq!(manifests.split("\n---\n").count(), 6 + 38 + 8, "kinds, rights, policies: {manifests}");
    let nothing = pod_safety(&[], &[]).await;
    assert!(nothing.code == Some(2) && nothing.stderr.contains("Usage:"), "{}", nothing.stderr);
}

/// The flags of kube-controller-manager in these sections of its help, each with a valid value.
async fn flags_of_kcm(sections: &[&str]) -> Vec<String> {
    let kcm = tool("kube-controller-manager").await.unwrap();
    let help = tokio::process::Command::new(kcm).arg("--help").output().await.unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let (mut section, mut flags) = ("", Vec::new());
    for line in help.lines() {
        if let Some(name) = line.strip_suffix(" flags:") {
            section = name;
        }
        let mut words = line.split_whitespace().skip_while(|word| !word.starts_with("--"));
        if let (true, Some(flag)) = (sections.contains(&section) && line.trim().starts_with('-'), words.next()) {
            let value = match words.next() {
                Some("duration") => "=9s",
                Some("int32" | "float32" | "float") => "=1",
                Some("string" | "strings") => "=leases",
                Some("colonSeparatedMultimapStringString") => "=A=true",
                // A boolean flag.
                _ => "",
            };
            flags.push(format!("{flag}{value}"));
        }
    }
    flags
}

/// A command line of kube-controller-manager is accepted. Flags of other controllers and of cloud providers are left out.
#[tokio::test]
async fn accepts_the_kcm_flags_of_these_controllers_and_of_the_client() {
    const OF_OTHERS: [&str; 11] = [
        "--allocate-node-cidrs",
        "--cidr-allocator-type",
        "--cloud-config",
        "--cloud-provider",
        "--cluster-cidr",
        "--cluster-name",
        "--configure-cloud-routes",
        "--emulated-version",
        "--external-cloud-volume-plugin",
        "--min-compatibility-version",
        "--route-reconciliation-period",
    ];
    // Their values have an effect: each has its own test.
    const WITH_EFFECT: [&str; 2] = ["--controllers", "--master"];
    let sections = [
        "Debugging",
        "Generic",
        "Misc",
        "Node-lifecycle-controller",
        "Pod-garbage-collector-controller",
        "Disruption-controller",
        "Taint-eviction-controller",
    ];
    let all = flags_of_kcm(&sections).await;
    assert!(all.len() > 30, "{all:?}");
    let name = |flag: &String| flag.split('=').next().unwrap_or_default().to_owned();
    let taken = all
        .iter()
        .filter(|flag| !OF_OTHERS.contains(&name(flag).as_str()) && !WITH_EFFECT.contains(&name(flag).as_str()));
    for flag in taken {
        refuses(&[flag, "--controllers=nosuch"], &[], 2, &["--controllers", "nosuch"]).await;
    }
}

#[tokio::test]
async fn ignored_flags_are_logged_once_and_an_api_server_address_is_accepted() {
    let args = ["run", "--kube-api-qps=50", "--node-monitor-period=5s", "--admin-address=127.0.0.1:0"];
    // Without a cluster it exits after it has logged that.
    let stderr = pod_safety(&args, &[]).await.stderr;
    for flag in ["--kube-api-qps", "--node-monitor-period"] {
        assert_eq!(stderr.matches(flag).count(), 1, "{stderr}");
    }
    assert!(stderr.contains("has no effect here"), "{stderr}");
    let config = tempfile::NamedTempFile::new().unwrap();
    let cluster = r#"{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{}}]}"#;
    std::fs::write(config.path(), cluster).unwrap();
    let kubeconfig = format!("--kubeconfig={}", config.path().display());
    let stderr = pod_safety(&["run", &kubeconfig, "--master=10.0.0.1"], &[]).await.stderr;
    assert!(stderr.contains("'--master <URL>'") && stderr.contains("10.0.0.1"), "{stderr}");
}

#[tokio::test]
async fn defaults_equal_those_of_kcm() {
    let help = pod_safety(&["run", "--help"], &[]).await;
    assert_eq!(help.code, Some(0));
    let words = help.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let flags: Vec<&str> = words.split(" --").collect();
    for (flag, default) in [
        ("terminated-pod-gc-threshold", "12500"),
        ("pod-gc-quarantine", "40s"),
        ("node-monitor-grace-period", "50s"),
        ("node-startup-grace-period", "60s"),
        ("node-eviction-rate", "0.1"),
        ("secondary-node-eviction-rate", "0.01"),
        ("large-cluster-size-threshold", "50"),
        ("unhealthy-zone-threshold", "0.55"),
        ("leader-elect ", "true"),
        ("leader-elect[", "true"),
        ("leader-elect-lease-duration", "12s"),
        ("leader-elect-renew-deadline", "8s"),
        ("leader-elect-retry-period", "2s"),
        ("leader-elect-resource-lock", "leases"),
        ("leader-elect-resource-namespace", "kube-system"),
        ("controllers", "*"),
        ("admin-address", "0.0.0.0:8080"),
        ("mode", "guard"),
        ("trust-out-of-service-taint", "false"),
    ] {
        let Some(about) = flags.iter().find(|about| about.starts_with(flag)) else {
            assert!(flag.starts_with("leader-elect") && flag.len() == 13, "no --{flag} in {words}");
            continue;
        };
        assert!(about.contains(&format!("[default: {default}]")), "{about}");
    }
}
