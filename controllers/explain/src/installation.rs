//! How pod-safety was installed, so that the commands of remedies can be copied without change.

use serde_json::Value;

/// The release of the chart, where one was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    release: String,
    namespace: String,
    /// Deployments were read, and none of them belongs to a release.
    is_new: bool,
}

impl Default for Installation {
    /// The names that the documentation uses.
    fn default() -> Self {
        Self { release: "pod-safety".to_owned(), namespace: "pod-safety".to_owned(), is_new: false }
    }
}

impl Installation {
    /// The installation by the labels of its pods, or the names that the documentation uses.
    #[must_use]
    pub fn from_pods(pods: &[Value]) -> Self {
        let read = |pod: &Value| {
            let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
            let release = text("/metadata/labels/app.kubernetes.io~1instance")?;
            Some(Self { release, namespace: text("/metadata/namespace")?, is_new: false })
        };
        pods.iter().find_map(read).unwrap_or_default()
    }

    /// The installation by the labels of these Deployments, which are all of pod-safety.
    #[must_use]
    pub fn from_deployments(deployments: &[Value]) -> Self {
        let read = |one: &Value| {
            let labels = &one["metadata"]["labels"];
            let text = |value: &Value| value.as_str().map(str::to_owned);
            let is_helms = labels["app.kubernetes.io/managed-by"] == "Helm";
            let release = text(&labels["app.kubernetes.io/instance"]).filter(|_| is_helms)?;
            Some(Self { release, namespace: text(&one["metadata"]["namespace"])?, is_new: false })
        };
        deployments.iter().find_map(read).unwrap_or(Self { is_new: true, ..Self::default() })
    }

    /// The namespace of its pods.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The command that sets these values of the chart, to be run in a checkout of the repository.
    #[must_use]
    pub fn helm_command(&self, values: &str) -> String {
        let Self { release, namespace, is_new } = self;
        let (verb, keeps) = match is_new {
            true => ("install", "--take-ownership --force-conflicts"),
            false => ("upgrade", "--reset-then-reuse-values"),
        };
        format!("helm {verb} {release} charts/pod-safety --namespace {namespace} {keeps} --set {values}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bug_a_command_had_dots_in_place_of_release_and_namespace() {
        let deployment = |manager: &str| {
            let labels = json!({ "app.kubernetes.io/managed-by": manager, "app.kubernetes.io/instance": "safety" });
            json!({ "metadata": { "namespace": "ops", "labels": labels } })
        };
        for (deployments, prefix) in [
            (vec![deployment("Helm")], "helm upgrade safety charts/pod-safety --namespace ops --reset"),
            (vec![deployment("argo")], "helm install pod-safety charts/pod-safety --namespace pod-safety --take"),
            (vec![], "helm install pod-safety "),
        ] {
            let command = Installation::from_deployments(&deployments).helm_command("mode=replace");
            assert!(command.starts_with(prefix) && command.ends_with(" --set mode=replace"), "{command}");
        }
        assert!(Installation::default().helm_command("mode=guard").starts_with("helm upgrade pod-safety "));
        let of_pods = Installation::from_pods(&[json!({}), deployment("")]).helm_command("mode=guard");
        assert!(of_pods.starts_with("helm upgrade safety charts/pod-safety --namespace ops --reset"), "{of_pods}");
    }
}
