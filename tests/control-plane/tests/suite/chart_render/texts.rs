//! The texts of the chart: its README, its notes, its catalogue metadata, and its errors for value names of other charts.

use std::collections::{BTreeMap, BTreeSet};

use pod_safety_control_plane::{chart, compare_golden, helm};
use serde_json::Value;

use super::{WRITES, documents, read_file, render};

const BEGIN: &str = "<!-- values: made by a test from values.yaml -->\n";
const END: &str = "<!-- values end -->\n";

/// Value names of other charts that the schema accepts, with the values in which they occur.
fn foreign(schema: &Value, path: &str, names: &mut BTreeSet<String>) {
    let dot = if path.is_empty() { "" } else { "." };
    for pattern in schema["patternProperties"].as_object().into_iter().flatten().map(|(pattern, _)| pattern) {
        let all = pattern.trim_start_matches("^(").trim_end_matches(")$").split('|');
        names.extend(all.map(|name| format!("{path}{dot}{name}")));
    }
    for (name, below) in schema["properties"].as_object().into_iter().flatten() {
        foreign(below, &format!("{path}{dot}{name}"), names);
    }
}

#[tokio::test]
async fn a_value_name_of_another_chart_fails_with_the_name_here() {
    let schema = serde_json::from_str(&read_file(&chart().join("values.schema.json"))).unwrap();
    let mut names = BTreeSet::new();
    foreign(&schema, "", &mut names);
    assert!(names.len() > 30, "{names:?}");
    let set = names.iter().map(|name| format!("{name}=true")).collect::<Vec<_>>().join(",");
    let path = chart();
    let output = helm(&["template", "x", path.to_str().unwrap(), "--namespace=x", "--set", &set]).await.unwrap();
    assert!(!output.status.success(), "{output:?}");
    let answer = "is not a value of this chart; did you mean ";
    let answers = output.stderr.lines().filter_map(|line| {
        let (before, pod_safety) = line.split_once(answer)?;
        Some((before.trim().rsplit(' ').next()?.to_owned(), pod_safety.trim_end_matches('?').to_owned()))
    });
    let answers: BTreeMap<String, String> = answers.collect();
    assert_eq!(answers.keys().cloned().collect::<BTreeSet<_>>(), names, "{}", output.stderr);
    let values_of_chart: Value = serde_saphyr::from_str(&read_file(&chart().join("values.yaml"))).unwrap();
    for (name, pod_safety) in answers.iter().filter(|(name, _)| *name != "namespaceOverride") {
        let there = values_of_chart.pointer(&format!("/{}", pod_safety.replace('.', "/")));
        assert!(there.is_some(), "{name} is answered with {pod_safety}, which is not in values.yaml");
    }
}

#[tokio::test]
async fn name_override_changes_names_but_no_selector_labels() {
    for (set, name) in [
        ("nameOverride=guard", "pod-safety-guard"),
        ("nameOverride=safety", "pod-safety"),
        ("nameOverride=guard,fullnameOverride=keeper", "keeper"),
    ] {
        let all = documents(&render(&chart(), &["--set", set]).await);
        let deployment = all.iter().find(|one| one["kind"] == "Deployment").unwrap();
        assert_eq!(deployment["metadata"]["name"], name, "{set}");
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        assert_eq!(labels["app.kubernetes.io/name"], "pod-safety", "{set}");
    }
}

/// The output of helm after an installation.
async fn notes(more: &[&str]) -> String {
    let path = chart();
    let args = ["install", "keeper", path.to_str().unwrap(), "--namespace=ps", "--dry-run=client"];
    let printed = helm(&[&args[..], more].concat()).await.unwrap().text().unwrap();
    printed.split_once("\nNOTES:\n").unwrap().1.to_owned()
}

#[tokio::test]
async fn commands_of_the_notes_name_release_namespace_and_chart_and_pages_are_addresses() {
    let (confirm, build) = ("kubectl create clusterrolebinding keeper-pod-safety-confirm-down", "make image");
    for (set, confirms, builds, also) in [
        ("mode=guard", true, true, "set admissionPolicies.action=Deny"),
        ("image.tag=dev", true, false, "kubectl logs deployment/keeper-pod-safety -n ps"),
        ("image.registry=r.example", true, false, "helm test keeper -n ps"),
        ("mode=observe", false, true, "set mode=guard,admissionPolicies.action=Deny"),
        ("rbac.create=false", false, true, "/blob/main/docs/fencing.md says how"),
    ] {
        let notes = notes(&["--set", set]).await;
        assert_eq!((notes.contains(confirm), notes.contains(build)), (confirms, builds), "{set}: {notes}");
        assert!(notes.contains(also), "{set}: {notes}");
        for line in
            notes.lines().map(str::trim).filter(|line| ["helm ", "kubectl "].iter().any(|it| line.starts_with(it)))
        {
            let cluster_wide = line.contains("clusterrolebinding");
            assert!(cluster_wide || line.contains(" -n ps"), "{line}");
            assert!(
                !line.starts_with("helm upgrade") || line.starts_with("helm upgrade keeper charts/pod-safety "),
                "{line}"
            );
        }
        let pages = notes.split_whitespace().filter(|word| word.contains("docs/"));
        assert!(pages.into_iter().all(|word| word.starts_with("https://")), "{notes}");
    }
}

