//! Removes what must not leave the cluster. Secrets and ConfigMaps are never read; other objects and logs are redacted
//! here.
//!
//! Names of objects, user names and addresses stay: without them a report does not show what happened.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use pod_safety_shared::transport::is_secret_name;
use serde_json::Value;

/// The replacement of what was removed.
const REDACTED: &str = "REDACTED";

/// Annotations of these groups state why an object is left alone, or held. The contents of other annotations are
/// unknown.
const ANNOTATIONS: [&str; 3] = ["pod-safety.dev/", "cluster.x-k8s.io/", "remediation.medik8s.io/"];

/// The fields of a pod that are kept: its identity, its node and its state. Every other field may have data of its
/// user: commands, environment, headers of probes, attributes of volumes, messages. `*` stands for each entry of a
/// list, or each field.
const POD_PATHS: &str = "
    apiVersion kind
    metadata/name metadata/namespace metadata/uid metadata/resourceVersion metadata/generation metadata/creationTimestamp
    metadata/deletionTimestamp metadata/deletionGracePeriodSeconds metadata/finalizers metadata/ownerReferences
    metadata/labels metadata/annotations
    spec/nodeName spec/serviceAccountName spec/terminationGracePeriodSeconds spec/tolerations spec/schedulingGates
    spec/priorityClassName spec/containers/*/name spec/initContainers/*/name
    spec/volumes/*/name spec/volumes/*/persistentVolumeClaim
    status/phase status/reason status/observedGeneration status/startTime status/podIP status/hostIP
    status/conditions/*/type status/conditions/*/status status/conditions/*/reason status/conditions/*/lastTransitionTime
    status/containerStatuses/*/name status/containerStatuses/*/ready status/containerStatuses/*/restartCount
    status/containerStatuses/*/state/*/startedAt status/containerStatuses/*/state/*/finishedAt
    status/containerStatuses/*/state/*/exitCode status/containerStatuses/*/state/*/reason
    status/initContainerStatuses/*/name status/initContainerStatuses/*/state/*/reason";

