//! docs/custom-resources.md: every field of our kinds, as their definitions say it.

use serde_json::Value;

const HEAD: &str = "# Custom resources

Every field of the API `pod-safety.dev/v1alpha1`, as `kubectl explain` shows it in a cluster. [fencing.md](fencing.md) and
[fence-devices.md](fence-devices.md) say how to use them.

<!-- Made from the types in shared/crds by a test of controllers/cli/src/manifests.rs. Do not edit. -->
";

/// What Kubernetes itself defines: a reader knows it.
const KNOWN: [&str; 2] = ["conditions", "nodeSelector"];

/// The whole page.
pub(super) fn page(crds: &[Value]) -> String {
    crds.iter().fold(HEAD.to_owned(), |page, crd| page + "\n" + &section(crd))
}

fn section(crd: &Value) -> String {
    let (names, version) = (&crd["spec"]["names"], &crd["spec"]["versions"][0]);
    let schema = &version["schema"]["openAPIV3Schema"];
    let (mut rows, mut rules) = (Vec::new(), Vec::new());
    for part in ["spec", "status"] {
        fields(&schema["properties"][part], part, &mut rows);
    }
    collect_rules(schema, &mut rules);
    let (kind, scope) = (words(&names["kind"]), words(&crd["spec"]["scope"]));
    let about = description(&schema["properties"]["spec"]);
    let short = texts(&names["shortNames"], "").join("`, `");
    let columns = match texts(&version["additionalPrinterColumns"], "name").as_slice() {
        [] => String::new(),
        columns => format!(" Columns of `kubectl get`: {}.", columns.join(", ")),
    };
    let rules = match rules.as_slice() {
        [] => String::new(),
        rules => format!("\nThe API server also checks:\n\n- {}\n", rules.join("\n- ")),
    };
    let rows = rows.concat();
    format!(
        "## {kind}\n\n{about}\n\n{scope}. Short name: `{short}`.{columns}\n\n| field | type | |\n|---|---|---|\n{rows}{rules}"
    )
}

/// One row for each field below `schema`, those of its own fields included.
fn fields(schema: &Value, path: &str, rows: &mut Vec<String>) {
    let required = texts(&schema["required"], "");
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let must = if required.contains(name) { ", required" } else { "" };
        rows.push(format!("| `{path}` | {}{must} | {} |\n", kind(field), cell(field)));
        if !KNOWN.contains(&name.as_str()) {
            let (inner, path) = match (&field["items"], &field["additionalProperties"]) {
                (items @ Value::Object(_), _) => (items, format!("{path}[]")),
                (_, values @ Value::Object(_)) => (values, format!("{path}.*")),
                _ => (field, path),
            };
            fields(inner, &path, rows);
        }
    }
}

fn kind(field: &Value) -> String {
    match (&field["items"], &field["additionalProperties"]) {
        (items @ Value::Object(_), _) => format!("list of {}", kind(items)),
        (_, values @ Value::Object(_)) => format!("map of {}", kind(values)),
        _ => field["type"].as_str().unwrap_or("any").to_owned(),
    }
}

/// What a field means, and which values it may have.
fn cell(field: &Value) -> String {
    let one_of = |field: &Value| {
        let values: Vec<_> = texts(&field["enum"], "").iter().map(|value| format!("`{value}`")).collect();
        (!values.is_empty()).then(|| format!("One of {}.", values.join(", ")))
    };
    let range = match (field["minimum"].as_f64(), field["maximum"].as_f64()) {
        (Some(least), Some(most)) => Some(format!("{least} to {most}.")),
        (Some(least), None) if least > 0.0 => Some(format!("At least {least}.")),
        (None, Some(most)) => Some(format!("At most {most}.")),
        (_, None) => None,
    };
    let most = field["maxItems"].as_u64().or_else(|| field["maxProperties"].as_u64());
    let default = match &field["default"] {
        Value::Null | Value::Object(_) | Value::Array(_) => None,
        Value::String(text) => Some(format!("Default: `{text}`.")),
        scalar => Some(format!("Default: `{scalar}`.")),
    };
    let said = [
        Some(description(field)).filter(|said| !said.is_empty()),
        one_of(field).or_else(|| one_of(&field["items"])),
        range,
        most.map(|most| format!("At most {most}.")),
        default,
    ];
    said.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// In one line, without what Markdown would read as a table or as HTML.
fn description(schema: &Value) -> String {
    let said = words(&schema["description"]).split_whitespace().collect::<Vec<_>>().join(" ");
    said.replace('|', "\\|").replace('<', "&lt;")
}

fn collect_rules(schema: &Value, rules: &mut Vec<String>) {
    for rule in texts(&schema["x-kubernetes-validations"], "message") {
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    match schema {
        Value::Object(fields) => fields.values().for_each(|field| collect_rules(field, rules)),
        Value::Array(items) => items.iter().for_each(|item| collect_rules(item, rules)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The texts of a list, or the texts of that name in its objects.
fn texts(list: &Value, name: &str) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.map(|item| words(if name.is_empty() { item } else { &item[name] }).to_owned()).collect()
}

fn words(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
