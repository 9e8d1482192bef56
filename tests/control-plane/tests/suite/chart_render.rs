//! The chart without a cluster: its rendered objects, its errors, and its consistency with the binary and the docs.
//!
//! `POD_SAFETY_WRITE_RENDERS=1` writes the rendered objects to `golden/chart`, and the table of values (`texts`) to the chart's
//! `README.md`: review the difference before you commit it.

mod texts;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use pod_safety_control_plane::{binary, chart, compare_golden, helm, kube_score, manifests, tool};
use pod_safety_process::registry::Name;
use serde_json::{Value, json};

/// So that the result does not depend on the version of helm's libraries.
const KUBE_VERSION: &str = "--kube-version=1.37.2";
/// Modes with a file in `ci/`.
const MODES: [&str; 4] = ["default", "observe", "replace", "everything"];
const WRITES: &str = "POD_SAFETY_WRITE_RENDERS";

fn read_file(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn values_of(way: &str) -> PathBuf {
    chart().join(format!("ci/{way}-values.yaml"))
}

async fn render(chart: &Path, more: &[&str]) -> String {
    let mut args = vec!["template", "pod-safety", chart.to_str().unwrap(), "--namespace=pod-safety", KUBE_VERSION];
    args.extend(more);
    helm(&args).await.unwrap().text().unwrap()
}

/// The documents of a YAML stream, without those that have only comments.
fn documents(text: &str) -> Vec<Value> {
    let is_content = |line: &str| !line.trim().is_empty() && !line.starts_with('#') && line != "---";
    let all = text.split("\n---").filter(|one| one.lines().any(is_content));
    all.map(|one| serde_saphyr::from_str(one.trim_start_matches("---")).unwrap()).collect()
}

/// Kind, namespace and name.
fn named(object: &Value) -> (String, String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&object["kind"]), text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]))
}

#[tokio::test]
async fn helm_lint_passes_in_each_mode() {
    for way in MODES {
        let values = values_of(way);
        let args =
            ["lint", "--strict", chart().to_str().unwrap(), "--values", values.to_str().unwrap()].map(str::to_owned);
        let output = helm(&args.each_ref().map(String::as_str)).await.unwrap();
        assert!(output.status.success(), "{way}: {output:?}");
    }
}

/// Checks of kube-score that do not apply to this chart, and why. An entry without findings fails the test.
const IGNORED_CHECKS: [(&str, &str); 6] = [
    ("container-image-pull-policy", "a node that cannot reach the registry must still be able to start it"),
    (
        "container-ephemeral-storage-request-and-limit",
        "its root is read-only; with a limit its own log lines could have it evicted",
    ),
    ("container-resources", "memory is limited; a CPU limit delays renewals of the Lease, and leadership is lost"),
    (
        "deployment-has-host-podantiaffinity",
        "topologySpreadConstraints spread the replicas, and let them share the only node of a small cluster",
    ),
    ("deployment-replicas", "one replica is a value that a user chooses (ci/replace-values.yaml), and NOTES warns"),
    (
        "pod-networkpolicy",
        "the pod of `helm test` listens on nothing; with hostNetwork there is none, and egress is limited on request only",
    ),
];

/// Only the node agent may be privileged: it opens a device, stops the kubelet, and kills processes of others.
const OF_THE_AGENT: [&str; 3] =
    ["container-security-context-privileged", "container-security-context-user-group-id", "container-seccomp-profile"];

/// Only without leader election is the Deployment not updated in place: two processes would write.
const WITHOUT_ELECTION: &str = "deployment-strategy";

