//! Whether a node's own kubelet can make a device select it.
//!
//! Danger note: a kubelet may write most labels of its Node. Where a device does the same for every node that its
//! `nodeSelector` selects, a kubelet that takes the label of a neighbour has the neighbour's machine switched.

use pod_safety_transport::is_secret_name;

use super::{FenceDeviceSpec, IdentityCheck, NodeSelector, ReachedBy, SecretParameter};

/// The domain of labels that no kubelet may set, by the admission plugin NodeRestriction.
pub const PROTECTED: &str = "node-restriction.kubernetes.io";

/// The labels below `kubernetes.io` and `k8s.io` that NodeRestriction allows kubelets to set (`IsKubeletLabel` of
/// k8s.io/kubelet).
const KUBELET_LABELS: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Whether it contains a placeholder for a fact of the node.
pub fn is_template(text: &str) -> bool {
    text.contains("{{")
}

fn domain_of(key: &str) -> &str {
    key.split_once('/').map_or("", |(domain, _)| domain)
}

/// Whether `domain` is `parent`, or below it.
fn is_within(domain: &str, parent: &str) -> bool {
    domain.strip_suffix(parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Whether the label is below [`PROTECTED`].
pub fn is_protected(key: &str) -> bool {
    is_within(domain_of(key), PROTECTED)
}

/// Whether NodeRestriction allows a kubelet to set this label on its own Node.
fn kubelet_may_set(key: &str) -> bool {
    let within = |parent| is_within(domain_of(key), parent);
    let of_kubernetes = within("kubernetes.io") || within("k8s.io");
    let of_kubelets = KUBELET_LABELS.contains(&key) || within("kubelet.kubernetes.io") || within("node.kubernetes.io");
    !is_protected(key) && (!of_kubernetes || of_kubelets)
}

impl NodeSelector {
    fn kubelet_settable_key(&self) -> Option<&str> {
        let labels = self.match_labels.keys();
        let mut keys = labels.chain(self.match_expressions.iter().map(|one| &one.key));
        keys.find(|key| kubelet_may_set(key)).map(String::as_str)
    }
}

impl FenceDeviceSpec {
    /// The label by which a kubelet can make this device select its node, although the device then switches the same
    /// machine as for another node. `None`: it switches another machine, or no kubelet can set the labels.
    #[must_use]
    pub fn kubelet_settable_label(&self, node: &str) -> Option<&str> {
        self.node_selector.kubelet_settable_key().filter(|_| self.switches_same_machine_for(node))
    }

    /// Whether it switches the same machine for this node as for others: no parameter contains a fact of the node.
    #[must_use]
    pub fn switches_same_machine_for(&self, node: &str) -> bool {
        match self.driver.properties().reached_by {
            ReachedBy::Parameters => !self.depends_on_node(node),
            // The object is that of the node.
            ReachedBy::Object | ReachedBy::Operator => false,
        }
    }

    /// Whether a parameter that names a machine contains a fact of this node. A login names no machine.
    fn depends_on_node(&self, node: &str) -> bool {
        let secret = |one: &SecretParameter| {
            let is_login = is_secret_name(&one.parameter) || one.parameter == "username";
            is_template(&one.secret) && !is_login
        };
        self.parameters.values().any(|value| is_template(value))
            || self.node_parameters.get(node).is_some_and(|own| !own.is_empty())
            || self.secret_parameters.iter().any(secret)
    }

    /// Whether it reports and switches only the machine whose identity matches that of the Node.
    #[must_use]
    pub fn requires_machine_identity(&self) -> bool {
        self.driver.properties().compares_identity && self.identity_check == IdentityCheck::Required
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `getForbiddenLabels` of NodeRestriction has it.
    #[test]
    fn a_kubelet_may_set_the_labels_that_node_restriction_allows() {
        for (key, may) in [
            ("rack", true),
            ("example.com/rack", true),
            ("kubernetes.io/hostname", true),
            ("topology.kubernetes.io/zone", true),
            ("kubelet.kubernetes.io/a", true),
            ("x.node.kubernetes.io/a", true),
            ("notkubernetes.io/a", true),
            ("node-restriction.kubernetes.io", true),
            ("node-restriction.kubernetes.io/bmc", false),
            ("dc.node-restriction.kubernetes.io/bmc", false),
            ("node-role.kubernetes.io/control-plane", false),
            ("kubernetes.io/role", false),
            ("topology.k8s.io/row", false),
        ] {
            assert_eq!(kubelet_may_set(key), may, "{key}");
        }
    }

    #[test]
    fn a_machine_parameter_depends_on_the_node_and_a_login_does_not() {
        let of = |more: serde_json::Value| {
            let mut spec = serde_json::json!({ "driver": "Agent", "agent": "fence_a",
                "nodeSelector": { "matchLabels": { "rack": "7" } } });
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let spec: FenceDeviceSpec = serde_json::from_value(spec).unwrap();
            spec.kubelet_settable_label("n").map(str::to_owned)
        };
        let secret = |parameter: &str| serde_json::json!({ "secretParameters": [{ "parameter": parameter, "secret": "bmc-{{.Node.Name}}", "key": "k" }] });
        assert_eq!(of(secret("password")).as_deref(), Some("rack"));
        assert_eq!(of(secret("username")).as_deref(), Some("rack"));
        assert_eq!(of(secret("ip")), None);
        assert_eq!(of(serde_json::json!({ "nodeParameters": { "n": {} } })).as_deref(), Some("rack"));
        assert_eq!(of(serde_json::json!({ "driver": "External" })), None);
    }
}
