//! Sequences of requests, drawn from a seed.
//!
//! A request may refer to earlier answers: the object as it was some versions ago, its UID, its version. Each side
//! resolves such references from its own answers ([`super::run`]), because UIDs and versions differ.

use serde_json::{Value, json};

use super::operation::{Body, JSON, MERGE, Operation, STRATEGIC};
use super::scene;
use super::templates::Target;
use crate::chance::{Chance, Draws};

/// Draws sequences.
#[derive(Debug)]
pub struct Generator {
    sequence: String,
    draws: Draws,
    number: u64,
}

impl Generator {
    /// The generator of sequence `number` of a run.
    #[must_use]
    pub fn new(chance: Chance, number: u64) -> Self {
        Self { sequence: format!("s{number}"), draws: Draws::new(chance.part("sequence", number)), number: 0 }
    }

    /// The name of the sequence, which is the prefix of all its names.
    #[must_use]
    pub fn sequence(&self) -> &str {
        &self.sequence
    }

    /// Its requests, in order.
    pub fn operations(&mut self) -> Vec<Operation> {
        let count = 20 + self.draws.below(61);
        let mut operations: Vec<_> = ["a", "b"].into_iter().map(|one| self.namespace(one)).collect();
        if self.draws.percent(25) {
            let sequence = self.sequence.clone();
            operations.extend(scene::evictions(&sequence, &mut self.draws, delete_options));
        }
        // Without existing objects, most requests would be answered with 404.
        let mut favourites: Vec<Target> =
            (0..3).map(|_| self.draws.choose(&Target::WEIGHTED).copied().unwrap_or(Target::Pod)).collect();
        if self.draws.percent(35) {
            favourites = vec![Target::Pod, Target::Pod, Target::Budget];
        }
        for _ in 0..count {
            self.number += 1;
            let favourite = self.draws.percent(75);
            let chosen = if favourite { self.draws.choose(&favourites) } else { self.draws.choose(&Target::WEIGHTED) };
            let target = chosen.copied().unwrap_or(Target::Pod);
            let operation = self.operation(target);
            operations.push(operation);
        }
        operations
    }

    fn namespace(&self, name: &str) -> Operation {
        let name = format!("{}-{name}", self.sequence);
        let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        Operation::new("POST", "/api/v1/namespaces", "").json(body)
    }

    fn operation(&mut self, target: Target) -> Operation {
        let space = if self.draws.percent(90) { "a" } else { "b" };
        let namespace = format!("{}-{space}", self.sequence);
        let collection = target.collection(&namespace);
        let name = self.draws.choose(&["a", "a", "a", "b", "b", "c"]).copied().unwrap_or("a");
        let name = format!("{}-{name}", self.sequence);
        let object = format!("{collection}/{name}");
        // First there must be something.
        let turn = if self.number <= 10 && self.draws.percent(60) { 0 } else { self.draws.below(100) };
        match turn {
            // ReplicationControllers are created, read and deleted: pod-safety does no more with them.
            30..71 if target == Target::Replication => self.get(&object),
            0..18 => self.create(target, &collection, &name, &namespace),
            18..23 => self.get(&object),
            23..30 => self.list(target, &collection),
            30..39 => self.put(target, &object, &name, &namespace),
            39..55 => self.patch(target, &object),
            55..71 => self.status(target, &object),
            71..86 => self.delete(&object),
            86..88 => self.delete_collection(&collection),
            88..98 if target == Target::Pod => self.act(&object, &name),
            88..95 if target.has_scale() => self.scale(&object),
            88..98 => self.finalizers(&object),
            _ => self.nonsense(&collection, &object),
        }
    }

