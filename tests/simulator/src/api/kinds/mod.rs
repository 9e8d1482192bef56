//! The kinds that are served, and what each does differently from the others: one
//! table instead of a registry per kind.
//!
//! A kind's own rules are in the module of its subject; what they share is asked
//! in this order, as `k8s.io/apiserver/pkg/registry` does: [`shape`] (decode,
//! drop what is empty), [`defaults`], [`prepare_create`] or [`prepare_update`],
//! [`metadata`] and [`validate`].

pub(crate) mod defaults;
mod eviction_status;
pub(crate) mod lifecycle;
pub(crate) mod metadata;
mod node;
mod pod;
mod policy;
mod rules;
mod schema;
pub(crate) mod shape;
mod storage;
mod workload;

pub(crate) use pod::{grace, is_terminal, set_condition};
pub(crate) use workload::{scale, scaled};

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::failure::Cause;
use super::fields;

/// Which rules hold for a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rules {
    /// `v1 Pod`.
    Pod,
    /// `v1 Node`.
    Node,
    /// `coordination.k8s.io/v1 Lease`.
    Lease,
    /// `v1 Event`.
    Event,
    /// `v1 Namespace`.
    Namespace,
    /// `policy/v1 PodDisruptionBudget`.
    Budget,
    /// `v1 PersistentVolume`.
    Volume,
    /// `v1 PersistentVolumeClaim`.
    Claim,
    /// `storage.k8s.io/v1 VolumeAttachment`.
    Attachment,
    /// `apps/v1 StatefulSet`.
    StatefulSet,
    /// `apps/v1 ReplicaSet`.
    ReplicaSet,
    /// `apps/v1 Deployment`.
    Deployment,
    /// `v1 ReplicationController`.
    Replication,
    /// `lifecycle.k8s.io/v1alpha1 EvictionRequest`.
    EvictionRequest,
    /// `lifecycle.k8s.io/v1alpha1 Eviction`.
    Eviction,
    /// A custom resource, with a status subresource.
    Custom,
}

/// A kind as the API serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The API group; empty for the core.
    pub group: String,
    /// The version.
    pub version: String,
    /// The name in paths.
    pub plural: String,
    /// The name in objects.
    pub kind: String,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// What is special about it.
    pub rules: Rules,
    /// The schema of its definition, if it is a custom resource that has one.
    pub schema: Option<Arc<Value>>,
    /// The `spec` of its definition, if it has one.
    pub definition: Option<Arc<Value>>,
}

/// Which part of an object a write is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All but the status.
    Main,
    /// The status, and as far as a kind lets it, the metadata.
    Status,
    /// `namespaces/finalize`.
    Finalize,
}