/// The fields that are also kept of a pod of pod-safety itself: flags, and why containers terminated.
const OWN_POD_PATHS: &str = "
    spec/containers/*/image spec/containers/*/args spec/containers/*/env spec/containers/*/resources
    status/containerStatuses/*/imageID status/containerStatuses/*/lastState/*/exitCode
    status/containerStatuses/*/lastState/*/reason status/containerStatuses/*/lastState/*/message
    status/containerStatuses/*/lastState/*/finishedAt";

/// Redacts any pod.
pub fn redact_pod(object: &mut Value) {
    self::redact_object(object);
    *object = keep_paths(object, &paths(&[POD_PATHS])).unwrap_or_default();
}

/// Redacts a pod of pod-safety itself.
pub fn redact_own_pod(object: &mut Value) {
    self::redact_object(object);
    *object = keep_paths(object, &paths(&[POD_PATHS, OWN_POD_PATHS])).unwrap_or_default();
    let containers = object.pointer_mut("/spec/containers").and_then(Value::as_array_mut);
    for variable in containers.into_iter().flatten().filter_map(|one| one["env"].as_array_mut()).flatten() {
        let is_flag = variable["name"].as_str().is_some_and(|name| name.starts_with("POD_SAFETY_"));
        if !is_flag && variable.get("value").is_some() {
            variable["value"] = Value::from(REDACTED);
        }
    }
}

fn paths<'a>(lists: &[&'a str]) -> Vec<Vec<&'a str>> {
    lists.iter().flat_map(|list| list.split_whitespace()).map(|path| path.split('/').collect()).collect()
}

/// The parts of `value` at these paths; `None`: there are none.
fn keep_paths(value: &Value, paths: &[Vec<&str>]) -> Option<Value> {
    if paths.iter().any(Vec::is_empty) {
        return Some(value.clone());
    }
    let below = |field: &str| -> Vec<Vec<&str>> {
        let matching = paths.iter().filter(|path| path.first().is_some_and(|first| *first == "*" || *first == field));
        matching.map(|path| path.iter().skip(1).copied().collect()).collect()
    };
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter_map(|(name, value)| {
                let below = below(name);
                let value = if below.is_empty() { None } else { self::keep_paths(value, &below) };
                Some((name.clone(), value?))
            });
            let fields: serde_json::Map<_, _> = fields.collect();
            Some(Value::Object(fields))
        }
        Value::Array(entries) => {
            let below = below("*");
            Some(entries.iter().filter_map(|entry| keep_paths(entry, &below)).collect())
        }
        _ => None,
    }
}

/// Redacts the fields of any other object that may have values of users.
pub fn redact_object(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|key, _| ANNOTATIONS.iter().any(|group| key.starts_with(group)));
        }
    }
    for parameters in ["/spec/parameters", "/spec/nodeParameters"] {
        object.pointer_mut(parameters).into_iter().for_each(redact_values);
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        // A kubelet lists the images that it has pulled: the list is long, and names other software.
        status.remove("images");
    }
}

/// Redacts all values below, whatever their keys.
fn redact_values(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(redact_values),
        Value::Array(items) => items.iter_mut().for_each(redact_values),
        Value::String(_) | Value::Number(_) | Value::Bool(_) => *value = Value::from(REDACTED),
        Value::Null => {}
    }
}

/// Redacts credentials within text: in URLs, headers, flags, assignments and blocks of YAML, and tokens, however they
/// are quoted, spaced and encoded.
pub fn redact_text(text: &str) -> String {
    redact_words(&redact_blocks(text))
}

/// Redacts the lines below a YAML key that names a credential.
fn redact_blocks(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut below = None;
    for line in text.split_inclusive('\n') {
        let words = line.trim();
        let indent = line.get(..line.len() - line.trim_start().len()).unwrap_or_default();
        if below.is_some_and(|key| words.is_empty() || indent.len() > key) {
            let shown = if words.is_empty() { "" } else { REDACTED };
            let end = if line.ends_with('\n') { "\n" } else { "" };
            clean.push_str(&format!("{}{shown}{end}", indent.trim_end_matches('\n')));
            continue;
        }
        let entry = words.strip_prefix("- ").unwrap_or(words).trim_start();
        below = begins_block(entry).then_some(indent.len() + words.len() - entry.len());
        clean.push_str(line);
    }
    clean
}

/// `password:`, `password: |` and the like: the value is in the next lines.
fn begins_block(entry: &str) -> bool {
    entry.split_once(':').is_some_and(|(key, behind)| {
        let is_empty = behind.trim().is_empty() || behind.trim_start().starts_with(['|', '>']);
        is_empty && !key.contains(char::is_whitespace) && is_login(key)
    })
}

fn redact_words(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let (mut rest, mut next) = (text, Expecting::Anything);
    while !rest.is_empty() {
        let piece = rest.split_inclusive(is_end).next().unwrap_or(rest);
        let word = piece.trim_end_matches(is_end);
        let end = piece.get(word.len()..).unwrap_or_default();
        let (shown, then) = next.advance(word);
        clean.push_str(&shown);
        clean.push_str(end);
        rest = rest.get(piece.len()..).unwrap_or_default();
        // An announced value is on the same line.
        next = if end.contains('\n') { Expecting::Anything } else { then };
        if let (Expecting::Login, Some(quote)) = (next, opening_quote(word, end)) {
            let (quoted, behind) = rest.split_at(closing_quote(rest, quote));
            clean.push_str(&redact_quoted(quoted));
            (rest, next) = (behind, classify_word(quoted).1);
        }
    }
    clean
}

fn is_end(letter: char) -> bool {
    letter.is_whitespace() || matches!(letter, '"' | '\'' | ',' | ';' | '{' | '}' | '[' | ']' | '&' | '?')
}

/// The quote that begins a value at this position. A quote after a name ends that name.
fn opening_quote(word: &str, end: &str) -> Option<char> {
    let quote = end.chars().next().filter(|letter| matches!(letter, '"' | '\''))?;
    (word.is_empty() || word.ends_with(['=', ':', '>'])).then_some(quote)
}

/// The end of a quoted value: its closing quote, unless that is escaped, or the end of the line.
fn closing_quote(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, letter) in text.char_indices() {
        if letter == '\n' || letter == quote && !is_escaped {
            return at;
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    text.len()
}

/// A quoted credential; its authentication scheme may precede it.
fn redact_quoted(quoted: &str) -> String {
    match quoted.split_once(' ') {
        _ if quoted.is_empty() => String::new(),
        Some((scheme, _)) if is_scheme(scheme) => format!("{scheme} {REDACTED}"),
        _ => REDACTED.to_owned(),
    }
}

fn is_scheme(word: &str) -> bool {
    ["bearer", "basic", "digest"].iter().any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// What the next word may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expecting {
    Anything,
    /// A name of a credential preceded: a separator may follow, then the credential, after its scheme if it has one.
    Mark,
    Login,
    /// A user name, or a user name with the password after a colon.
    User,
}

impl Expecting {
    /// The redacted word, and what may follow it.
    fn advance(self, word: &str) -> (String, Self) {
        match self {
            _ if word.is_empty() => (String::new(), self),
            _ if is_scheme(word) => (word.to_owned(), Self::Login),
            Self::Mark if matches!(word, "=" | ":" | "=>" | ":=") => (word.to_owned(), Self::Login),
            // `:hunter2` after a quoted name.
            Self::Mark if word.starts_with(['=', ':']) => (format!("{}{REDACTED}", first_part(word)), Self::Anything),
            Self::User if word.contains(':') => (REDACTED.to_owned(), Self::Anything),
            // A block of YAML: `blocks` has redacted its value already.
            Self::Login if matches!(word, "|" | "|-" | "|+" | ">" | ">-" | ">+") => (word.to_owned(), Self::Anything),
            // A name in place of a credential may announce a credential of its own: `token= --password hunter2`.
            Self::Login => (REDACTED.to_owned(), classify_word(word).1),
            Self::Mark | Self::User | Self::Anything => classify_word(word),
        }
    }
}

fn first_part(word: &str) -> &str {
    word.get(..1).unwrap_or_default()
}

/// A word without a name before it.
fn classify_word(word: &str) -> (String, Expecting) {
    // A token of a ServiceAccount: three parts in base64, the first of which begins like this.
    const TOKEN: usize = 40;
    if word.len() >= TOKEN && word.contains("eyJ") || is_encoded_login(word) {
        return (REDACTED.to_owned(), Expecting::Anything);
    }
    if let Some((scheme, rest)) = word.split_once("://")
        && let Some((_, host)) = rest.rsplit_once('@')
    {
        return (format!("{scheme}://{REDACTED}@{host}"), Expecting::Anything);
    }
    if let Some(at) = word.find(['=', ':']) {
        let (key, value) = word.split_at(at);
        let value = value.get(1..).unwrap_or_default();
        if is_login(key) {
            let shown = if value.is_empty() { String::new() } else { REDACTED.to_owned() };
            let next = if value.is_empty() { Expecting::Login } else { Expecting::Anything };
            return (format!("{key}{}{shown}", word.get(at..=at).unwrap_or_default()), next);
        }
        return (word.to_owned(), Expecting::Anything);
    }
    // A flag takes the next word. After another name a separator must follow, because prose also has the word
    // "password".
    let next = match (is_login(word), word.starts_with('-')) {
        (true, true) => Expecting::Login,
        (true, false) => Expecting::Mark,
        // Passwords of fence agents, of sshpass and of mysql; user and password of curl.
        (false, _) if matches!(word, "-P" | "-p") => Expecting::Login,
        (false, _) if matches!(word, "-u" | "--user") => Expecting::User,
        (false, _) => Expecting::Anything,
    };
    (word.to_owned(), next)
}

/// Whether it is `user:password` in base64. Names of Kubernetes have no capitals, so they do not match.
fn is_encoded_login(word: &str) -> bool {
    const SHORTEST: usize = 12;
    let has = |is: fn(&char) -> bool| word.chars().any(|letter| is(&letter));
    if word.len() < SHORTEST || !has(char::is_ascii_uppercase) || !has(char::is_ascii_lowercase) {
        return false;
    }
    let bytes = BASE64_STANDARD.decode(word).unwrap_or_default();
    bytes.contains(&b':') && bytes.iter().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Whether this name is that of a credential.
fn is_login(name: &str) -> bool {
    let name = name.to_lowercase();
    is_secret_name(&name)
        || ["passphrase", "access_key", "access-key", "authorization"].iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn redacted_objects_keep_their_state_and_no_values_of_users() {
        let mut device = json!({ "metadata": { "name": "bmc", "managedFields": [1], "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "password", "pod-safety.dev/test": "t" } },
            "spec": { "driver": "Agent", "parameters": { "ip": "10.0.0.1", "password": "hunter2", "n": 5 },
                "nodeParameters": { "a": { "plug": "hunter2" } }, "secretParameters": [{ "name": "password", "key": "p" }] },
            "status": { "images": ["x"], "conditions": [] } });
        redact_object(&mut device);
        assert!(!device.to_string().contains("hunter2") && !device.to_string().contains("10.0.0.1"), "{device}");
        assert_eq!(
            device["spec"],
            json!({ "driver": "Agent", "parameters": { "ip": "REDACTED", "password": "REDACTED", "n": "REDACTED" },
                "nodeParameters": { "a": { "plug": "REDACTED" } }, "secretParameters": [{ "name": "password", "key": "p" }] })
        );
        assert_eq!(device["metadata"], json!({ "name": "bmc", "annotations": { "pod-safety.dev/test": "t" } }));
        assert_eq!(device["status"], json!({ "conditions": [] }));
    }

    /// A pod of a tenant is shown with its identity and its state only. Each of these values was in reports.
    #[test]
    fn attack_a_redacted_pod_keeps_only_listed_fields() {
        let secret = "hunter2";
        let mut one = json!({ "metadata": { "name": "db-0", "annotations": { "x": secret }, "labels": { "app.kubernetes.io/name": "pod-safety" } },
            "spec": { "nodeName": "w1", "hostAliases": [secret], "containers": [{ "name": "db", "command": [secret], "args": [secret],
                "env": [{ "name": "X", "value": secret }], "lifecycle": { "preStop": { "exec": { "command": [secret] } } },
                "livenessProbe": { "exec": { "command": [secret] }, "httpGet": { "httpHeaders": [{ "name": "Authorization", "value": secret }] } } }],
                "volumes": [{ "name": "v", "csi": { "volumeAttributes": { "p": secret } }, "flexVolume": { "options": { "p": secret } } },
                    { "name": "data", "persistentVolumeClaim": { "claimName": "data-0" } }] },
            "status": { "phase": "Failed", "message": secret, "conditions": [{ "type": "Ready", "status": "False", "message": secret }],
                "containerStatuses": [{ "name": "db", "state": { "terminated": { "exitCode": 1, "message": secret } },
                    "lastState": { "terminated": { "message": secret } } }] } });
        redact_pod(&mut one);
        assert!(!one.to_string().contains(secret), "{one:#}");
        assert_eq!(
            one["spec"],
            json!({ "nodeName": "w1", "containers": [{ "name": "db" }],
            "volumes": [{ "name": "v" }, { "name": "data", "persistentVolumeClaim": { "claimName": "data-0" } }] })
        );
        assert_eq!(
            one["status"]["containerStatuses"],
            json!([{ "name": "db", "state": { "terminated": { "exitCode": 1 } } }])
        );
        let mut own = json!({ "spec": { "containers": [{ "args": ["run"], "command": [secret], "env": [
            { "name": "POD_SAFETY_MODE", "value": "guard" }, { "name": "X", "value": secret }] }] } });
        redact_own_pod(&mut own);
        assert_eq!(
            own["spec"]["containers"][0],
            json!({ "args": ["run"], "env": [
            { "name": "POD_SAFETY_MODE", "value": "guard" }, { "name": "X", "value": REDACTED }] })
        );
    }

    #[test]
    fn credentials_within_text_are_redacted() {
        for (line, clean) in [
            ("GET https://root:hunter2@10.0.0.1/redfish\n", "GET https://REDACTED@10.0.0.1/redfish\n"),
            ("Authorization: Bearer abc.def\tx", "Authorization: Bearer REDACTED\tx"),
            ("\"authorization\":\"Basic cm9vdA==\"", "\"authorization\":\"Basic REDACTED\""),
            ("user=a&password=hunter2&plug=3", "user=a&password=REDACTED&plug=3"),
            ("--Token=hunter2 --plug=3", "--Token=REDACTED --plug=3"),
            ("/login?x=1&token=hunter2", "/login?x=1&token=REDACTED"),
            ("passwd:hunter2, on", "passwd:REDACTED, on"),
            ("password: hunter2 and", "password: REDACTED and"),
            ("{\"password\":\"hunter2\",\"n\":1}", "{\"password\":\"REDACTED\",\"n\":1}"),
            ("{\"password\": \"hunter2\"}", "{\"password\": \"REDACTED\"}"),
            ("password = hunter2", "password = REDACTED"),
            ("X-Auth-Token: hunter2", "X-Auth-Token: REDACTED"),
            (
                "fence_ipmilan --password hunter2 -P hunter2 -o off",
                "fence_ipmilan --password REDACTED -P REDACTED -o off",
            ),
            ("AWS_SECRET_ACCESS_KEY=hunter2", "AWS_SECRET_ACCESS_KEY=REDACTED"),
            ("{\"password\":\"hun;t er2,\\\"}\",\"n\":1}", "{\"password\":\"REDACTED\",\"n\":1}"),
            ("password='hunter 2' on", "password='REDACTED' on"),
            ("[\"--password\", \"hunt&er2\"]", "[\"--password\", \"REDACTED\"]"),
            ("token= --password hunter2 on", "token= REDACTED REDACTED on"),
            ("https://root:hunt@er2@10.0.0.1/", "https://REDACTED@10.0.0.1/"),
            ("fence_apc -l root -p hunter2 -n 3", "fence_apc -l root -p REDACTED -n 3"),
            ("curl -u root:hunter2 -k", "curl -u REDACTED -k"),
            ("curl --user root -k", "curl --user root -k"),
            ("said cm9vdDpodW50ZXIy of OutOfServiceWithoutEvidence", "said REDACTED of OutOfServiceWithoutEvidence"),
            ("password: |\n  hunter2\n\n  hunter3\nplug: 3\n", "password: |\n  REDACTED\n\n  REDACTED\nplug: 3\n"),
            ("- token: >-\n    hunter2\n  plug: 3", "- token: >-\n    REDACTED\n  plug: 3"),
            ("  \"passwd\":\n    hunter2", "  \"passwd\":\n    REDACTED"),
            ("cannot read the token:\n  the file is gone", "cannot read the token:\n  the file is gone"),
            ("the password is wrong, try again", "the password is wrong, try again"),
            ("token\nworker-1 is off", "token\nworker-1 is off"),
            ("node worker-b1 is not heard: it is off", "node worker-b1 is not heard: it is off"),
            ("at 10:14:05, pod shop/orders-1", "at 10:14:05, pod shop/orders-1"),
        ] {
            assert_eq!(redact_text(line), clean);
        }
        let token = format!("eyJ{}.eyJ{}.x", "a".repeat(40), "b".repeat(40));
        assert_eq!(redact_text(&format!("token {token}\n")), "token REDACTED\n");
    }
}
