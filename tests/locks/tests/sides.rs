//! Facts that are stated twice, in pages and in what they describe, are equal in both.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use pod_safety_locks::documents::commands;
use pod_safety_locks::{repository, sources, texts};

fn read_file(path: &str) -> Result<String> {
    std::fs::read_to_string(repository().join(path)).with_context(|| path.to_owned())
}

/// The text between `begins` and `ends`, for each occurrence.
fn between<'a>(text: &'a str, begins: &'a str, ends: &'a str) -> Vec<&'a str> {
    text.split(begins).skip(1).filter_map(|rest| Some(rest.split_once(ends)?.0)).collect()
}

#[test]
fn bug_the_page_of_the_policies_said_twelve_and_listed_eleven() -> Result<()> {
    const NUMBERS: [&str; 17] = [
        "no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
        "thirteen", "fourteen", "fifteen", "sixteen",
    ];
    let page = read_file("docs/admission.md")?;
    let (_, table) = page.split_once("| policy | value | denies |").context("the table of the policies")?;
    let table = table.split("\n\n").next().unwrap_or_default();
    let listed: BTreeSet<&str> = between(table, "\n| `", "`").into_iter().collect();
    let templates = texts(&["charts/pod-safety/templates/admission"], &["yaml"])?;
    let documents = templates.iter().flat_map(|template| template.text.split("\n---"));
    let made: BTreeSet<&str> = documents
        .filter(|document| document.contains("kind: ValidatingAdmissionPolicy\n"))
        .flat_map(|document| between(document, "include \"pod-safety.policyMeta\" (list . \"", "\""))
        .collect();
    ensure!(listed == made, "docs/admission.md lists {listed:?}, the chart has {made:?}");
    let by_default = read_file("tests/control-plane/golden/chart/default.yaml")?;
    let by_default = by_default.lines().filter(|line| *line == "kind: ValidatingAdmissionPolicy").count();
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        format!("has {} ValidatingAdmissionPolicies", NUMBERS[made.len()]),
        format!("By default {} are rendered", NUMBERS[by_default]),
    ] {
        ensure!(page.contains(&expected), "docs/admission.md should say: {expected}");
    }
    Ok(())
}

/// `kind load` without a cluster name uses the cluster called kind.
#[test]
fn bug_an_image_was_loaded_into_a_cluster_that_no_page_creates() -> Result<()> {
    let all = commands()?;
    let loads: Vec<_> = all.iter().filter(|command| command.text.starts_with("kind load ")).collect();
    for config in ["charts/kind-cluster.yaml", "charts/kind-evictions.yaml"] {
        let named = read_file(config)?.contains("\nname: pod-safety\n");
        ensure!(!loads.is_empty() && named, "no page loads an image");
    }
    for load in loads {
        ensure!(load.text.contains("--name pod-safety"), "{}: {}", load.place, load.text);
    }
    for made in all.iter().filter(|command| command.text.starts_with("kind create cluster")) {
        let named = ["--name pod-safety", "--config charts/kind-cluster.yaml", "--config charts/kind-evictions.yaml"];
        ensure!(named.iter().any(|name| made.text.contains(name)), "{}: {}", made.place, made.text);
    }
    Ok(())
}

/// `make kind` deletes half a cluster of its name, and README makes one by hand under the same name.
#[test]
fn bug_make_kind_deleted_the_cluster_that_readme_creates() -> Result<()> {
    let state = read_file("tests/kind/state.sh")?;
    let name = state.lines().find_map(|line| line.strip_prefix("kind_cluster=")).context("kind_cluster")?;
    let creates = format!("kind create cluster --name {name}");
    ensure!(!commands()?.iter().any(|command| command.text.ends_with(&creates)), "a page creates {name}");
    let worker = format!("docker exec {name}-worker ");
    ensure!(read_file("docs/kind.md")?.contains(&worker), "docs/kind.md should name the worker of {name}");
    Ok(())
}

#[test]
fn bug_two_pages_listed_uninstall_leftovers_incompletely() -> Result<()> {
    let page = read_file("docs/install.md")?;
    let (_, list) = page.split_once("stay after\n`helm uninstall`:").context("the list")?;
    let list = list.split("\n\n").nth(1).context("the table")?;
    let written = read_file("shared/model/src/node.rs")?;
    let mut written_taints: Vec<&str> = between(&written, "_TAINT: &str = \"", "\"");
    written_taints.extend(between(&written, "_CONDITION: &str = \"", "\""));
    written_taints.retain(|name| name.starts_with("pod-safety.dev/"));
    ensure!(written_taints.len() > 1, "{written_taints:?}: not all marks of nodes");
    written_taints.extend(["node.kubernetes.io/out-of-service", "delete lease pod-safety", "delete namespace", "crd"]);
    for name in written_taints {
        ensure!(list.contains(name), "docs/install.md does not list what stays after an uninstall: {name}");
    }
    for other in texts(&["README.md", "docs"], &["md"])?.iter().filter(|other| !other.path.contains("install")) {
        let lists = other.text.contains("kubectl -n kube-system delete lease pod-safety");
        ensure!(!lists, "{} repeats the list of docs/install.md", other.path);
    }
    Ok(())
}

/// The API server, the help and the refusal message state the same limits.
#[test]
fn bug_the_validity_of_a_confirmation_had_two_limits() -> Result<()> {
    let crds = read_file("charts/pod-safety/files/crds.yaml")?;
    let (_, field) = crds.split_once("validSeconds:").context("validSeconds")?;
    let bound = |name: &str| between(field, name, ".").first().and_then(|one| one.trim().parse::<u64>().ok());
    let least = bound("minimum:").context("minimum")?;
    let most = bound("maximum:").context("maximum")?;
    let (least, most) = (format!("{}m", least / 60), format!("{}h", most / 3600));
    let command = read_file("controllers/cli/src/confirm_down.rs")?;
    for expected in [format!("from {least} to {most}"), format!("allowed is {least} to {most}")] {
        ensure!(command.contains(&expected), "confirm_down.rs does not say: {expected}");
    }
    Ok(())
}

/// Command output names a PodDisruptionBudget like the glossary.
#[test]
fn bug_commands_printed_a_word_that_the_glossary_replaces() -> Result<()> {
    let glossary = read_file("docs/glossary.md")?;
    ensure!(glossary.contains("| PodDisruptionBudget | always with this name, or PDB | budget"), "the row");
    let printed = ["\"Budgets\"", "\"BUDGETS\"", "\"BUDGET\"", "\"Budget\""];
    let mut places = Vec::new();
    for source in sources()?.iter().filter(|source| source.path.starts_with("controllers/")) {
        places.extend(
            printed.iter().filter(|word| source.text.contains(**word)).map(|word| format!("{}: {word}", source.path)),
        );
    }
    ensure!(places.is_empty(), "say PodDisruptionBudget, or PDB:\n{}", places.join("\n"));
    Ok(())
}