/// The checks for charts in general: <https://github.com/zegl/kube-score>.
#[tokio::test]
async fn kube_score_finds_nothing_but_ignored_checks() {
    let mut needless: BTreeSet<&str> = IGNORED_CHECKS.iter().map(|(check, _)| *check).chain(OF_THE_AGENT).collect();
    needless.insert(WITHOUT_ELECTION);
    for way in MODES {
        let rendered = render(&chart(), &["--values", values_of(way).to_str().unwrap()]).await;
        let report = kube_score(&rendered).await.unwrap();
        let objects: Vec<Value> = serde_json::from_str(&report).unwrap();
        let checks = objects.iter().flat_map(|object| {
            let all = object["checks"].as_array().cloned().unwrap_or_default();
            all.into_iter().map(|check| (object["object_name"].clone(), check))
        });
        let mut passed = 0;
        for (object, check) in checks.filter(|(_, check)| check["skipped"] != true) {
            let id = check["check"]["id"].as_str().unwrap();
            // 10 means no findings; 7 is a minor finding.
            if check["grade"].as_i64().unwrap() >= 10 {
                passed += 1;
            } else if IGNORED_CHECKS.iter().any(|(known, _)| *known == id)
                || (id == WITHOUT_ELECTION && rendered.contains("--leader-elect=false"))
                || (OF_THE_AGENT.contains(&id) && object.as_str().is_some_and(|name| name.starts_with("DaemonSet/")))
            {
                needless.remove(id);
            } else {
                panic!("{way}: {object}: {check:#}");
            }
        }
        assert!(passed > 20, "{way}: only {passed} checks of kube-score passed: {report}");
    }
    assert!(needless.is_empty(), "they find nothing any more: {needless:?}");
}

