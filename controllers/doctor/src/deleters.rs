//! Components that delete Nodes of machines that are gone, and whether the admission policy allows it.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use super::{Health, Installation, Symptom, healthy, symptom};

/// A component that the chart knows.
#[derive(Clone, Debug, Deserialize)]
pub struct Component {
    /// Its name in `admissionPolicies.nodeDeleters`.
    pub name: String,
    /// The users that it runs as by default.
    pub users: Vec<String>,
    /// The last part of the name of its workload, of a container, or of a part of its image.
    #[serde(default)]
    pub names: Vec<String>,
    /// Its Lease in kube-system.
    pub lease: Option<String>,
    /// An annotation that it adds to each Node.
    pub nodes: Option<String>,
}

/// The users that the policy on Nodes allows to delete Nodes that do not report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// All users: there is no such policy.
    Absent,
    /// These users.
    Present {
        /// By admissionPolicies.nodeDeleters.
        deleters: BTreeSet<String>,
        /// By admissionPolicies.exemptUsers.
        exempt: BTreeSet<String>,
        /// It denies others; else it only warns.
        denies: bool,
    },
}

impl Gate {
    /// The gate by the policies of pod-safety and their bindings.
    pub(super) fn from_policies(policies: &[Value], bindings: &[Value]) -> Self {
        match PolicyRules::from_policies(policies, bindings, "node") {
            None => Self::Absent,
            Some(PolicyRules { deleters, exempt, denies, .. }) => Self::Present { deleters, exempt, denies },
        }
    }
}

/// The rules of one policy of pod-safety: the users that it allows, and what it does to others.
pub(super) struct PolicyRules {
    exempt: BTreeSet<String>,
    deleters: BTreeSet<String>,
    tainters: BTreeSet<String>,
    pub(super) denies: bool,
}

impl PolicyRules {
    /// The rules of the policy whose name has this suffix.
    pub(super) fn from_policies(policies: &[Value], bindings: &[Value], end: &str) -> Option<Self> {
        let name = |policy: &Value| policy["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let end = format!("-{end}");
        let policy = policies.iter().find(|policy| name(policy).ends_with(&end))?;
        let list = |field: &str, of: &str| {
            let all = policy["spec"][field].as_array().into_iter().flatten();
            let one = all.filter(|one| one["name"] == of).find_map(|one| one["expression"].as_str());
            one.map(parse_users).unwrap_or_default()
        };
        let is_bound = |binding: &&Value| binding["spec"]["policyName"] == name(policy).as_str();
        let actions = bindings.iter().filter(is_bound).map(|binding| &binding["spec"]["validationActions"]);
        Some(Self {
            exempt: list("matchConditions", "not-exempt"),
            deleters: list("variables", "deleters"),
            tainters: list("variables", "tainters"),
            denies: actions.filter_map(Value::as_array).flatten().any(|action| action == "Deny"),
        })
    }

    /// Whether it allows this user to add the taint out-of-service, or to do what the policy denies.
    pub(super) fn allows(&self, user: &str) -> bool {
        self.exempt.contains(user) || self.tainters.contains(user)
    }
}

/// The list of strings in a CEL expression, which is a JSON list too.
fn parse_users(expression: &str) -> BTreeSet<String> {
    let list = expression.find('[').zip(expression.rfind(']'));
    let list = list.and_then(|(first, last)| expression.get(first..=last));
    list.and_then(|list| serde_json::from_str(list).ok()).unwrap_or_default()
}

/// What was read of a cluster to find components.
#[derive(Debug, Default)]
pub struct ObservedComponents {
    /// Deployments and DaemonSets.
    pub workloads: Vec<Value>,
    /// Leases in kube-system that were renewed recently.
    pub leases: BTreeSet<String>,
    /// Some Nodes.
    pub nodes: Vec<Value>,
}

/// A component that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunningComponent {
    component: String,
    /// `None`: it runs outside the cluster.
    user: Option<String>,
}