    fn create(&mut self, target: Target, collection: &str, name: &str, namespace: &str) -> Operation {
        let mut object = target.object(name, &self.sequence, namespace, &mut self.draws);
        let about = format!("{collection}/{name}");
        let operation = Operation::new("POST", collection, &about);
        let operation = if self.draws.percent(8) { operation.query("dryRun=All") } else { operation };
        match self.draws.below(20) {
            0 => {
                object["metadata"]["generateName"] = format!("{}-g{}-", self.sequence, self.number).into();
                object["metadata"]["name"] = Value::Null;
                operation.json(object)
            }
            1 => {
                let stale = Body::Stale {
                    path: about,
                    back: 0,
                    edit: json!({ "metadata": { "resourceVersion": null } }),
                    otherwise: object,
                };
                Operation { body: stale, ..operation }
            }
            2 => {
                object["metadata"]["resourceVersion"] = "$rv".into();
                operation.json(object)
            }
            3 => {
                object["metadata"]["namespace"] = "elsewhere".into();
                operation.json(object)
            }
            4 => {
                object["metadata"]["name"] = "Bad_Name".into();
                operation.json(object)
            }
            _ => operation.json(object),
        }
    }

    fn get(&mut self, object: &str) -> Operation {
        let query = match self.draws.below(6) {
            0 => "resourceVersion=0",
            1 => "resourceVersion=$rv",
            _ => "",
        };
        Operation::new("GET", object, object).query(query)
    }

    fn list(&mut self, target: Target, collection: &str) -> Operation {
        if Target::FOLLOWED.contains(&target) && self.draws.percent(15) {
            let query = self.draws.choose(&["", "limit=1000000"]).copied().unwrap_or_default();
            return Operation::new("GET", &target.everywhere(), "").query(query);
        }
        if matches!(target, Target::Pod | Target::Node) && self.draws.percent(15) {
            // As pod-safety's feeds list; objects of other sequences are left out of the comparison.
            let path = if target == Target::Pod { "/api/v1/pods" } else { "/api/v1/nodes" };
            let query = self.draws.choose(&["", "limit=1000000"]).copied().unwrap_or_default();
            return Operation::new("GET", path, "").query(query);
        }
        let mut parts = Vec::new();
        let sequence = &self.sequence;
        if !target.namespaced() {
            parts.push(format!("labelSelector=seq%3D{sequence}"));
        } else if self.draws.percent(30) {
            let selectors = ["app%3Dx", "app!%3Dx", "%21app", "app+in+(x,y)", "seq"];
            parts.push(format!("labelSelector={}", self.draws.choose(&selectors).copied().unwrap_or_default()));
        }
        if self.draws.percent(25) {
            let field = if target == Target::Pod && self.draws.percent(60) { "spec.nodeName" } else { "metadata.name" };
            parts.push(format!("fieldSelector={field}%3D{}-a", self.sequence));
        }
        match self.draws.below(10) {
            0 => parts.push("resourceVersion=0".to_owned()),
            1 => parts.push("resourceVersion=$rv&resourceVersionMatch=Exact".to_owned()),
            2 => parts.push("resourceVersion=$rv&resourceVersionMatch=NotOlderThan".to_owned()),
            3 => parts.push("resourceVersion=$rv:1&limit=1".to_owned()),
            4 | 5 => parts.push("limit=2".to_owned()),
            // Pages of the whole cluster contain objects that other sequences left.
            6 if target.namespaced() => parts.push("limit=2&continue=$continue".to_owned()),
            7 => parts.push("resourceVersionMatch=Exact".to_owned()),
            _ => {}
        }
        let about = format!("{collection}/{}-a", self.sequence);
        Operation::new("GET", collection, &about).query(parts.join("&"))
    }

    fn put(&mut self, target: Target, object: &str, name: &str, namespace: &str) -> Operation {
        let path = object.to_owned();
        let otherwise = target.object(name, &self.sequence, namespace, &mut self.draws);
        let edit = match self.draws.below(9) {
            0 => json!({ "metadata": { "resourceVersion": null } }),
            1 => json!({ "metadata": { "uid": "00000000-0000-4000-8000-000000000000" } }),
            2 => json!({ "metadata": { "resourceVersion": null, "uid": null, "labels": { "put": "1" } } }),
            3 => json!({ "metadata": { "labels": { "app": "y" } } }),
            4 => json!({ "metadata": { "name": "other" } }),
            5 => json!({ "metadata": { "annotations": { "example.com/a": "1" } } }),
            6 => json!({ "spec": target.spec_change(&mut self.draws) }),
            _ => json!({}),
        };
        let back = if self.draws.percent(70) { 0 } else { 1 + usize::from(self.draws.percent(50)) };
        let operation = Operation::new("PUT", object, object);
        let operation = if self.draws.percent(6) { operation.query("dryRun=All") } else { operation };
        Operation { body: Body::Stale { path, back, edit, otherwise }, ..operation }
    }

