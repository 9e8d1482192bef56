//! How pod-safety was installed, so that the commands of remedies can be copied without change.

use serde_json::Value;

/// What the objects of pod-safety were created by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// Its Deployments were not read.
    Unread,
    /// There are none.
    Absent,
    /// `pod-safety manifests`, or another program than Helm.
    Manifests,
    /// Helm.
    Helm,
}

/// How to apply the shipped objects without Helm.
const APPLY: &str = "pod-safety manifests | kubectl apply --server-side -f -";

/// The release of the chart, where one was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    release: String,
    namespace: String,
    origin: Origin,
    /// How many replicas its Deployment wants; 0: not known.
    replicas: u64,
}

impl Default for Installation {
    /// The names that the documentation uses.
    fn default() -> Self {
        let (release, namespace) = ("pod-safety".to_owned(), "pod-safety".to_owned());
        Self { release, namespace, origin: Origin::Unread, replicas: 0 }
    }
}

impl Installation {
    /// The installation by the labels of its pods, or the names that the documentation uses.
    #[must_use]
    pub fn from_pods(pods: &[Value]) -> Self {
        let read = |pod: &Value| {
            let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
            let release = text("/metadata/labels/app.kubernetes.io~1instance")?;
            Some(Self { release, namespace: text("/metadata/namespace")?, ..Self::default() })
        };
        pods.iter().find_map(read).unwrap_or_default()
    }

    /// The installation by the labels of these Deployments, which are all of pod-safety, and of one of its CRDs.
    #[must_use]
    pub fn from_deployments(deployments: &[Value], crd: Option<&Value>) -> Self {
        const MANAGER: &str = "/metadata/labels/app.kubernetes.io~1managed-by";
        let replicas = |one: &Value| one.pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(1);
        let read = |one: &Value| {
            let labels = &one["metadata"]["labels"];
            let text = |value: &Value| value.as_str().map(str::to_owned);
            let is_helms = labels["app.kubernetes.io/managed-by"] == "Helm";
            let release = text(&labels["app.kubernetes.io/instance"]).filter(|_| is_helms)?;
            let namespace = text(&one["metadata"]["namespace"])?;
            Some(Self { release, namespace, origin: Origin::Helm, replicas: replicas(one) })
        };
        // A CRD of Helm stays when its release is uninstalled, and the next release takes it over.
        let is_foreign = |crd: &Value| crd.pointer(MANAGER).is_none_or(|manager| manager != "Helm");
        let origin = match deployments.is_empty() && !crd.is_some_and(is_foreign) {
            true => Origin::Absent,
            false => Origin::Manifests,
        };
        let other = || Self { origin, replicas: deployments.first().map_or(0, replicas), ..Self::default() };
        deployments.iter().find_map(read).unwrap_or_else(other)
    }

    /// The namespace of its pods.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The command that sets these values of the chart, to be run in a checkout of the repository.
    #[must_use]
    pub fn helm_command(&self, values: &str) -> String {
        let Self { release, namespace, .. } = self;
        let (verb, keeps) = match self.origin {
            Origin::Absent => ("install", "--create-namespace --set image.tag=TAG"),
            Origin::Manifests => ("install", "--take-ownership --force-conflicts --set image.tag=TAG"),
            Origin::Unread | Origin::Helm => ("upgrade", "--reset-then-reuse-values"),
        };
        format!("helm {verb} {release} charts/pod-safety --namespace {namespace} {keeps} --set {values}")
    }

    /// Nothing of pod-safety is installed.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        self.origin == Origin::Absent
    }

    /// How many replicas its Deployment wants; 0: not known.
    #[must_use]
    pub const fn replicas(&self) -> u64 {
        self.replicas
    }

    /// How to apply the shipped objects again; `values`: those with which the chart has them. Of a release of Helm, only
    /// the chart may create them: Helm refuses to upgrade where `kubectl apply` created an object of the release.
    #[must_use]
    pub fn apply_command(&self, values: &str) -> String {
        match self.origin {
            Origin::Helm => self.helm_command(values),
            Origin::Manifests => APPLY.to_owned(),
            Origin::Unread | Origin::Absent => format!("{}; without Helm: {APPLY}", self.helm_command(values)),
        }
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
            let command = Installation::from_deployments(&deployments, None).helm_command("mode=replace");
            assert!(command.starts_with(prefix) && command.ends_with(" --set mode=replace"), "{command}");
        }
        assert!(Installation::default().helm_command("mode=guard").starts_with("helm upgrade pod-safety "));
        let of_pods = Installation::from_pods(&[json!({}), deployment("")]).helm_command("mode=guard");
        assert!(of_pods.starts_with("helm upgrade safety charts/pod-safety --namespace ops --reset"), "{of_pods}");
    }

    /// `manifests | kubectl apply` took objects that the next `helm upgrade` needs, and `helm install` failed for its
    /// missing namespace and image.
    #[test]
    fn bug_the_command_to_apply_the_objects_was_not_that_of_the_installation() {
        let managed = |manager: &str| {
            json!({ "metadata": { "namespace": "ops", "labels": {
                "app.kubernetes.io/managed-by": manager, "app.kubernetes.io/instance": "safety" } } })
        };
        let (helms, other) = (managed("Helm"), json!({ "metadata": {} }));
        for (deployments, crd, commands, apply) in [
            (vec![helms.clone()], Some(&other), "helm upgrade safety charts/pod-safety --namespace ops --reset", false),
            (vec![], None, "helm install pod-safety charts/pod-safety --namespace pod-safety --create-namespace", true),
            (vec![], Some(&helms), "helm install pod-safety charts/pod-safety --namespace pod-safety --create-", true),
            (vec![], Some(&other), APPLY, true),
            (vec![other.clone()], None, APPLY, true),
        ] {
            let command = Installation::from_deployments(&deployments, crd).apply_command("rbac.create=true");
            assert!(command.starts_with(commands) && command.contains(APPLY) == apply, "{command}");
            assert_eq!(command.contains("install"), command.contains("--set image.tag=TAG --set rbac"), "{command}");
        }
        let take = Installation::from_deployments(&[], Some(&other)).helm_command("mode=guard");
        assert!(take.contains(" --take-ownership --force-conflicts --set image.tag=TAG --set mode=guard"), "{take}");
    }
}