/// The components that run, and their users.
pub(super) fn find_running(components: &[Component], seen: &ObservedComponents) -> Vec<RunningComponent> {
    let mut all = Vec::new();
    for component in components {
        let is_one = |workload: &&Value| matches_component(workload, &component.names);
        let users: BTreeSet<String> = seen.workloads.iter().filter(is_one).map(user_for).collect();
        let name = || component.name.clone();
        let has_mark =
            |mark: &String| seen.nodes.iter().any(|node| node["metadata"]["annotations"].get(mark).is_some());
        let is_elsewhere = component.lease.as_ref().is_some_and(|lease| seen.leases.contains(lease))
            || component.nodes.as_ref().is_some_and(has_mark);
        if users.is_empty() && is_elsewhere {
            all.push(RunningComponent { component: name(), user: None });
        }
        all.extend(users.into_iter().map(|user| RunningComponent { component: name(), user: Some(user) }));
    }
    all
}

pub(super) fn containers_of(workload: &Value) -> impl Iterator<Item = &Value> {
    workload["spec"]["template"]["spec"]["containers"].as_array().into_iter().flatten()
}

pub(super) fn matches_component(workload: &Value, names: &[impl AsRef<str>]) -> bool {
    let image = |container: &Value| {
        let image = container["image"].as_str().unwrap_or_default();
        image.split('@').next().unwrap_or_default().split('/').map(str::to_owned).collect::<Vec<_>>()
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut candidates = vec![text(&workload["metadata"]["name"])];
    for container in containers_of(workload) {
        candidates.push(text(&container["name"]));
        // Without the tag.
        candidates.extend(image(container).iter().filter_map(|part| part.split(':').next()).map(str::to_owned));
    }
    let matches_name = |candidate: &String| {
        let rest = names.iter().filter_map(|name| candidate.strip_suffix(name.as_ref()));
        rest.into_iter().any(|rest| rest.is_empty() || rest.ends_with('-'))
    };
    workload["spec"]["replicas"] != 0 && candidates.iter().any(matches_name)
}

/// The user that deletes Nodes. A cloud controller manager may use the ServiceAccount of the node controller for it.
pub(super) fn user_for(workload: &Value) -> String {
    const OWN_ACCOUNTS: &str = "--use-service-account-credentials";
    let arguments = |container: &'_ Value| -> Vec<String> {
        let texts = |field: &str| container[field].as_array().cloned().unwrap_or_default();
        let all = texts("command").into_iter().chain(texts("args"));
        all.filter_map(|argument| argument.as_str().map(str::to_owned)).collect()
    };
    let has_own = |argument: &String| argument.starts_with(OWN_ACCOUNTS) && !argument.ends_with("=false");
    if containers_of(workload).flat_map(arguments).any(|argument| has_own(&argument)) {
        return "system:serviceaccount:kube-system:node-controller".to_owned();
    }
    let namespace = workload["metadata"]["namespace"].as_str().unwrap_or_default();
    let account = workload["spec"]["template"]["spec"]["serviceAccountName"].as_str().unwrap_or("default");
    format!("system:serviceaccount:{namespace}:{account}")
}

/// Whether each component that runs may delete Nodes that do not report.
pub(super) fn check_deleters(
    components: &[Component],
    gate: &Gate,
    running: &[RunningComponent],
    installation: &Installation,
) -> Symptom {
    const CHECK: &str = "NodeDeleters";
    const WHY: &str = "Nodes of machines that are gone stay, and so do their pods";
    let Gate::Present { deleters, exempt, denies } = gate else {
        return healthy(CHECK, "no policy limits who deletes Nodes");
    };
    let may = |user: &String| deleters.contains(user) || exempt.contains(user);
    let of = |one: &RunningComponent| components.iter().find(|component| component.name == one.component);
    let (allowed, missing): (Vec<&RunningComponent>, Vec<&RunningComponent>) =
        running.iter().partition(|one| match &one.user {
            Some(user) => may(user),
            None => of(one).is_some_and(|component| component.users.iter().all(may)),
        });
    let describe_all = |all: &[&RunningComponent]| {
        let describe = |one: &&RunningComponent| match &one.user {
            Some(user) => format!("{} ({user})", one.component),
            None => format!("{} (outside this cluster, or its workload was not found)", one.component),
        };
        all.iter().map(describe).collect::<Vec<_>>().join(", ")
    };
    if missing.is_empty() {
        return healthy(
            CHECK,
            match allowed.is_empty() {
                true => "no component that deletes Nodes was found".to_owned(),
                false => format!("may delete Nodes that do not report: {}", describe_all(&allowed)),
            },
        );
    }
    let (health, when) =
        if *denies { (Health::Problem, "") } else { (Health::Attention, "with admissionPolicies.action=Deny, ") };
    let what = format!("{when}may not delete Nodes that do not report: {}", describe_all(&missing));
    let value = chart_values(components, deleters, &missing).join(",").replace('\'', r"'\''");
    let remedy = installation.helm_command(&format!("'admissionPolicies.nodeDeleters={{{value}}}'"));
    symptom(CHECK, health, what, WHY, remedy)
}