    fn precondition(&mut self, patch: &mut Value) {
        match self.draws.below(10) {
            0 => patch["metadata"]["resourceVersion"] = "$rv".into(),
            1 => patch["metadata"]["resourceVersion"] = "$rv:1".into(),
            2 => patch["metadata"]["uid"] = "$uid".into(),
            3 => patch["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000".into(),
            4 => {
                patch["metadata"]["uid"] = "$uid".into();
                patch["metadata"]["resourceVersion"] = "$rv".into();
            }
            _ => {}
        }
    }

    fn patch(&mut self, target: Target, object: &str) -> Operation {
        let operation = Operation::new("PATCH", object, object);
        let operation = if self.draws.percent(6) { operation.query("dryRun=All") } else { operation };
        if self.draws.percent(25) {
            return operation.typed(JSON).json(self.json_patch());
        }
        let mut patch = match self.draws.below(8) {
            0 => json!({ "metadata": { "labels": { "app": self.draws.choose(&["x", "y"]).copied() } } }),
            1 => json!({ "metadata": { "labels": { "app": null } } }),
            2 => json!({ "metadata": { "annotations": { "example.com/a": format!("{}", self.draws.below(2)) } } }),
            3 => json!({ "metadata": { "name": "other" } }),
            4 => json!({ "metadata": {} }),
            _ => json!({ "spec": target.spec_change(&mut self.draws) }),
        };
        self.precondition(&mut patch);
        let media = if self.draws.percent(50) { MERGE } else { STRATEGIC };
        operation.typed(media).json(patch)
    }

    fn json_patch(&mut self) -> Value {
        match self.draws.below(6) {
            0 => {
                json!([{ "op": "test", "path": "/metadata/resourceVersion", "value": "$rv" }, { "op": "add", "path": "/metadata/labels/j", "value": "1" }])
            }
            1 => {
                json!([{ "op": "test", "path": "/metadata/uid", "value": "$uid" }, { "op": "replace", "path": "/metadata/labels/seq", "value": self.sequence }])
            }
            2 => json!([{ "op": "remove", "path": "/metadata/finalizers" }]),
            3 => json!([{ "op": "remove", "path": "/metadata/labels/app" }]),
            4 => json!([{ "op": "add", "path": "/metadata/finalizers", "value": ["example.com/j"] }]),
            _ => json!([{ "op": "add", "path": "/metadata/finalizers/-", "value": "example.com/k" }]),
        }
    }

    fn status(&mut self, target: Target, object: &str) -> Operation {
        if !target.has_status() {
            return self.patch(target, object);
        }
        let path = format!("{object}/status");
        let status = target.status(&mut self.draws);
        if self.draws.percent(20) {
            let otherwise = json!({ "metadata": { "name": "nothing" } });
            let mut edit = json!({ "status": status });
            if self.draws.percent(30) {
                edit["metadata"] = json!({ "labels": { "by-status": "1" }, "resourceVersion": null });
            }
            let back = usize::from(self.draws.percent(20));
            let body = Body::Stale { path: object.to_owned(), back, edit, otherwise };
            return Operation { body, ..Operation::new("PUT", &path, object) };
        }
        let mut patch = json!({ "status": status });
        self.precondition(&mut patch);
        if self.draws.percent(10) {
            patch["metadata"]["annotations"] = json!({ "example.com/by-status": "1" });
        }
        if self.draws.percent(5) {
            patch["metadata"]["finalizers"] = Value::Null;
        }
        let media = if self.draws.percent(30) { MERGE } else { STRATEGIC };
        Operation::new("PATCH", &path, object).typed(media).json(patch)
    }

    fn delete(&mut self, object: &str) -> Operation {
        let operation = Operation::new("DELETE", object, object);
        match self.draws.below(10) {
            0 => operation,
            1 => operation.query("gracePeriodSeconds=0"),
            _ => operation.json(delete_options(&mut self.draws)),
        }
    }

    fn delete_collection(&mut self, collection: &str) -> Operation {
        let selector = format!("labelSelector=seq%3D{}", self.sequence);
        let body = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": self.draws.below(2) });
        Operation::new("DELETE", collection, "").query(selector).json(body)
    }

    /// Eviction and binding.
    fn act(&mut self, object: &str, name: &str) -> Operation {
        if self.draws.percent(25) {
            let node = format!("{}-a", self.sequence);
            let mut body = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name }, "target": { "apiVersion": "v1", "kind": "Node", "name": node } });
            if self.draws.percent(30) {
                body["metadata"]["uid"] = "$uid".into();
            }
            return Operation::new("POST", &format!("{object}/binding"), object).json(body);
        }
        let mut body = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name } });
        if self.draws.percent(60) {
            body["deleteOptions"] = delete_options(&mut self.draws);
        }
        let operation = Operation::new("POST", &format!("{object}/eviction"), object).json(body);
        if self.draws.percent(10) { operation.query("dryRun=All") } else { operation }
    }

    fn scale(&mut self, object: &str) -> Operation {
        let path = format!("{object}/scale");
        if self.draws.percent(20) {
            let group = ["/apis/apps/v1", "/apis/policy/v1", "/api/v1", "/apis/nothing.example.com/v1"];
            return Operation::new("GET", self.draws.choose(&group).copied().unwrap_or_default(), "");
        }
        // Read only: in the real server, the first write of a scale is a change even if it changes nothing, because of
        // field ownership.
        Operation::new("GET", &path, object)
    }

    fn finalizers(&mut self, object: &str) -> Operation {
        let value = match self.draws.below(4) {
            0 => json!(["example.com/hold"]),
            1 => json!(["example.com/other", "example.com/hold"]),
            _ => Value::Null,
        };
        let media = if self.draws.percent(60) { MERGE } else { STRATEGIC };
        Operation::new("PATCH", object, object).typed(media).json(json!({ "metadata": { "finalizers": value } }))
    }

    fn nonsense(&mut self, collection: &str, object: &str) -> Operation {
        match self.draws.below(5) {
            0 => Operation::new("PATCH", object, object).typed("text/plain").json(json!({})),
            1 => Operation { body: Body::Garbage, ..Operation::new("POST", collection, "") },
            2 => Operation { body: Body::Garbage, ..Operation::new("PATCH", object, object).typed(MERGE) },
            3 => Operation::new("GET", collection, "").query("fieldSelector=spec.nothing%3Dx"),
            _ => Operation::new("GET", collection, "").query("continue=nonsense"),
        }
    }
}

