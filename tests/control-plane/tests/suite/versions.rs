//! The versions of Kubernetes that pod-safety is tested with: the selected one runs, and program, chart and docs name all of them.

use pod_safety_control_plane::{
    ControlPlane, Options, binary, chart, other_kubernetes, pinned_kubernetes, selected_kubernetes,
};
use serde_json::Value;

/// The selected version, or only its minor version as `1.32`.
fn selected() -> String {
    let version = selected_kubernetes().unwrap_or_else(|| pinned_kubernetes().unwrap());
    version.trim_start_matches('v').to_owned()
}

/// Whether kubelets and conditions report the `metadata.generation` of pods: by default from Kubernetes 1.34 on. 1.33 only counts it.
pub(crate) fn generations_are_reported() -> bool {
    minor(&selected()) >= 34
}

/// Whether the Eviction API can be enabled: alpha in Kubernetes 1.37.
pub(crate) fn can_serve_evictions() -> bool {
    minor(&selected()) >= 37
}

pub(crate) fn is_1_32() -> bool {
    minor(&selected()) == 32
}

/// Whether pods have the subresource `resize`: by default from Kubernetes 1.33 on.
pub(crate) fn pods_are_resized() -> bool {
    minor(&selected()) >= 33
}

/// Adapts text of the pinned version to the selected one. Before 1.34 conditions of pods have no `observedGeneration`; before 1.35 the
/// message of a refused eviction ends with the numbers of the PodDisruptionBudget.
pub(crate) fn as_selected(text: &str) -> String {
    let mut text = text.to_owned();
    if !generations_are_reported() {
        text = text.replace("\"observedGeneration\":1,", "");
    }
    if minor(&selected()) < 35
        && let Some((refused, rest)) = text.split_once(REFUSED_BY)
        && let Some((name, reason)) = rest.split_once(' ')
        && (reason.starts_with("needs ") || reason.starts_with("does not allow "))
    {
        text = format!("{refused}{REFUSED_BY}{name}");
    }
    text
}

const REFUSED_BY: &str = "The disruption budget ";

#[tokio::test]
async fn the_control_plane_is_of_the_selected_version() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let selected = selected();
    let output = plane.kubectl(&["version", "--output=json"]).await.unwrap().text().unwrap();
    let output: Value = serde_json::from_str(&output).unwrap();
    for side in ["clientVersion", "serverVersion"] {
        let version = output[side]["gitVersion"].as_str().unwrap().trim_start_matches('v');
        assert!(version == selected || version.starts_with(&format!("{selected}.")), "{side}: {output:#}");
    }
}

/// All of them, the oldest first, without the `v`.
fn versions() -> Vec<String> {
    let mut all = other_kubernetes().unwrap();
    all.push(pinned_kubernetes().unwrap());
    all.sort_by_key(|version| minor(version));
    all.iter().map(|version| version.trim_start_matches('v').to_owned()).collect()
}

fn minor(version: &str) -> u32 {
    version.split('.').nth(1).unwrap().parse().unwrap()
}

fn document(name: &str) -> String {
    std::fs::read_to_string(chart().ancestors().nth(2).unwrap().join("docs").join(name)).unwrap()
}

#[tokio::test]
async fn program_chart_and_docs_name_the_versions_that_are_tested() {
    let versions = versions();
    let minors: Vec<u32> = versions.iter().map(|version| minor(version)).collect();
    let (oldest, newest) = (minors[0], *minors.last().unwrap());
    assert_eq!(minors, (oldest..=newest).collect::<Vec<_>>(), "one of each minor version");

    let chart: Value = serde_saphyr::from_str(&std::fs::read_to_string(chart().join("Chart.yaml")).unwrap()).unwrap();
    assert_eq!(chart["kubeVersion"], format!(">=1.{oldest}.0-0"));

    let output = std::process::Command::new(binary().await.unwrap()).arg("version").output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    assert!(output.ends_with(&format!(", for Kubernetes 1.{oldest}-1.{newest}\n")), "{output}");

    let install = document("install.md");
    assert!(install.contains(&format!("For Kubernetes 1.{oldest} to 1.{newest} ")));
    let matrix = document("kubernetes-versions.md");
    let rows: Vec<&str> = matrix.lines().filter_map(|line| line.strip_prefix("| 1.")?.split(' ').next()).collect();
    let expected: Vec<&str> = versions.iter().map(|version| version.trim_start_matches("1.")).collect();
    assert_eq!(rows, expected, "rows of docs/kubernetes-versions.md");
}