/// `admissionPolicies.nodeDeleters` with the missing entries: components by name, where the chart knows their user.
fn chart_values(
    known_components: &[Component],
    deleters: &BTreeSet<String>,
    missing: &[&RunningComponent],
) -> Vec<String> {
    let named = |component: &&Component| {
        let is_usual = |user: &String| component.users.contains(user);
        component.users.iter().all(|user| deleters.contains(user))
            || missing.iter().any(|one| one.component == component.name && one.user.as_ref().is_none_or(is_usual))
    };
    let components: Vec<&Component> = known_components.iter().filter(named).collect();
    let is_named = |user: &&String| components.iter().any(|component| component.users.contains(user));
    let others = deleters.iter().chain(missing.iter().filter_map(|one| one.user.as_ref()));
    let others: BTreeSet<&String> = others.filter(|user| !is_named(user)).collect();
    let written = |user: &&String| if user.contains(':') { (*user).clone() } else { format!("user:{user}") };
    components.iter().map(|component| component.name.clone()).chain(others.iter().map(written)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn known_components() -> Vec<Component> {
        let component = |name: &str, users: &[&str], lease: &str| json!({ "name": name, "users": users, "names": [name], "lease": lease });
        let of = "system:serviceaccount:kube-system:";
        let ccm = [format!("{of}node-controller"), format!("{of}cloud-controller-manager")];
        let all = json!([
            component("cloud-controller-manager", &ccm.each_ref().map(String::as_str), "cloud-controller-manager"),
            component("karpenter", &["system:serviceaccount:kube-system:karpenter"], "karpenter-leader-election"),
            { "name": "cluster-api", "users": ["kubernetes-admin"], "nodes": "cluster.x-k8s.io/machine" },
        ]);
        serde_json::from_value(all).unwrap()
    }

    fn workload(namespace: &str, name: &str, image: &str, account: &str, args: &[&str]) -> Value {
        let container = json!({ "name": "manager", "image": image, "args": args });
        json!({ "metadata": { "namespace": namespace, "name": name },
            "spec": { "template": { "spec": { "serviceAccountName": account, "containers": [container] } } } })
    }

    fn policy(deleters: &[&str], exempt: &[&str], action: &str) -> Gate {
        let policy = json!({ "metadata": { "name": "ps-node" }, "spec": {
            "matchConditions": [{ "name": "not-exempt", "expression": format!("!(request.userInfo.username in {})", json!(exempt)) }],
            "variables": [{ "name": "name", "expression": "x[0]" }, { "name": "deleters", "expression": json!(deleters).to_string() }],
        } });
        let other = json!({ "metadata": { "name": "ps-fence" }, "spec": {} });
        let binding = |policy: &str, action: &str| json!({ "spec": { "policyName": policy, "validationActions": [action, "Audit"] } });
        Gate::from_policies(&[other, policy], &[binding("ps-fence", "Deny"), binding("ps-node", action)])
    }

    #[test]
    fn a_component_is_found_by_its_names_with_the_user_that_deletes_nodes() {
        let none: &[&str] = &[];
        for (name, image, args, user) in [
            (
                "occm",
                "registry.k8s.io/provider-os/openstack-cloud-controller-manager:v1.36.0@sha256:ab",
                none,
                "system:serviceaccount:ns:sa",
            ),
            (
                "vsphere-cloud-controller-manager",
                "registry.example/cpi/manager:v1",
                none,
                "system:serviceaccount:ns:sa",
            ),
            (
                "ccm",
                "x/cloud-controller-manager",
                &["--use-service-account-credentials=true"],
                "system:serviceaccount:kube-system:node-controller",
            ),
            (
                "ccm",
                "x/cloud-controller-manager",
                &["--use-service-account-credentials=false"],
                "system:serviceaccount:ns:sa",
            ),
            ("karpenter", "public.ecr.aws/karpenter/controller:1.9", none, "system:serviceaccount:ns:sa"),
            ("karpenter-dashboard", "x/karpenter-dashboard:v1", none, ""),
            ("azure-cloud-node-manager", "mcr.microsoft.com/azure-cloud-node-manager", none, ""),
        ] {
            let seen = ObservedComponents {
                workloads: vec![workload("ns", name, image, "sa", args)],
                ..ObservedComponents::default()
            };
            let users: Vec<String> =
                find_running(&known_components(), &seen).into_iter().filter_map(|one| one.user).collect();
            assert_eq!(users.join(","), user, "{name} {image} {args:?}");
        }
        let mut stopped = workload("ns", "karpenter", "i", "sa", &[]);
        stopped["spec"]["replicas"] = json!(0);
        assert!(
            find_running(
                &known_components(),
                &ObservedComponents { workloads: vec![stopped], ..ObservedComponents::default() }
            )
            .is_empty()
        );
    }

    #[test]
    fn a_component_outside_the_cluster_is_found_by_its_lease_or_its_node_annotation() {
        let seen = ObservedComponents {
            leases: BTreeSet::from(["cloud-controller-manager".to_owned()]),
            nodes: vec![json!({ "metadata": { "annotations": { "cluster.x-k8s.io/machine": "m" } } })],
            ..ObservedComponents::default()
        };
        let components = find_running(&known_components(), &seen);
        let names: Vec<&str> = components.iter().map(|one| one.component.as_str()).collect();
        assert_eq!(names, ["cloud-controller-manager", "cluster-api"]);
        assert!(components.iter().all(|one| one.user.is_none()));
    }

    /// `action=Deny` kept the Nodes of machines that were gone, and no check named the user to list.
    #[test]
    fn bug_a_component_that_the_policy_denies_was_not_reported() {
        let of = |component: &str, user: Option<&str>| RunningComponent {
            component: component.to_owned(),
            user: user.map(str::to_owned),
        };
        let (controller, manager) = (
            "system:serviceaccount:kube-system:node-controller",
            "system:serviceaccount:kube-system:cloud-controller-manager",
        );
        let installation = Installation::default();
        let set = |value: &str| installation.helm_command(&format!("'admissionPolicies.nodeDeleters={{{value}}}'"));
        for (gate, running, health, remedy) in [
            (policy(&[], &[], "Deny"), vec![], Health::Fine, String::new()),
            (Gate::Absent, vec![of("karpenter", Some("u:a"))], Health::Fine, String::new()),
            (
                policy(&[controller, manager], &[], "Deny"),
                vec![of("cloud-controller-manager", None)],
                Health::Fine,
                String::new(),
            ),
            (policy(&[], &["u:a"], "Deny"), vec![of("karpenter", Some("u:a"))], Health::Fine, String::new()),
            (
                policy(&[controller], &[], "Deny"),
                vec![of("cloud-controller-manager", None)],
                Health::Problem,
                set("cloud-controller-manager"),
            ),
            (
                policy(&[], &[], "Deny"),
                vec![of("cloud-controller-manager", Some(manager))],
                Health::Problem,
                set("cloud-controller-manager"),
            ),
            (
                policy(&[controller, manager, "ops", "u:b"], &[], "Deny"),
                vec![
                    of("cloud-controller-manager", Some(manager)),
                    of("karpenter", Some("u:a")),
                    of("cluster-api", None),
                ],
                Health::Problem,
                set("cloud-controller-manager,cluster-api,user:ops,u:a,u:b"),
            ),
            (policy(&[], &[], "Warn"), vec![of("karpenter", Some("u:a"))], Health::Attention, set("u:a")),
        ] {
            let symptom = check_deleters(&known_components(), &gate, &running, &installation);
            assert_eq!((symptom.health, symptom.remedy.as_str()), (health, remedy.as_str()), "{gate:?} {running:?}");
            assert!(
                running.is_empty()
                    || gate == Gate::Absent
                    || symptom.what.contains(&running[0].component)
                    || health != Health::Fine
            );
        }
    }
}