/// The options of a deletion or an eviction.
fn delete_options(draws: &mut Draws) -> Value {
    let mut options = json!({ "apiVersion": "v1", "kind": "DeleteOptions" });
    let grace = [None, None, Some(-1), Some(0), Some(0), Some(1), Some(30), Some(60)];
    if let Some(seconds) = draws.choose(&grace).copied().flatten() {
        options["gracePeriodSeconds"] = seconds.into();
    }
    match draws.below(8) {
        0 => options["preconditions"] = json!({ "uid": "$uid" }),
        1 => options["preconditions"] = json!({ "uid": "$uid", "resourceVersion": "$rv" }),
        2 => options["preconditions"] = json!({ "resourceVersion": "$rv:1" }),
        3 => options["preconditions"] = json!({ "uid": "00000000-0000-4000-8000-000000000000" }),
        _ => {}
    }
    match draws.below(16) {
        0 => options["propagationPolicy"] = "Foreground".into(),
        1 => options["propagationPolicy"] = "Orphan".into(),
        2 => options["propagationPolicy"] = "Background".into(),
        3 => options["dryRun"] = json!(["All"]),
        4 => options["propagationPolicy"] = "Sideways".into(),
        5 => options["orphanDependents"] = false.into(),
        _ => {}
    }
    options
}
