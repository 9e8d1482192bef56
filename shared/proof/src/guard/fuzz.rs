//! Fuzz target: arbitrary requests, compared with a second model of what the API server would do with them.

use pod_safety_fuzz::{Draw, fuzz, json};
use serde_json::{Value, json};

use super::*;

const METHODS: &[&str] = &["DELETE", "PATCH", "PUT", "POST", "GET", "delete", "HEAD"];

const SEGMENTS: &[&str] = &[
    "api",
    "apis",
    "v1",
    "namespaces",
    "ns",
    "pods",
    "a",
    "status",
    "eviction",
    "nodes",
    "finalizers",
    "scale",
    "resize",
    "storage.k8s.io",
    "volumeattachments",
    "policy",
    "",
    ".",
    "..",
    "%70ods",
    "events",
    "leases",
    "coordination.k8s.io",
];

const PATHS: &[&str] = &[
    "/api/v1/namespaces/ns/pods/a",
    "/api/v1/namespaces/ns/pods/a/status",
    "/api/v1/namespaces/ns/pods/a/eviction",
    "/api/v1/nodes/n",
    "/api/v1/nodes/n/status",
    "/apis/storage.k8s.io/v1/volumeattachments/v",
    "/apis/policy/v1/namespaces/ns/poddisruptionbudgets/b/status",
    "/api/v1/namespaces/ns/pods",
    "/apis/coordination.k8s.io/v1/namespaces/pod-safety-volumes/leases/v",
];

const TOKENS: &[&str] = &[
    "gracePeriodSeconds",
    "preconditions",
    "uid",
    "resourceVersion",
    "deleteOptions",
    "metadata",
    "finalizers",
    "status",
    "phase",
    "spec",
    "taints",
    "key",
    "$patch",
    "$retainKeys",
    "replace",
    "$deleteFromPrimitiveList/finalizers",
    "$setElementOrder/finalizers",
    "conditions",
    "Failed",
    OUT_OF_SERVICE_TAINT,
    "GracePeriodSeconds",
    "kind",
    "holderIdentity",
    "leaseTransitions",
];

fn path(draw: &mut Draw<'_>) -> String {
    let mut parts: Vec<&str> = draw.word(PATHS).split('/').skip(1).collect();
    for _ in 0..draw.below(3) {
        let at = draw.below(parts.len() + 1);
        match draw.below(3) {
            0 => parts.insert(at, draw.word(SEGMENTS)),
            1 => drop((at < parts.len()).then(|| parts.remove(at))),
            _ => parts.iter_mut().skip(at).take(1).for_each(|part| *part = draw.word(SEGMENTS)),
        }
    }
    format!("/{}", parts.join("/"))
}

/// A JSON body as text, in which keys may be duplicated.
fn body(draw: &mut Draw<'_>) -> String {
    let mut body = json!({
        "gracePeriodSeconds": 30,
        "preconditions": { "uid": "u", "resourceVersion": "7" },
        "deleteOptions": { "gracePeriodSeconds": 30 },
        "metadata": { "name": "a", "annotations": { "a": "b" } },
        "spec": { "taints": [{ "key": "node.kubernetes.io/unreachable", "effect": "NoExecute" }], "unschedulable": true },
        "status": { "conditions": [{ "type": "Ready" }] },
    });
    let keep = draw.byte();
    if let Some(fields) = body.as_object_mut() {
        let mut at = 0;
        fields.retain(|_, _| {
            at += 1;
            keep >> at & 1 == 0
        });
    }
    json::vary(draw, &mut body, TOKENS);
    let text = body.to_string();
    let doubled = draw.text(TOKENS);
    match draw.below(6) {
        0 => text.replacen('{', &format!("{{{}:{},", json!(draw.word(TOKENS)), json!(draw.number())), 1),
        1 => {
            text.replacen('{', &format!("{{{}:{},", json!(draw.word(TOKENS)), json!({ draw.word(TOKENS): doubled })), 1)
        }
        2 => String::from_utf8_lossy(&draw.corrupt(text.as_bytes())).into_owned(),
        _ => text,
    }
}

