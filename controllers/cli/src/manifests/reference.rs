//! docs/custom-resources.md: every field of the kinds of pod-safety, from their definitions.

use serde_json::Value;

const HEAD: &str = "# Custom resources

The fields of each `spec` of the API `pod-safety.dev/v1alpha1`. `kubectl explain --recursive` shows what only pod-safety writes, too.
[fencing.md](fencing.md) and [fence-devices.md](fence-devices.md) say how to use them.

<!-- Made from the types in shared/crds by a test of controllers/cli/src/manifests.rs. Do not edit. -->
";

/// Fields whose own fields are not listed: those that Kubernetes defines, and those that only pod-safety writes, into a
/// FenceEvidence.
const UNLISTED_FIELDS: [&str; 5] = ["conditions", "corroborated", "nodeSelector", "samples", "storage"];

/// The whole page.
pub(super) fn page(crds: &[Value]) -> String {
    let mut seen = Vec::new();
    crds.iter().fold(HEAD.to_owned(), |page, crd| page + "\n" + &section(crd, &mut seen))
}

/// The fields of an object, and where they are on the page: they are listed once.
type SeenFields = Vec<(Value, String)>;

fn section(crd: &Value, seen: &mut SeenFields) -> String {
    let (names, version) = (&crd["spec"]["names"], &crd["spec"]["versions"][0]);
    let schema = &version["schema"]["openAPIV3Schema"];
    let (mut rows, mut rules) = (Vec::new(), Vec::new());
    fields(&schema["properties"]["spec"], "spec", &mut rows, seen);
    collect_rules(schema, &mut rules);
    let (kind, scope) = (text_of(&names["kind"]), text_of(&crd["spec"]["scope"]));
    seen.iter_mut().filter(|(_, at)| at.ends_with('`')).for_each(|(_, at)| at.push_str(&format!(" of {kind}")));
    let about = describe(&schema["properties"]["spec"]);
    let short = texts(&names["shortNames"], "").join("`, `");
    let columns = match texts(&version["additionalPrinterColumns"], "name").as_slice() {
        [] => String::new(),
        columns => format!(" Columns of `kubectl get`: {}.", columns.join(", ")),
    };
    let rules = match rules.as_slice() {
        [] => String::new(),
        rules => format!("\nThe API server also checks:\n\n- {}\n", rules.join("\n- ")),
    };
    let rows = if rows.is_empty() { String::new() } else { format!("\n{}", rows.concat()) };
    format!("## {kind}\n\n{about}\n\n{scope}. Short name: `{short}`.{columns}\n{rows}{rules}")
}

/// One line for each field below `schema`, including those of its own fields.
fn fields(schema: &Value, path: &str, rows: &mut Vec<String>, seen: &mut SeenFields) {
    let required = texts(&schema["required"], "");
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let must = if required.contains(name) { ", required" } else { "" };
        let (inner, below) = match (&field["items"], &field["additionalProperties"]) {
            (items @ Value::Object(_), _) => (items, format!("{path}[]")),
            (_, values @ Value::Object(_)) => (values, format!("{path}.*")),
            _ => (field, path.clone()),
        };
        let own = &inner["properties"];
        let shown = seen.iter().find(|(one, _)| own.is_object() && one == own).map(|(_, at)| at.clone());
        let more = shown.as_ref().map(|at| format!(" Fields as in {at}.")).unwrap_or_default();
        let text = [cell(field), more].concat();
        let text = if text.is_empty() { text } else { format!(": {}", text.trim_start()) };
        rows.push(format!("- `{path}` ({}{must}){text}\n", kind(field)));
        if shown.is_none() && !UNLISTED_FIELDS.contains(&name.as_str()) {
            if own.is_object() {
                seen.push((own.clone(), format!("`{below}`")));
            }
            fields(inner, &below, rows, seen);
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

/// The description of a field, and its values.
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
    let parts = [
        Some(describe(field)).filter(|description| !description.is_empty()),
        one_of(field).or_else(|| one_of(&field["items"])),
        range,
        most.map(|most| format!("At most {most}.")),
        default,
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// The description in one line, without what Markdown would read as HTML.
fn describe(schema: &Value) -> String {
    let text = text_of(&schema["description"]).split_whitespace().collect::<Vec<_>>().join(" ");
    text.replace('<', "&lt;")
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

/// The strings of a list, or the strings of that name in its objects.
fn texts(list: &Value, name: &str) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.map(|item| text_of(if name.is_empty() { item } else { &item[name] }).to_owned()).collect()
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