/// By the conventions of Artifact Hub: <https://artifacthub.io/docs/topics/annotations/helm/>.
#[test]
fn chart_yaml_has_catalogue_metadata() {
    let about: Value = serde_saphyr::from_str(&read_file(&chart().join("Chart.yaml"))).unwrap();
    let root = chart().ancestors().nth(2).unwrap().to_owned();
    let (home, links) = (about["home"].as_str().unwrap(), about["annotations"]["artifacthub.io/links"].as_str());
    let links: Vec<Value> = serde_saphyr::from_str(links.unwrap()).unwrap();
    let pages = links.iter().map(|link| link["url"].as_str().unwrap());
    let pages = pages.map(|url| url.strip_prefix(home).unwrap().trim_start_matches("/blob/main/"));
    let icon = about["icon"].as_str().unwrap().split_once("/main/").unwrap().1;
    for file in pages.chain([icon]) {
        assert!(root.join(file).is_file(), "Chart.yaml names {file}, which does not exist");
    }
    let listed: Vec<Value> =
        serde_saphyr::from_str(about["annotations"]["artifacthub.io/crds"].as_str().unwrap()).unwrap();
    let crds = documents(&read_file(&chart().join("files/crds.yaml")));
    let defined = crds.iter().map(|crd| {
        let spec = &crd["spec"];
        (crd["metadata"]["name"].clone(), spec["names"]["kind"].clone(), spec["versions"][0]["name"].clone())
    });
    let listed = listed.iter().map(|one| (one["name"].clone(), one["kind"].clone(), one["version"].clone()));
    assert_eq!(
        listed.map(|one| format!("{one:?}")).collect::<BTreeSet<_>>(),
        defined.map(|one| format!("{one:?}")).collect()
    );
    assert!(about["maintainers"][0]["name"].is_string());
}

/// The values of the chart: path, default, description. Fails for a value without a description.
fn values() -> Vec<(String, String, String)> {
    let (mut rows, mut parents, mut sentence) = (Vec::new(), Vec::<(usize, String)>::new(), None::<String>);
    // The depth of the last value with a description: it also describes the values below.
    let mut explained = usize::MAX;
    for line in read_file(&chart().join("values.yaml")).lines() {
        let text = line.trim_start();
        let depth = line.len() - text.len();
        if let Some(description) = text.strip_prefix("# -- ") {
            sentence = Some(description.to_owned());
        }
        let (false, false, Some((key, default))) = (text.starts_with('#'), text.starts_with('-'), text.split_once(':'))
        else {
            continue;
        };
        if sentence.is_none() && depth > explained {
            continue;
        }
        parents.retain(|(other, _)| *other < depth);
        parents.push((depth, key.to_owned()));
        let path = parents.iter().map(|(_, key)| key.as_str()).collect::<Vec<_>>().join(".");
        explained = if sentence.is_some() { depth } else { usize::MAX };
        match (sentence.take(), default.trim()) {
            (Some(description), default) => rows.push((path, default.to_owned(), description)),
            // A heading.
            (None, "") => {}
            (None, _) => panic!("values.yaml: {path} has no sentence"),
        }
    }
    rows
}

/// The type of a value, as named by helm-docs.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "int",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
        Value::String(_) | Value::Null => "string",
    }
}

/// Page names as links: the README is also read without the docs folder.
fn linked(description: &str, home: &str) -> String {
    let mut words = description.split_inclusive([' ', '(']).map(|word| match word.split_once(".md") {
        Some((page, rest)) if page.starts_with("docs/") => format!("[{page}.md]({home}/blob/main/{page}.md){rest}"),
        _ => word.to_owned(),
    });
    words.by_ref().collect::<String>().replace('|', "\\|")
}

/// In the format of helm-docs: <https://github.com/norwoodj/helm-docs>.
#[test]
fn the_readme_of_the_chart_is_made_from_its_values() {
    const MAX_DESCRIPTION: usize = 80;
    let about: Value = serde_saphyr::from_str(&read_file(&chart().join("Chart.yaml"))).unwrap();
    let all: Value = serde_saphyr::from_str(&read_file(&chart().join("values.yaml"))).unwrap();
    let of_chart = |field: &str| about[field].as_str().unwrap();
    let mut table = String::from("| Key | Type | Default | Description |\n|-----|------|---------|-------------|\n");
    for (path, _, description) in values() {
        let value = all.pointer(&format!("/{}", path.replace('.', "/"))).unwrap();
        let default = match value.to_string() {
            long if long.len() > MAX_DESCRIPTION => "see values.yaml".to_owned(),
            short => format!("`{short}`"),
        };
        let description = linked(&description, of_chart("home"));
        table.push_str(&format!("| {path} | {} | {default} | {description} |\n", kind(value)));
    }
    let file = chart().join("README.md");
    let page = read_file(&file);
    for field in ["description", "home", "kubeVersion"] {
        assert!(page.contains(of_chart(field)), "README.md does not have the {field} of Chart.yaml");
    }
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    compare_golden(&file, &format!("{before}{BEGIN}{table}{END}{after}"), WRITES).unwrap();
}