#[tokio::test]
async fn rendered_manifests_equal_the_goldens() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/chart");
    let mut differ = Vec::new();
    for way in MODES {
        let rendered = render(&chart(), &["--values", values_of(way).to_str().unwrap()]).await;
        let file = folder.join(format!("{way}.yaml"));
        differ.extend(compare_golden(&file, &rendered, WRITES).err().map(|error| error.to_string()));
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

/// kube-controller-manager owns the rules of an aggregated role. A chart that set them, even to an empty list, could be installed but not
/// upgraded: `helm upgrade` ended with "conflict with clusterrole-aggregation-controller: .rules".
#[tokio::test]
async fn aggregated_roles_leave_their_rules_to_kube_controller_manager() {
    for way in MODES {
        let rendered = render(&chart(), &["--values", values_of(way).to_str().unwrap()]).await;
        let aggregated = |object: &&Value| !object["aggregationRule"].is_null();
        let all = documents(&rendered);
        assert!(all.iter().any(|object| aggregated(&object)), "{way}: none is left to look at");
        for role in all.iter().filter(aggregated) {
            assert!(role.get("rules").is_none(), "{way}: {role:#}");
        }
    }
}

#[tokio::test]
async fn invalid_values_fail_with_a_message() {
    let table: Vec<Value> = serde_saphyr::from_str(&read_file(&chart().join("ci/refused.yaml"))).unwrap();
    assert!(table.len() > 30, "only {} rows", table.len());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.yaml");
    for row in table {
        std::fs::write(&file, row["values"].to_string()).unwrap();
        let namespace = row["namespace"].as_str().unwrap_or("pod-safety");
        let chart = chart();
        let template = ["template", "x", chart.to_str().unwrap(), "--values", file.to_str().unwrap()];
        let output = helm(&[&template[..], &["--namespace", namespace]].concat()).await.unwrap();
        let expected = row["says"].as_str().unwrap();
        assert!(!output.status.success(), "{row} was rendered");
        assert!(output.stderr.contains(expected), "{row}: {}", output.stderr);
    }
}

/// The published chart had `image: pod-safety@sha256:…`, which cannot be pulled. Runs the commands of the workflow.
#[tokio::test]
async fn bug_the_chart_of_a_release_pulls_the_image_of_that_release() {
    let root = chart().ancestors().nth(2).unwrap().to_owned();
    let workflow = read_file(&root.join(".github/workflows/release.yml"));
    let line = workflow.lines().map(str::trim).find(|line| line.starts_with("packaging/chart.sh ")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (digest, agents) = (format!("sha256:{}", "ab".repeat(32)), format!("sha256:{}", "cd".repeat(32)));
    let script = format!("set -euo pipefail; cd {}; {}", root.display(), line.replace(" .", " \"$FOLDER\""));
    let helm = tool("helm").await.unwrap();
    let path = format!("{}:{}", helm.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let packed = std::process::Command::new("bash")
        .args(["-c", &script])
        .envs([
            ("version", "1.2.3"),
            ("IMAGE", "ghcr.io/Owner/pod-safety"),
            ("DIGEST", &digest),
            ("AGENTS", &agents),
            ("PATH", &path),
        ])
        .env("FOLDER", folder.path())
        .output()
        .unwrap();
    assert!(packed.status.success(), "{packed:?}");
    let archive = folder.path().join("pod-safety-1.2.3.tgz");
    let shown =
        pod_safety_control_plane::helm(&["show", "all", archive.to_str().unwrap()]).await.unwrap().text().unwrap();
    assert!(shown.contains("pod-safety.dev/chart: oci://ghcr.io/owner/charts/pod-safety\n"), "{shown}");
    assert!(shown.contains("| Key | Type | Default | Description |"), "a published chart has its README");
    const FENCING: [&str; 2] =
        ["--set=controllers.fencing.enabled=true", "--set=controllers.fencing.agents.enabled=true"];
    const BY_TAG: [&str; 2] = ["--set=image.digest=", "--set=controllers.fencing.agents.image.digest="];
    let of = |end: &str| format!("ghcr.io/owner/pod-safety{end}");
    for (more, images) in [
        (vec![], vec![of(&format!("@{digest}"))]),
        (BY_TAG.to_vec(), vec![of(":1.2.3")]),
        (FENCING.to_vec(), vec![of(&format!("@{digest}")), of(&format!("@{agents}"))]),
        ([FENCING, BY_TAG].concat(), vec![of(":1.2.3"), of(":1.2.3-agents")]),
    ] {
        let rendered = documents(&render(&archive, &more).await);
        let pods = rendered.iter().filter_map(|object| object.pointer("/spec/template/spec"));
        let containers = pods.flat_map(|pod| {
            let of = |kind: &str| pod[kind].as_array().cloned().unwrap_or_default();
            [of("initContainers"), of("containers")].concat()
        });
        let rendered_images: BTreeSet<_> = containers.map(|one| one["image"].as_str().unwrap().to_owned()).collect();
        assert_eq!(rendered_images, images.into_iter().collect(), "{more:?}");
    }
    // The tag without `v` is the chart's appVersion.
    for tag in ["$GITHUB_REF_NAME", "$version"] {
        let argument = format!("--tag \"$image:{tag}$suffix\"");
        assert!(workflow.contains(&argument), "{argument}");
    }
    assert!(workflow.contains("version=${GITHUB_REF_NAME#v}"));
}

/// `--flag` and its documented default, from `pod-safety run --help`.
async fn flags() -> BTreeMap<String, Option<String>> {
    let help = std::process::Command::new(binary().await.unwrap()).args(["run", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let mut flags = BTreeMap::new();
    let mut last = None;
    for line in help.lines().map(str::trim) {
        if let Some(flag) = line.split(' ').find(|word| word.starts_with("--")).filter(|_| line.starts_with('-')) {
            let name = flag.split(['[', '=']).next().unwrap_or_default().to_owned();
            flags.insert(name.clone(), None);
            last = Some(name);
        }
        if let (Some(default), Some(flag)) = (line.strip_prefix("[default: "), &last) {
            flags.insert(flag.clone(), Some(default.trim_end_matches(']').to_owned()));
        }
    }
    flags
}

/// The arguments of the container, flag by flag.
fn arguments(rendered: &str) -> BTreeMap<String, String> {
    let deployment = documents(rendered).into_iter().find(|object| object["kind"] == "Deployment").unwrap();
    let args = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap().clone();
    let pairs = args.iter().filter_map(|arg| arg.as_str().unwrap().split_once('='));
    pairs.map(|(flag, value)| (flag.to_owned(), value.to_owned())).collect()
}

/// The mount paths of volumes of this kind, by container.
fn mounts(pod: &Value, is_wanted: impl Fn(&Value) -> bool) -> Vec<(&str, &str)> {
    let all = |field: &str| pod[field].as_array().into_iter().flatten();
    let volumes: Vec<_> = all("volumes").filter(|volume| is_wanted(volume)).map(|one| &one["name"]).collect();
    let containers = all("initContainers").chain(all("containers"));
    let mounts = containers.flat_map(|container| {
        let mounts = container["volumeMounts"].as_array().into_iter().flatten();
        mounts.map(move |mount| (container["name"].as_str().unwrap(), mount))
    });
    let mounts = mounts.filter(|(_, mount)| volumes.contains(&&mount["name"]));
    mounts.map(|(container, mount)| (container, mount["mountPath"].as_str().unwrap())).collect()
}

/// Agents have a separate container and user.
#[tokio::test]
async fn attack_fence_agents_share_neither_token_nor_user_nor_processes_with_the_controllers() {
    let on = "--set=controllers.fencing.agents.enabled=true";
    for (more, runs) in [
        (vec![], false),
        (vec![on], true),
        (vec![on, "--set=mode=observe"], false),
        (vec![on, "--set=controllers.fencing.enabled=false"], false),
    ] {
        let rendered = render(&chart(), &more).await;
        let deployment = documents(&rendered).into_iter().find(|one| one["kind"] == "Deployment").unwrap();
        let pod = &deployment["spec"]["template"]["spec"];
        let token = mounts(pod, |volume| volume["projected"].to_string().contains("serviceAccountToken"));
        assert_eq!(token, [("pod-safety", "/var/run/secrets/kubernetes.io/serviceaccount")], "{more:?}");
        assert_eq!(pod["automountServiceAccountToken"], false, "or it is mounted into every container");
        let pod_safety = &pod["containers"][0];
        let asks = pod_safety["args"].to_string().contains("--fence-agents-socket=/run/fence-agents/agents.sock");
        let agents = pod["initContainers"].as_array().cloned().unwrap_or_default();
        assert_eq!((agents.len() == 1, asks), (runs, runs), "{more:?}");
        let Some(agents) = agents.first() else { continue };
        assert_eq!(agents["restartPolicy"], "Always");
        assert_eq!(agents["args"][1], "--listen=/run/fence-agents/agents.sock");
        let user = |container: &Value| {
            let own = &container["securityContext"]["runAsUser"];
            (if own.is_null() { &pod["securityContext"]["runAsUser"] } else { own }).as_u64().unwrap()
        };
        assert_ne!(user(agents), user(pod_safety));
        assert_eq!(agents["args"][2], format!("--client-uid={}", user(pod_safety)));
        assert!(pod["shareProcessNamespace"].is_null() && pod["hostPID"].is_null());
        assert_eq!(agents["securityContext"]["readOnlyRootFilesystem"], true);
        assert_eq!(agents["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
        assert!(agents["resources"]["limits"]["memory"].is_string());
        let memory = mounts(pod, |volume| volume["emptyDir"]["medium"] == "Memory");
        let (socket, tmp) = (("fence-agents", "/run/fence-agents"), ("fence-agents", "/tmp"));
        assert_eq!(memory, [socket, tmp, ("pod-safety", "/run/fence-agents")]);
    }
}

/// Flags without a value in the chart, and why.
const LEFT: [&str; 18] = [
    "--help",
    "--version",
    "--kubeconfig",                 // the pod's service account
    "--context",                    // the same
    "--master",                     // the same
    "--as",                         // the same
    "--node-name",                  // its variable, from spec.nodeName
    "--node-suspect-after",         // empty: half of another
    "--exclusive-storage-classes",  // empty: none
    "--exclusive-csi-drivers",      // the same
    "--exclusive-backends",         // the same
    "--fence-agents-socket",        // only where agents are enabled
    "--fence-provider-behind",      // what providers say of themselves, not what a cluster is
    "--allow-fence-dummy",          // of the container that runs agents
    "--otlp-endpoint",              // only with tracing.endpoint
    "--tls-cert-file",              // only with adminTlsSecret
    "--tls-private-key-file",       // the same
    "--leader-elect-resource-lock", // only one kind exists
];

#[tokio::test]
async fn each_flag_has_a_chart_value_with_the_default_of_the_binary() {
    let flags = flags().await;
    let chart_has = |name: &Name| format!("--set=controllers.{}.enabled=true", <&str>::from(*name));
    let enabled: Vec<String> = Name::ALL.iter().map(chart_has).collect();
    let pod_safety = arguments(&render(&chart(), &enabled.iter().map(String::as_str).collect::<Vec<_>>()).await);
    let without: Vec<_> =
        flags.keys().filter(|flag| !pod_safety.contains_key(*flag) && !LEFT.contains(&flag.as_str())).collect();
    assert!(without.is_empty(), "no value of the chart sets {without:?}");
    for (flag, value) in &pod_safety {
        let default = flags.get(flag).unwrap_or_else(|| panic!("the binary does not know {flag}"));
        let default = default.as_deref().unwrap_or_default();
        match flag.as_str() {
            "--controllers" => assert_eq!(*value, list_names(|_| true)),
            // Agents run beside the token of the controllers only if an operator starts them manually, never in the chart.
            "--fence-agents-path" => assert_eq!(value, "", "{flag}"),
            _ => assert_eq!(value, default, "{flag}"),
        }
    }
}

/// The names of some controllers, as `--controllers` takes them.
fn list_names(is_listed: impl Fn(Name) -> bool) -> String {
    let listed = Name::ALL.iter().copied().filter(|name| is_listed(*name));
    listed.map(Name::as_str).collect::<Vec<_>>().join(",")
}

#[tokio::test]
async fn the_chart_starts_the_controllers_that_the_binary_has_on_by_default() {
    let pod_safety = arguments(&render(&chart(), &[]).await);
    assert_eq!(pod_safety["--controllers"], list_names(Name::is_on_by_default));
}

/// Without the fields that helm adds.
fn plain(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("labels");
        let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
        let remaining =
            annotations.is_some_and(|all| all.remove("helm.sh/resource-policy").is_none() || !all.is_empty());
        if !remaining {
            metadata.remove("annotations");
        }
    }
    with_floats(object)
}

/// Helm writes 1.0 as 1, which is equal.
fn with_floats(value: Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(all) => all.into_iter().map(with_floats).collect(),
        Value::Object(all) => all.into_iter().map(|(key, value)| (key, with_floats(value))).collect(),
        other => other,
    }
}

/// The sources of the policies on the custom resources and the service account of pod-safety.
const OWN_POLICIES: [&str; 3] = ["evidence", "fence", "own-account"];

/// Without the labels of a release and the template paths.
fn without_release(rendered: &str) -> String {
    let mut in_labels = false;
    let kept = rendered.lines().filter(|line| {
        in_labels = *line == "  labels:" || (in_labels && line.starts_with("    "));
        !in_labels && !line.starts_with("# Source: ")
    });
    let text = kept.map(|line| format!("{line}\n")).collect::<String>();
    text.trim_start_matches("---\n").to_owned()
}

/// `pod-safety manifests` grants the right to force delete pods, so it includes the policies that restrict that.
#[tokio::test]
async fn the_policies_that_manifests_prints_are_those_of_the_chart() {
    let shown = OWN_POLICIES.map(|name| format!("--show-only=templates/admission/{name}.yaml"));
    let rendered = render(&chart(), &shown.each_ref().map(String::as_str)).await;
    let head = "# Made from templates/admission by a test (chart_render of tests/control-plane). Do not edit.\n";
    let text = format!("{head}{}", without_release(&rendered));
    compare_golden(&chart().join("files/policies.yaml"), &text, WRITES).unwrap();
}

/// An exempt namespace exempts its pods only: the statuses of its FenceDevices remain protected, and a stolen token of pod-safety has no
/// more rights there.
#[tokio::test]
async fn attack_an_exempt_namespace_exempts_neither_own_kinds_nor_own_account() {
    let values = values_of("everything");
    let all = documents(&render(&chart(), &["--values", values.to_str().unwrap()]).await);
    let bindings = all.iter().filter(|object| object["kind"] == "ValidatingAdmissionPolicyBinding");
    let (mut exempt, mut not) = (BTreeSet::new(), BTreeSet::new());
    for binding in bindings {
        let name = binding["metadata"]["name"].as_str().unwrap().trim_start_matches("keeper-").to_owned();
        let selects = !binding["spec"]["matchResources"]["namespaceSelector"].is_null();
        if selects { &mut exempt } else { &mut not }.insert(name);
    }
    assert!(exempt.contains("force-delete"), "{exempt:?}");
    let expected_objects = [
        "eviction-requesters",
        "eviction-states",
        "evidence",
        "fence",
        "leases",
        "own-account",
        "pause",
        "pod-report",
        "volume-held",
        "watchdog",
    ];
    assert_eq!(not, expected_objects.map(str::to_owned).into(), "{exempt:?}");
}

#[tokio::test]
async fn the_network_policy_opens_the_admin_port_only_unless_on_host_network() {
    let of = async |set: &str| {
        let all = documents(&render(&chart(), &["--set", set]).await);
        all.into_iter().find(|object| object["kind"] == "NetworkPolicy")
    };
    let policy = of("mode=guard").await.unwrap();
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress"]));
    assert_eq!(policy["spec"]["ingress"], json!([{ "ports": [{ "port": "http-admin", "protocol": "TCP" }] }]));
    assert!(of("networkPolicy.enabled=false").await.is_none());
    assert!(of("hostNetwork=true").await.is_none(), "it would limit nothing");
    let limited = of("networkPolicy.egress.enabled=true,networkPolicy.egress.devices={10.7.0.0/16}").await.unwrap();
    assert_eq!(limited["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    let egress = limited["spec"]["egress"].as_array().unwrap();
    assert_eq!(egress.len(), 3, "name servers, API server, devices: {egress:?}");
    assert_eq!(egress[2], json!({ "to": [{ "ipBlock": { "cidr": "10.7.0.0/16" } }] }));
}

/// Enables tracing.
const TRACES: &str = "tracing.endpoint=http://otel-collector.observability:4318";

#[tokio::test]
async fn in_replace_it_grants_and_defines_what_manifests_prints() {
    let pod_safety = documents(
        &render(
            &chart(),
            &[&format!(
                "--set=mode=replace,controllers.volumeGuard.enabled=true,controllers.eviction.enabled=true,{TRACES}"
            )],
        )
        .await,
    );
    let pod_safety: BTreeMap<_, _> = pod_safety.into_iter().map(|object| (named(&object), plain(object))).collect();
    let mut compared = 0;
    for printed in documents(&manifests().await.unwrap()) {
        let key = named(&printed);
        if ["Namespace", "ServiceAccount"].contains(&key.0.as_str()) {
            continue;
        }
        let rendered = pod_safety.get(&key).unwrap_or_else(|| panic!("the chart lacks {key:?}"));
        assert_eq!(*rendered, plain(printed), "{key:?}");
        compared += 1;
    }
    assert!(compared > 10, "{compared} objects");
}

/// Verbs of the roles that are bound to the service account, by role name.
fn granted(rendered: &str) -> BTreeMap<String, BTreeSet<String>> {
    let all = documents(rendered);
    let bound = all.iter().filter(|object| object["kind"].as_str().is_some_and(|kind| kind.ends_with("Binding")));
    let bound: BTreeSet<_> = bound.map(|binding| binding["roleRef"]["name"].clone().to_string()).collect();
    let mut verbs: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for role in all.iter().filter(|object| object["kind"].as_str().is_some_and(|kind| kind.ends_with("Role"))) {
        let name = role["metadata"]["name"].to_string();
        if !bound.contains(&name) {
            continue;
        }
        for rule in role["rules"].as_array().unwrap() {
            let texts = |field: &str| rule[field].as_array().cloned().unwrap_or_default();
            for (resource, verb) in texts("resources")
                .iter()
                .flat_map(|one| texts("verbs").into_iter().map(move |verb| (one.clone(), verb)))
            {
                let verb = format!("{} {}", verb.as_str().unwrap(), resource.as_str().unwrap());
                verbs.entry(role["metadata"]["name"].as_str().unwrap().to_owned()).or_default().insert(verb);
            }
        }
    }
    verbs
}

#[tokio::test]
async fn observe_mode_has_read_rights_only() {
    let all = granted(&render(&chart(), &["--set=mode=observe"]).await);
    let verbs: BTreeSet<_> = all.values().flatten().collect();
    assert!(verbs.iter().any(|verb| *verb == "list pods"), "{all:?}");
    let more: Vec<_> =
        verbs.iter().filter(|verb| !["get ", "list ", "watch "].iter().any(|read| verb.starts_with(read))).collect();
    assert!(more.is_empty(), "{more:?}");
    assert!(!verbs.iter().any(|verb| verb.contains("secrets")), "an observer asks no device, and needs no login");
}

#[tokio::test]
async fn rights_are_granted_with_the_feature_that_needs_them() {
    let budgets = "patch poddisruptionbudgets/status";
    for (set, right, has) in [
        ("mode=guard", budgets, false),
        ("mode=replace", budgets, true),
        ("mode=guard", "get secrets", true),
        ("controllers.fencing.enabled=false", "get secrets", false),
        ("controllers.fencing.enabled=false", "patch nodefences/status", false),
        ("mode=guard", "create leases", true),
        ("leaderElection.enabled=false,replicaCount=1", "create leases", false),
        ("mode=guard", "list events", false),
        (TRACES, "list events", true),
        (&*format!("mode=observe,{TRACES}"), "list events", false),
    ] {
        let all = granted(&render(&chart(), &["--set", set]).await);
        let is_granted = all.values().any(|verbs| verbs.contains(right));
        assert_eq!(is_granted, has, "{set}: {right}: {all:?}");
    }
    let elsewhere = documents(&render(&chart(), &["--set", "controllers.fencing.namespaces={rack-a}"]).await);
    let names: Vec<_> = elsewhere.iter().map(named).filter(|(_, namespace, _)| namespace == "rack-a").collect();
    assert_eq!(names.len(), 2, "a Role and its RoleBinding: {names:?}");
}

/// A copy of the chart with rules and a dashboard of this test.
fn copy(to: &Path) {
    fn folder(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            let target = to.join(path.file_name().unwrap());
            if path.is_dir() { folder(&path, &target) } else { std::fs::copy(&path, &target).map(drop).unwrap() }
        }
    }
    folder(&chart(), to);
    for made in ["rules", "dashboards"] {
        let _it_may_be_missing = std::fs::remove_dir_all(to.join(made));
        std::fs::create_dir(to.join(made)).unwrap();
    }
}

#[tokio::test]
async fn templates_of_prometheus_and_grafana_are_left_unrendered() {
    let folder = tempfile::tempdir().unwrap();
    let chart = folder.path().join("pod-safety");
    copy(&chart);
    let rule = |alert: &str| json!({ "alert": alert, "expr": "up == 0", "annotations": { "summary": "{{ $labels.instance }} is {{ $value }}" } });
    let rules = json!({ "groups": [{ "name": "g", "rules": [rule("Down"), rule("Unwanted")] }] });
    std::fs::write(chart.join("rules/mine.rules.yaml"), rules.to_string()).unwrap();
    let dashboard = r#"{"title":"{{ .Values.mode }} $datasource","panels":[]}"#;
    std::fs::write(chart.join("dashboards/mine.json"), dashboard).unwrap();
    let set =
        "--set=metrics.prometheusRule.enabled=true,metrics.prometheusRule.disabled={Unwanted},dashboards.enabled=true";
    let all = documents(&render(&chart, &[set]).await);
    let of = |kind: &str| all.iter().find(|object| object["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"));
    assert_eq!(of("PrometheusRule")["spec"]["groups"], json!([{ "name": "g", "rules": [rule("Down")] }]));
    assert_eq!(of("ConfigMap")["data"]["mine.json"].as_str().unwrap().trim_end(), dashboard);
}

#[tokio::test]
async fn a_registry_replaces_the_one_of_every_image() {
    let agents = "controllers.fencing.agents.enabled=true,controllers.fencing.agents.image.repository=ghcr.io/a/agents";
    for (set, image, of_agents) in [
        ("image.tag=v", "pod-safety:v", "ghcr.io/a/agents:v-agents"),
        ("image.tag=v,image.registry=r.example", "r.example/pod-safety:v", "ghcr.io/a/agents:v-agents"),
        (
            "image.tag=v,image.registry=r.example,image.repository=ghcr.io/o/p,global.imageRegistry=m.example:5000/all",
            "m.example:5000/all/o/p:v",
            "m.example:5000/all/a/agents:v-agents",
        ),
        ("image.tag=v,image.registry=r.example,image.repository=o/p", "r.example/o/p:v", "ghcr.io/a/agents:v-agents"),
        (
            "image.tag=v,image.registry=r.example,image.repository=h:5000/p",
            "r.example/p:v",
            "ghcr.io/a/agents:v-agents",
        ),
    ] {
        let all = documents(&render(&chart(), &["--set", agents, "--set", set]).await);
        let pod = &all.iter().find(|one| one["kind"] == "Deployment").unwrap()["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["image"], image, "{set}");
        assert_eq!(pod["initContainers"][0]["image"], of_agents, "{set}");
    }
}

/// Helm merges the value with its default, and the API server rejects `Recreate` with `rollingUpdate`.
#[tokio::test]
async fn recreate_comes_without_rolling_update() {
    for (set, strategy) in [
        ("strategy.type=Recreate", json!({ "type": "Recreate" })),
        ("replicaCount=2", json!({ "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } })),
        // Without an election two processes wrote during each upgrade.
        ("leaderElection.enabled=false,replicaCount=1", json!({ "type": "Recreate" })),
    ] {
        let all = documents(&render(&chart(), &["--set", set]).await);
        let deployment = all.iter().find(|one| one["kind"] == "Deployment").unwrap();
        assert_eq!(deployment["spec"]["strategy"], strategy);
    }
}

/// On GKE no agent started: the quota admitted the PriorityClass of the controllers only.
#[tokio::test]
async fn bug_the_quota_admitted_no_agents() {
    let all = documents(&render(&chart(), &["--set=agent.enabled=true,resourceQuota.create=true"]).await);
    let quotas = all.iter().filter(|one| one["kind"] == "ResourceQuota");
    let classes = quotas.map(|one| one["spec"]["scopeSelector"]["matchExpressions"][0]["values"].clone());
    let classes: Vec<Value> = classes.collect();
    assert_eq!(classes, [json!(["system-cluster-critical"]), json!(["system-node-critical"])]);
}

#[tokio::test]
async fn crds_stay_unless_a_value_says_otherwise() {
    for (set, kept) in [("crds.keep=true", 6), ("crds.keep=false", 0)] {
        let all = documents(&render(&chart(), &["--set", set]).await);
        let crds = all.iter().filter(|one| one["kind"] == "CustomResourceDefinition");
        let keep = crds.filter(|crd| crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep");
        assert_eq!(keep.count(), kept, "{set}");
    }
}

#[tokio::test]
async fn alerts_link_runbooks_and_use_the_configured_severities() {
    let set = "metrics.prometheusRule.enabled=true,metrics.prometheusRule.runbookUrl=https://wiki.example/runbooks/,metrics.prometheusRule.severities.warning=ticket";
    let all = documents(&render(&chart(), &["--set", set]).await);
    let rule = all.iter().find(|one| one["kind"] == "PrometheusRule").unwrap();
    let groups = rule["spec"]["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let mut severities = BTreeSet::new();
    for alert in rules.filter(|rule| !rule["alert"].is_null()) {
        let page = format!("https://wiki.example/runbooks/{}.md", alert["alert"].as_str().unwrap());
        assert_eq!(alert["annotations"]["runbook_url"], page);
        severities.insert(alert["labels"]["severity"].as_str().unwrap());
    }
    assert_eq!(severities, BTreeSet::from(["critical", "info", "ticket"]));
}

#[test]
fn chart_version_is_the_workspace_version() {
    let chart: Value = serde_saphyr::from_str(&read_file(&chart().join("Chart.yaml"))).unwrap();
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
}
