//! The resource and the object name that a request path names.

/// The resources that this process uses, subresources included. The set is closed, because the names label metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Resource {
    /// `pods`.
    Pods,
    /// `pods/status`.
    #[strum(serialize = "pods/status")]
    PodStatus,
    /// `pods/eviction`.
    #[strum(serialize = "pods/eviction")]
    PodEviction,
    /// `nodes`.
    Nodes,
    /// `nodes/status`.
    #[strum(serialize = "nodes/status")]
    NodeStatus,
    /// `leases`.
    Leases,
    /// `events`.
    Events,
    /// `volumeattachments`.
    VolumeAttachments,
    /// `poddisruptionbudgets`.
    #[strum(serialize = "poddisruptionbudgets")]
    Budgets,
    /// `poddisruptionbudgets/status`.
    #[strum(serialize = "poddisruptionbudgets/status")]
    BudgetStatus,
    /// `deployments`, `replicasets`, `statefulsets`, `replicationcontrollers`.
    Workloads,
    /// `scale` of anything.
    Scale,
    /// Anything else.
    Other,
}

impl Resource {
    /// The name in metrics and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A parsed request path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape<'a> {
    /// The resource.
    pub resource: Resource,
    /// The object's name; `None`: the whole collection.
    pub name: Option<&'a str>,
}

impl<'a> Shape<'a> {
    /// Parses a path such as `/api/v1/namespaces/NS/pods/NAME/status`.
    #[must_use]
    pub fn from_path(path: &'a str) -> Self {
        let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
        let group = match parts.next() {
            Some("api") => "",
            Some("apis") => parts.next().unwrap_or_default(),
            _ => return Self { resource: Resource::Other, name: None },
        };
        let _version = parts.next();
        if parts.peek() == Some(&"namespaces") {
            parts.next();
            parts.next();
        }
        let (plural, name, subresource) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
        let resource = match (group, plural, subresource) {
            ("", "pods", None) => Resource::Pods,
            ("", "pods", Some("status")) => Resource::PodStatus,
            ("", "pods", Some("eviction")) => Resource::PodEviction,
            ("", "nodes", None) => Resource::Nodes,
            ("", "nodes", Some("status")) => Resource::NodeStatus,
            ("coordination.k8s.io", "leases", None) => Resource::Leases,
            ("" | "events.k8s.io", "events", None) => Resource::Events,
            ("storage.k8s.io", "volumeattachments", None) => Resource::VolumeAttachments,
            ("policy", "poddisruptionbudgets", None) => Resource::Budgets,
            ("policy", "poddisruptionbudgets", Some("status")) => Resource::BudgetStatus,
            ("apps", "deployments" | "replicasets" | "statefulsets", None) | ("", "replicationcontrollers", None) => {
                Resource::Workloads
            }
            (_, _, Some("scale")) => Resource::Scale,
            _ => Resource::Other,
        };
        Self { resource, name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_paths_are_parsed() {
        for (path, resource, name) in [
            ("/api/v1/pods", Resource::Pods, None),
            ("/api/v1/namespaces/ns/pods/a", Resource::Pods, Some("a")),
            ("/api/v1/namespaces/ns/pods/a/status", Resource::PodStatus, Some("a")),
            ("/api/v1/namespaces/ns/pods/a/eviction", Resource::PodEviction, Some("a")),
            ("/api/v1/namespaces/ns/pods/a/exec", Resource::Other, Some("a")),
            ("/api/v1/nodes/n", Resource::Nodes, Some("n")),
            ("/api/v1/nodes/n/status", Resource::NodeStatus, Some("n")),
            ("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x", Resource::Leases, Some("x")),
            ("/apis/storage.k8s.io/v1/volumeattachments/v", Resource::VolumeAttachments, Some("v")),
            ("/apis/example.com/v1/pods/a", Resource::Other, Some("a")),
            ("/apis/policy/v1/poddisruptionbudgets", Resource::Budgets, None),
            ("/apis/policy/v1/namespaces/ns/poddisruptionbudgets/b/status", Resource::BudgetStatus, Some("b")),
            ("/apis/apps/v1/replicasets", Resource::Workloads, None),
            ("/apis/example.com/v1/namespaces/ns/dbs/d/scale", Resource::Scale, Some("d")),
            ("/readyz", Resource::Other, None),
            ("", Resource::Other, None),
        ] {
            assert_eq!(Shape::from_path(path), Shape { resource, name }, "{path}");
        }
    }
}
