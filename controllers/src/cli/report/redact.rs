//! What must not leave the cluster, and does not. Secrets and ConfigMaps are never read; what stands in other objects
//! and in logs goes through here.
//!
//! Names of objects, people and addresses stay: without them nobody could tell what happened.

use serde_json::Value;

/// What stands in place of what was taken out.
const REDACTED: &str = "REDACTED";

/// Annotations of these groups say why something is left alone, or held. Of others nobody knows what they hold.
const ANNOTATIONS: [&str; 3] = ["pod-safety.dev/", "cluster.x-k8s.io/", "remediation.medik8s.io/"];

/// The fields of an object in which values of users stand.
pub(super) fn object(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|key, _| ANNOTATIONS.iter().any(|group| key.starts_with(group)));
        }
    }
    let ours =
        object.pointer("/metadata/labels/app.kubernetes.io~1name").is_some_and(|name| name == "pod-safety");
    for parameters in ["/spec/parameters", "/spec/nodeParameters"] {
        object.pointer_mut(parameters).into_iter().for_each(values);
    }
    for containers in ["/spec/containers", "/spec/initContainers", "/spec/ephemeralContainers"] {
        let all = object.pointer_mut(containers).and_then(Value::as_array_mut);
        all.into_iter().flatten().for_each(|one| container(one, ours));
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        // A kubelet lists what it has pulled: it is long, and tells of other software.
        status.remove("images");
    }
}

/// All that stands below, by whichever key.
fn values(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(values),
        Value::Array(items) => items.iter_mut().for_each(values),
        Value::String(_) | Value::Number(_) | Value::Bool(_) => *value = Value::from(REDACTED),
        Value::Null => {}
    }
}

/// Arguments and environment of a container; ours are flags, and say how it runs.
fn container(container: &mut Value, ours: bool) {
    for variable in container.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten() {
        let is_flag = variable["name"].as_str().is_some_and(|name| name.starts_with("POD_SAFETY_"));
        if !(ours && is_flag) && variable.get("value").is_some() {
            variable["value"] = Value::from(REDACTED);
        }
    }
    if !ours {
        for field in ["command", "args"] {
            container.get_mut(field).into_iter().for_each(values);
        }
    }
}

/// Logins in the midst of text: of URLs, headers and assignments, and tokens.
pub(super) fn text(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    // The word after this one is a login.
    let mut announced = false;
    for piece in
        text.split_inclusive(|letter: char| letter.is_whitespace() || matches!(letter, '"' | '\'' | ','))
    {
        let word = piece
            .trim_end_matches(|letter: char| letter.is_whitespace() || matches!(letter, '"' | '\'' | ','));
        let rest = piece.get(word.len()..).unwrap_or_default();
        if announced && !word.is_empty() {
            clean.push_str(REDACTED);
        } else {
            clean.push_str(&login_free(word));
        }
        clean.push_str(rest);
        announced = match word {
            "" => announced,
            _ => matches!(word.to_ascii_lowercase().as_str(), "bearer" | "basic"),
        };
    }
    clean
}

/// One word without a login.
fn login_free(word: &str) -> String {
    // A token of a service account: three parts of base64, of which the first begins like this.
    const TOKEN: usize = 40;
    if word.len() >= TOKEN && word.contains("eyJ") {
        return REDACTED.to_owned();
    }
    if let Some((scheme, rest)) = word.split_once("://")
        && let Some((_, host)) = rest.split_once('@')
    {
        return format!("{scheme}://{REDACTED}@{host}");
    }
    let parts: Vec<String> = word.split('&').map(assigned).collect();
    parts.join("&")
}

/// One assignment without its value, if that is a login.
fn assigned(part: &str) -> String {
    const KEYS: [&str; 7] = ["password", "passwd", "passphrase", "token", "secret", "apikey", "api_key"];
    for mark in ['=', ':'] {
        let Some((key, value)) = part.split_once(mark) else { continue };
        let key_is_one = KEYS.iter().any(|name| key.to_ascii_lowercase().ends_with(name));
        if key_is_one && !value.is_empty() {
            return format!("{key}{mark}{REDACTED}");
        }
    }
    part.to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_value_of_a_user_is_left_in_an_object_and_all_that_explains_it_is() {
        let mut device = json!({ "metadata": { "name": "bmc", "managedFields": [1], "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "password", "pod-safety.dev/test": "t" } },
            "spec": { "driver": "Agent", "parameters": { "ip": "10.0.0.1", "password": "hunter2", "n": 5 },
                "nodeParameters": { "a": { "plug": "hunter2" } }, "secretParameters": [{ "name": "password", "key": "p" }] },
            "status": { "images": ["x"], "conditions": [] } });
        object(&mut device);
        assert!(
            !device.to_string().contains("hunter2") && !device.to_string().contains("10.0.0.1"),
            "{device}"
        );
        assert_eq!(
            device["spec"],
            json!({ "driver": "Agent", "parameters": { "ip": "REDACTED", "password": "REDACTED", "n": "REDACTED" },
                "nodeParameters": { "a": { "plug": "REDACTED" } }, "secretParameters": [{ "name": "password", "key": "p" }] })
        );
        assert_eq!(
            device["metadata"],
            json!({ "name": "bmc", "annotations": { "pod-safety.dev/test": "t" } })
        );
        assert_eq!(device["status"], json!({ "conditions": [] }));
        let pod = |name: &str| {
            let mut pod = json!({ "metadata": { "labels": { "app.kubernetes.io/name": name } }, "spec": { "containers": [{
                "args": ["run"], "env": [{ "name": "POD_SAFETY_MODE", "value": "guard" }, { "name": "X", "value": "y" }] }] } });
            object(&mut pod);
            pod["spec"]["containers"][0].clone()
        };
        assert_eq!(pod("pod-safety")["args"], json!(["run"]));
        assert_eq!(pod("pod-safety")["env"][0]["value"], "guard");
        assert_eq!(pod("pod-safety")["env"][1]["value"], REDACTED);
        assert_eq!(
            (&pod("db")["args"][0], &pod("db")["env"][0]["value"]),
            (&json!(REDACTED), &json!(REDACTED))
        );
    }

    #[test]
    fn no_login_is_left_in_the_midst_of_text() {
        for (line, clean) in [
            ("GET https://root:hunter2@10.0.0.1/redfish\n", "GET https://REDACTED@10.0.0.1/redfish\n"),
            ("Authorization: Bearer abc.def\tx", "Authorization: Bearer REDACTED\tx"),
            ("\"authorization\":\"Basic cm9vdA==\"", "\"authorization\":\"Basic REDACTED\""),
            ("user=a&password=hunter2&plug=3", "user=a&password=REDACTED&plug=3"),
            ("--Token=hunter2 --plug=3", "--Token=REDACTED --plug=3"),
            ("/login?x=1&token=hunter2", "/login?x=1&token=REDACTED"),
            ("passwd:hunter2, on", "passwd:REDACTED, on"),
            ("node worker-b1 is not heard: it is off", "node worker-b1 is not heard: it is off"),
            ("at 10:14:05, pod shop/orders-1", "at 10:14:05, pod shop/orders-1"),
        ] {
            assert_eq!(text(line), clean);
        }
        let token = format!("eyJ{}.eyJ{}.x", "a".repeat(40), "b".repeat(40));
        assert_eq!(text(&format!("token {token}\n")), "token REDACTED\n");
    }
}