impl Kind {
    fn new(group: &str, version: &str, plural: &str, kind: &str, namespaced: bool, rules: Rules) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            kind: kind.to_owned(),
            namespaced,
            rules,
            schema: None,
            definition: None,
        }
    }

    /// Our own kinds, as their definitions have them.
    #[must_use]
    pub fn custom_resources() -> Vec<Self> {
        let of = |crd: Value| {
            let text = |path: &str| crd.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
            let names = |key: &str| text(&format!("/spec/names/{key}"));
            let namespaced = text("/spec/scope") == "Namespaced";
            let schema = crd.pointer("/spec/versions/0/schema/openAPIV3Schema").cloned().map(Arc::new);
            let definition = crd.get("spec").cloned().map(Arc::new);
            Self { schema, definition, ..Self::custom(&names("plural"), &names("kind"), namespaced) }
        };
        pod_safety_shared::api::crds().into_iter().map(of).collect()
    }

    /// A custom resource of our group, such as `NodeFence`, without a schema: for what is about any.
    #[must_use]
    pub fn custom(plural: &str, kind: &str, namespaced: bool) -> Self {
        Self::new("pod-safety.dev", "v1alpha1", plural, kind, namespaced, Rules::Custom)
    }

    /// The kinds of the Eviction API, which a feature gate and `--runtime-config` switch on.
    #[must_use]
    pub fn lifecycle() -> Vec<Self> {
        let kind = |plural, kind, rules| Self::new(lifecycle::GROUP, "v1alpha1", plural, kind, true, rules);
        vec![
            kind("evictionrequests", "EvictionRequest", Rules::EvictionRequest),
            kind("evictions", "Eviction", Rules::Eviction),
        ]
    }

    /// The kinds of Kubernetes itself that are served.
    #[must_use]
    pub fn built_in() -> Vec<Self> {
        vec![
            Self::new("", "v1", "pods", "Pod", true, Rules::Pod),
            Self::new("", "v1", "nodes", "Node", false, Rules::Node),
            Self::new("coordination.k8s.io", "v1", "leases", "Lease", true, Rules::Lease),
            Self::new("", "v1", "events", "Event", true, Rules::Event),
            Self::new("", "v1", "namespaces", "Namespace", false, Rules::Namespace),
            Self::new("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true, Rules::Budget),
            Self::new("", "v1", "persistentvolumes", "PersistentVolume", false, Rules::Volume),
            Self::new("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true, Rules::Claim),
            Self::new("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", false, Rules::Attachment),
            Self::new("apps", "v1", "statefulsets", "StatefulSet", true, Rules::StatefulSet),
            Self::new("apps", "v1", "replicasets", "ReplicaSet", true, Rules::ReplicaSet),
            Self::new("apps", "v1", "deployments", "Deployment", true, Rules::Deployment),
            Self::new("", "v1", "replicationcontrollers", "ReplicationController", true, Rules::Replication),
        ]
    }

    /// `pods`, or `leases.coordination.k8s.io`.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `v1`, or `coordination.k8s.io/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Whether a PUT without a resourceVersion replaces whatever is there.
    pub(crate) const fn unconditional_update(&self) -> bool {
        !matches!(self.rules, Rules::Lease | Rules::Budget | Rules::Attachment | Rules::Custom)
            && !is_lifecycle(self.rules)
    }

    /// Whether a PUT to a free name creates.
    pub(crate) const fn create_on_update(&self) -> bool {
        matches!(self.rules, Rules::Lease | Rules::Event)
    }

    /// Whether a deletion answers with the object instead of a `Status`.
    pub(crate) const fn returns_deleted(&self) -> bool {
        matches!(self.rules, Rules::Pod | Rules::Volume | Rules::Claim | Rules::Attachment | Rules::Namespace)
    }

    pub(crate) fn has_status(&self) -> bool {
        match self.rules {
            Rules::Lease | Rules::Event => false,
            Rules::Custom => self.schema.as_ref().is_none_or(|schema| schema.pointer("/properties/status").is_some()),
            _ => true,
        }
    }

    /// Whether it says how many pods it wants, and has a `scale`.
    pub(crate) const fn has_scale(&self) -> bool {
        is_workload(self.rules)
    }

    /// Strategic merge needs merge keys, which custom resources have none of.
    pub(crate) const fn has_strategic_merge(&self) -> bool {
        !matches!(self.rules, Rules::Custom)
    }
}

const fn is_workload(rules: Rules) -> bool {
    matches!(rules, Rules::StatefulSet | Rules::ReplicaSet | Rules::Deployment | Rules::Replication)
}

const fn is_lifecycle(rules: Rules) -> bool {
    matches!(rules, Rules::EvictionRequest | Rules::Eviction)
}

/// What the server sets on a new object, whatever its creator wrote.
pub(crate) fn prepare_create(kind: &Kind, object: &mut Value, now: Timestamp) {
    match kind.rules {
        Rules::Pod => pod::prepare_create(object),
        Rules::Node => node::prepare_create(object),
        Rules::Budget => policy::prepare_create(object),
        Rules::Volume | Rules::Claim | Rules::Attachment => storage::prepare_create(kind.rules, object, now),
        rules if is_workload(rules) => workload::prepare_create(rules, object),
        rules if is_lifecycle(rules) => lifecycle::prepare_create(object),
        Rules::Namespace => {
            fields::set(object, &[], "status", serde_json::json!({ "phase": "Active" }));
            let finalizers = fields::texts(object, &["spec", "finalizers"]);
            if !finalizers.contains(&"kubernetes") {
                let mut all: Vec<Value> = fields::list(object, &["spec", "finalizers"]).to_vec();
                all.push("kubernetes".into());
                fields::set(object, &["spec"], "finalizers", all);
            }
        }
        Rules::Custom => {
            fields::remove(object, &[], "status");
            fields::set(object, &["metadata"], "generation", 1);
        }
        _ => {}
    }
}

/// Takes from `new` what this write may not change.
pub(crate) fn prepare_update(kind: &Kind, part: Part, new: &mut Value, old: &Value, now: Timestamp) {
    match (kind.rules, part) {
        (Rules::Pod, Part::Main) => pod::prepare_update(new, old),
        (Rules::Pod, _) => pod::prepare_status(new, old),
        (Rules::Volume | Rules::Claim | Rules::Attachment, _) => {
            storage::prepare_update(kind.rules, part, new, old, now);
        }
        (Rules::Lease | Rules::Event, _) => {}
        (Rules::Namespace, Part::Finalize) => fields::copy(new, old, &[], "status"),
        (Rules::Namespace, Part::Status) => {
            fields::copy(new, old, &[], "spec");
        }
        (Rules::Namespace, Part::Main) => {
            fields::copy(new, old, &["spec"], "finalizers");
            fields::copy(new, old, &[], "status");
        }
        (Rules::Custom, Part::Status) => {
            // Of the writer's object nothing but the status is taken.
            let status = new.get("status").cloned();
            *new = old.clone();
            match status {
                Some(status) => fields::set(new, &[], "status", status),
                None => fields::remove(new, &[], "status"),
            }
        }
        (rules, Part::Status) if is_lifecycle(rules) => lifecycle::prepare_status(new, old),
        (Rules::Deployment, Part::Status) => {
            fields::copy(new, old, &[], "spec");
            fields::copy(new, old, &["metadata"], "labels");
        }
        (_, Part::Status | Part::Finalize) => fields::copy(new, old, &[], "spec"),
        (_, Part::Main) => {
            fields::copy(new, old, &[], "status");
            bump_generation(kind.rules, new, old);
        }
    }
}

fn bump_generation(rules: Rules, new: &mut Value, old: &Value) {
    let counts = matches!(rules, Rules::Budget | Rules::Custom) || is_workload(rules) || is_lifecycle(rules);
    let changed = if rules == Rules::Custom {
        without_metadata(new) != without_metadata(old)
    } else {
        // A rollback was once asked for by annotations of a Deployment.
        let annotations = |object: &Value| fields::at(object, &["metadata", "annotations"]).cloned();
        let asked = rules == Rules::Deployment && annotations(new) != annotations(old);
        asked || new.get("spec") != old.get("spec")
    };
    if counts && changed {
        let generation = fields::number(old, &["metadata", "generation"]).unwrap_or(0);
        fields::set(new, &["metadata"], "generation", generation + 1);
    }
}

fn without_metadata(object: &Value) -> Value {
    let mut rest = object.clone();
    fields::remove(&mut rest, &[], "metadata");
    fields::remove(&mut rest, &[], "status");
    rest
}

/// What is wrong with a new object.
pub(crate) fn validate_create(kind: &Kind, object: &Value) -> Vec<Cause> {
    match kind.rules {
        Rules::Pod => pod::validate_create(object),
        Rules::Node => node::validate(object, None),
        Rules::Lease => lease(object),
        Rules::Budget => policy::validate(object),
        Rules::Volume | Rules::Claim | Rules::Attachment => storage::validate_create(kind.rules, object),
        Rules::Event => event(object),
        Rules::Custom => custom(kind, object, None),
        rules if is_workload(rules) => workload::validate_create(rules, object),
        rules if is_lifecycle(rules) => lifecycle::validate_create(kind, object),
        _ => Vec::new(),
    }
}

/// What is wrong with a change, at this moment of the server's clock.
pub(crate) fn validate_update(kind: &Kind, part: Part, new: &Value, old: &Value, now: Timestamp) -> Vec<Cause> {
    match (kind.rules, part) {
        (rules, part) if is_lifecycle(rules) => lifecycle::validate_update(kind, part, new, old, now),
        (Rules::Pod, Part::Main) => pod::validate_update(new, old),
        (Rules::Pod, _) => pod::validate_status(new, old),
        (Rules::Node, _) => node::validate(new, Some(old)),
        (Rules::Lease, _) => lease(new),
        (Rules::Budget, Part::Main) => policy::validate(new),
        (Rules::Budget, _) => policy::validate_status(new),
        (Rules::Volume | Rules::Claim | Rules::Attachment, _) => storage::validate_update(kind.rules, part, new, old),
        (Rules::Event, _) => event(new),
        (Rules::Custom, _) => custom(kind, new, Some(old)),
        (rules, Part::Main) if is_workload(rules) => workload::validate_update(rules, new, old),
        (rules, _) if is_workload(rules) => workload::validate_status(rules, new),
        _ => Vec::new(),
    }
}

fn custom(kind: &Kind, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    kind.schema.as_ref().map(|schema| schema::validate(schema, object, old)).unwrap_or_default()
}

fn lease(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if fields::number(object, &["spec", "leaseDurationSeconds"]).is_some_and(|seconds| seconds <= 0) {
        causes.push(Cause::invalid("spec.leaseDurationSeconds", "must be greater than 0"));
    }
    if fields::number(object, &["spec", "leaseTransitions"]).is_some_and(|count| count < 0) {
        causes.push(Cause::invalid("spec.leaseTransitions", "must be greater than or equal to 0"));
    }
    causes
}

/// Events are checked against their own namespace only (the rules of the old
/// `v1` API).
fn event(object: &Value) -> Vec<Cause> {
    let about = fields::text(object, &["involvedObject", "namespace"]);
    let own = fields::text(object, &["metadata", "namespace"]);
    let fits = about == own || (about.is_empty() && (own == "default" || own == "kube-system"));
    if fits { Vec::new() } else { vec![Cause::invalid("involvedObject.namespace", "does not match event.namespace")] }
}

#[cfg(test)]
mod tests;