/// JSON with duplicate keys.
enum Tree {
    Fields(Vec<(String, Tree)>),
    Items(Vec<Tree>),
    Plain(Value),
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Tree;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }
            fn visit_unit<E>(self) -> Result<Tree, E> {
                Ok(Tree::Plain(Value::Null))
            }
            fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
                Ok(Tree::Plain(value.into()))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
                Ok(Tree::Plain(value.into()))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
                Ok(Tree::Plain(value.into()))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
                Ok(Tree::Plain(value.into()))
            }
            fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
                Ok(Tree::Plain(value.into()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Tree, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = all.next_element()? {
                    items.push(item);
                }
                Ok(Tree::Items(items))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Tree, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = all.next_entry()? {
                    fields.push(field);
                }
                Ok(Tree::Fields(fields))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl Tree {
    /// The value as a reader sees it that takes the first, or the last, of fields with the same key.
    fn read(&self, first: bool) -> Value {
        match self {
            Self::Plain(value) => value.clone(),
            Self::Items(items) => items.iter().map(|item| item.read(first)).collect(),
            Self::Fields(fields) => {
                let mut read = serde_json::Map::new();
                for (key, value) in fields {
                    if !first || !read.contains_key(key) {
                        read.insert(key.clone(), value.read(first));
                    }
                }
                Value::Object(read)
            }
        }
    }
}

/// Whether the fields below `object` may replace or remove `field`. `null` removes all of them, and so may a directive.
fn reaches(object: &Value, field: &str) -> bool {
    match object {
        Value::Null => true,
        Value::Object(fields) => fields
            .keys()
            .any(|key| key == field || key.ends_with(&format!("/{field}")) || key == "$patch" || key == "$retainKeys"),
        _ => false,
    }
}

fn names(value: &Value, word: &str) -> bool {
    match value {
        Value::String(text) => text.contains(word),
        Value::Array(items) => items.iter().any(|item| names(item, word)),
        Value::Object(fields) => fields.iter().any(|(key, value)| key.contains(word) || names(value, word)),
        _ => false,
    }
}

fn grace(options: Option<&Value>) -> Option<i64> {
    options.and_then(|options| options.get("gracePeriodSeconds")).and_then(Value::as_i64)
}

/// Whether the API server may do for this request what only evidence permits. `docs/proof.md` lists it.
fn needs_evidence(method: &str, path: &str, body: &Value) -> bool {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let (group, object): (&str, &[&str]) = match &parts[..] {
        ["api", "v1", "namespaces", _, rest @ ..] | ["api", "v1", rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (group, rest),
        _ => return false,
    };
    let writes = method == "PATCH" || method == "PUT";
    let absent = Value::Bool(false);
    let [metadata, status, spec] = ["metadata", "status", "spec"].map(|field| body.get(field).unwrap_or(&absent));
    let whole = method == "PUT" || writes && (body.get("$patch").is_some() || body.get("$retainKeys").is_some());
    match (group, object) {
        ("", ["pods", _]) if method == "DELETE" => {
            let named = body.pointer("/preconditions/resourceVersion").and_then(Value::as_str).unwrap_or_default();
            grace(Some(body)).is_none_or(|grace| grace < 1) || named.is_empty()
        }
        ("", ["pods", _, "eviction"]) if method == "POST" => {
            grace(body.get("deleteOptions")).is_none_or(|grace| grace < 1)
        }
        ("", ["pods", _]) if writes => whole || reaches(metadata, "finalizers"),
        ("", ["pods", _, "status"]) if writes => whole || reaches(metadata, "finalizers") || reaches(status, "phase"),
        ("coordination.k8s.io", ["namespaces", "pod-safety-volumes", "leases", _]) if writes => {
            whole || reaches(metadata, "finalizers") || spec.get("leaseTransitions").is_some()
        }
        ("", ["nodes", _]) | ("storage.k8s.io", ["volumeattachments", _]) if method == "DELETE" => true,
        ("", ["nodes"]) if method == "POST" => names(spec, OUT_OF_SERVICE_TAINT),
        ("", ["nodes", _]) if writes && names(spec, OUT_OF_SERVICE_TAINT) => true,
        ("", ["nodes", _] | ["nodes", _, "status"]) | ("storage.k8s.io", ["volumeattachments", _]) if writes => {
            whole || reaches(metadata, "finalizers")
        }
        _ => false,
    }
}

/// Whether the guard refuses the request, without and with a permit.
fn refused(method: &str, path: &str, body: &str) -> [bool; 2] {
    let permit = Permit::for_guard_tests(path, "u", "7");
    [None, Some(&permit)].map(|permit| check(method, path, None, Some(body.as_bytes()), permit).is_err())
}

#[test]
fn attack_no_request_that_needs_evidence_is_sent_without_a_permit() {
    fuzz!(6_000, |draw| {
        let (method, path, body) = (draw.word(METHODS), path(draw), body(draw));
        let [unpermitted, permitted] = refused(method, &path, &body);
        let request = format!("{method} {path} {body}");
        assert!(unpermitted || !permitted, "a permit forbids nothing: {request}");
        let plain = path.split('/').skip(1).all(|part| !matches!(part, "" | "." | "..")) && !path.contains('%');
        assert!(plain || permitted, "no canonical path: {request}");
        if method == "GET" {
            return;
        }
        let Ok(tree) = serde_json::from_str::<Tree>(&body) else { return };
        for read in [tree.read(true), tree.read(false)] {
            assert!(unpermitted || !needs_evidence(method, &path, &read), "{request}");
            let uid = read.pointer("/preconditions/uid").and_then(Value::as_str).unwrap_or_default();
            assert!(method != "DELETE" || permitted || !uid.is_empty(), "{request}");
        }
    });
}
