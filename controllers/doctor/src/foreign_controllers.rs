//! Controllers of other projects that the admission policies deny, and what to set.

use std::collections::BTreeMap;

use serde_json::Value;

use super::deleters::find_running as running_deleters;
use super::deleters::{
    Component, Gate, ObservedComponents, PolicyRules, check_deleters, containers_of, matches_component, user_for,
};
use super::{Health, Installation, Symptom, healthy, symptom};

/// A controller of another project, as docs/admission.md names it.
#[derive(Debug)]
struct ForeignController {
    /// Its name.
    name: &'static str,
    /// The last parts of the name of its workload, of a container, or of a part of its image.
    names: &'static [&'static str],
    /// The setting with which it sends such requests.
    condition: Condition,
    /// The request that it sends.
    request: &'static str,
    /// The policies that deny it, by the suffixes of their names.
    policies: &'static [&'static str],
    /// The remedy.
    remedy: Remedy,
}

/// Whether it sends such requests.
#[derive(Debug)]
enum Condition {
    Always,
    /// A container has this text among its arguments.
    Argument(&'static str),
    /// An object of its namespace has this text.
    Object {
        path: &'static str,
        at: &'static str,
        holds: fn(&str) -> bool,
    },
}

/// What an operator can do about it.
#[derive(Debug)]
enum Remedy {
    /// It fences on request: by a FenceDevice with the driver External and a template of this kind.
    External(&'static str),
    /// Evidence of a device releases the pods that it waits for. It can also be set to send no such request.
    Device(&'static str),
    /// It may be listed, because it checks first that the machine is stopped.
    Listed,
}

/// The known controllers. docs/admission.md explains how to run pod-safety beside each.
const FOREIGN_CONTROLLERS: &[ForeignController] = &[
    ForeignController {
        name: "descheduler",
        names: &["descheduler"],
        condition: Condition::Object {
            path: "/api/v1/namespaces/NAMESPACE/configmaps/descheduler",
            at: "/data/policy.yaml",
            holds: |text| text.lines().any(|line| line.trim() == "gracePeriodSeconds: 0"),
        },
        request: "evicts pods with grace period 0",
        policies: &["eviction"],
        remedy: Remedy::Device("remove gracePeriodSeconds: 0 from its policy"),
    },
    ForeignController {
        name: "fence-agents-remediation",
        names: &["fence-agents-remediation-controller-manager", "fence-agents-remediation-operator"],
        condition: Condition::Always,
        request: "removes the pods of a node at once, or adds the taint out-of-service, after it fenced the node",
        policies: &["force-delete", "node"],
        remedy: Remedy::External("FenceAgentsRemediationTemplate"),
    },
    ForeignController {
        name: "self-node-remediation",
        names: &["self-node-remediation-controller-manager", "self-node-remediation-operator"],
        condition: Condition::Always,
        request: "removes the pods of a node at once, or adds the taint out-of-service, when it assumes that the node rebooted",
        policies: &["force-delete", "node"],
        remedy: Remedy::External("SelfNodeRemediationTemplate"),
    },
    ForeignController {
        name: "storage-based-remediation",
        names: &["sbr-operator-controller-manager", "storage-based-remediation-operator"],
        condition: Condition::Always,
        request: "adds the taint out-of-service to a node that it fenced",
        policies: &["node"],
        remedy: Remedy::External("StorageBasedRemediationTemplate"),
    },
    ForeignController {
        name: "machine-controller-manager",
        names: &["machine-controller-manager"],
        condition: Condition::Always,
        request: "removes the pods of a lost node at once, before it deletes the machine",
        policies: &["force-delete"],
        remedy: Remedy::Device("with the volume guard it waits until its volumes are detached"),
    },
    ForeignController {
        name: "azure-cloud-controller-manager",
        names: &["azure-cloud-controller-manager"],
        condition: Condition::Always,
        request: "adds the taint out-of-service to the node of a stopped machine",
        policies: &["node"],
        remedy: Remedy::Listed,
    },
    ForeignController {
        name: "xenorchestra-cloud-controller-manager",
        names: &["xenorchestra-cloud-controller-manager"],
        condition: Condition::Argument("cloud-node-out-of-service"),
        request: "adds the taint out-of-service to the node of a halted machine",
        policies: &["node"],
        remedy: Remedy::Listed,
    },
    ForeignController {
        name: "harvester",
        names: &["harvester"],
        condition: Condition::Always,
        request: "removes pods of a node that does not answer, or adds the taint out-of-service to it",
        policies: &["force-delete", "node"],
        remedy: Remedy::Device("do not list it: it does not check that the machine is off"),
    },
    ForeignController {
        name: "longhorn",
        names: &["longhorn-manager"],
        condition: Condition::Object {
            path: "/apis/longhorn.io/v1beta2/namespaces/NAMESPACE/settings/node-down-pod-deletion-policy",
            at: "/value",
            holds: |text| text != "do-nothing",
        },
        request: "removes pods of lost nodes at once",
        policies: &["force-delete"],
        remedy: Remedy::Device("set its node-down-pod-deletion-policy to do-nothing"),
    },
    ForeignController {
        name: "piraeus-ha-controller",
        names: &["piraeus-ha-controller"],
        condition: Condition::Always,
        request: "removes pods of lost nodes at once",
        policies: &["force-delete"],
        remedy: Remedy::Device("it asks again until the pod is gone"),
    },
    ForeignController {
        name: "kueue",
        names: &["kueue-controller-manager", "kueue"],
        condition: Condition::Argument("FailureRecoveryPolicy=true"),
        request: "writes the phase Failed to pods of lost nodes, and removes them at once",
        policies: &["terminal-phase", "force-delete"],
        remedy: Remedy::Device("disable its feature gate FailureRecoveryPolicy"),
    },
];

/// The objects that were read; `None` where one does not exist.
pub type Objects = BTreeMap<String, Result<Option<Value>, String>>;

/// A controller that runs, and where.
struct RunningController<'a> {
    controller: &'static ForeignController,
    workload: &'a Value,
}

impl RunningController<'_> {
    fn path(&self) -> Option<String> {
        let namespace = self.workload["metadata"]["namespace"].as_str().unwrap_or_default();
        match self.controller.condition {
            Condition::Object { path, .. } => Some(path.replace("NAMESPACE", namespace)),
            Condition::Always | Condition::Argument(_) => None,
        }
    }

    /// Whether it sends such requests, or why that is not known.
    fn sends_requests(&self, objects: &Objects) -> Result<bool, String> {
        match self.controller.condition {
            Condition::Always => Ok(true),
            Condition::Argument(text) => Ok(containers_of(self.workload).any(|container| {
                let lists = ["command", "args"].map(|field| container[field].as_array());
                let mut all = lists.into_iter().flatten().flatten().filter_map(Value::as_str);
                all.any(|argument| argument.contains(text))
            })),
            Condition::Object { at, holds, .. } => {
                let path = self.path().unwrap_or_default();
                match objects.get(&path) {
                    Some(Ok(Some(object))) => Ok(object.pointer(at).and_then(Value::as_str).is_some_and(holds)),
                    Some(Ok(None)) => Ok(false),
                    Some(Err(why)) => Err(format!("{path}: {why}")),
                    None => Err(format!("{path} was not read")),
                }
            }
        }
    }
}

fn find_running(seen: &ObservedComponents) -> Vec<RunningController<'_>> {
    let running_controller = |other: &'static ForeignController| {
        // A manager and its agents count as one.
        let workload = seen.workloads.iter().find(|workload| matches_component(workload, other.names));
        workload.map(|workload| RunningController { controller: other, workload })
    };
    FOREIGN_CONTROLLERS.iter().filter_map(running_controller).collect()
}

/// The objects that show whether the running controllers send such requests.
pub fn paths_to_read(seen: &ObservedComponents) -> Vec<String> {
    find_running(seen).iter().filter_map(RunningController::path).collect()
}

/// What was read of pod-safety, and of the controllers of other projects.
#[derive(Debug, Default)]
pub struct ForeignControllers {
    /// The admission policies of pod-safety.
    pub policies: Vec<Value>,
    /// Their bindings.
    pub bindings: Vec<Value>,
    /// FenceDevices.
    pub devices: Vec<Value>,
    /// FencePolicies.
    pub fences: Vec<Value>,
    /// The components that run.
    pub observed: ObservedComponents,
    /// The objects that [`paths_to_read`] names.
    pub objects: Objects,
}

const CHECK: &str = "RefusedControllers";

impl ForeignControllers {
    /// The reason why neither check could read the cluster.
    pub fn not_checked(why: &str) -> Vec<Symptom> {
        ["NodeDeleters", CHECK].map(|check| super::not_checked(check, why)).into()
    }

    /// Whether components that delete Nodes may do so, which controllers the policies deny, and what to set.
    pub fn check(&self, components: &[Component], installation: &Installation) -> Vec<Symptom> {
        let gate = Gate::from_policies(&self.policies, &self.bindings);
        let mut all =
            vec![check_deleters(components, &gate, &running_deleters(components, &self.observed), installation)];
        all.extend(self.check_refused(installation));
        all
    }

    fn check_refused(&self, installation: &Installation) -> Vec<Symptom> {
        let mut all = Vec::new();
        for one in find_running(&self.observed) {
            let name = one.controller.name;
            match one.sends_requests(&self.objects) {
                Ok(true) => all.extend(refused_symptom(&one, self, installation)),
                Ok(false) => {}
                Err(why) => all.push(super::not_checked(CHECK, &format!("{name}: {why}"))),
            }
        }
        if all.is_empty() {
            all.push(healthy(CHECK, "no known controller of another project runs that a policy refuses"));
        }
        all
    }
}

fn refused_symptom(
    one: &RunningController<'_>,
    cluster: &ForeignControllers,
    installation: &Installation,
) -> Option<Symptom> {
    const WHY: &str = "it asks again and again, and its pods wait for evidence that the machine is off";
    let ForeignController { name, request, policies, remedy, .. } = one.controller;
    let user = user_for(one.workload);
    let rulings: Vec<(&str, PolicyRules)> = policies
        .iter()
        .filter_map(|policy| Some((*policy, PolicyRules::from_policies(&cluster.policies, &cluster.bindings, policy)?)))
        .filter(|(_, ruling)| !ruling.allows(&user))
        .collect();
    if rulings.is_empty() {
        return None;
    }
    let denies = rulings.iter().any(|(_, ruling)| ruling.denies);
    let by = rulings.iter().map(|(policy, _)| *policy).collect::<Vec<_>>().join(" and ");
    let verb = if denies { "denied by" } else { "with admissionPolicies.action=Deny, denied by" };
    let what = format!("{name} ({user}) {request}: {verb} {by}");
    let has_external = |template: &str| {
        cluster.devices.iter().any(|device| device["spec"]["external"]["templateRef"]["kind"] == template)
    };
    const FENCES: &str = "create a FenceDevice and a FencePolicy for its nodes";
    let (is_fine, todo) = match remedy {
        Remedy::External(template) => (
            has_external(template),
            format!("create a FenceDevice with driver External and its {template}: {}", page!("quickstart-medik8s.md")),
        ),
        Remedy::Device(besides) => (!cluster.fences.is_empty(), format!("{FENCES}; {besides}")),
        Remedy::Listed => (!cluster.fences.is_empty(), {
            let values = format!(
                "'admissionPolicies.outOfServiceTainters={{{user}}}' --set controllers.podGc.trustOutOfServiceTaint=true"
            );
            format!("{FENCES}, or trust its taint: {}", installation.helm_command(&values))
        }),
    };
    Some(match is_fine {
        true => healthy(CHECK, format!("{what}; evidence releases the pods")),
        false => symptom(CHECK, Health::Attention, what, WHY, todo),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workload(name: &str, account: &str, args: &[&str]) -> Value {
        let container = json!({ "name": "manager", "image": "registry.example/x:v1", "args": args });
        json!({ "metadata": { "namespace": "ns", "name": name },
            "spec": { "template": { "spec": { "serviceAccountName": account, "containers": [container] } } } })
    }

    fn policies(action: &str) -> (Vec<Value>, Vec<Value>) {
        let names = ["force-delete", "node", "eviction", "terminal-phase"].map(|name| format!("ps-{name}"));
        let policy = |name: &String| {
            json!({ "metadata": { "name": name }, "spec": {
                "matchConditions": [{ "name": "not-exempt", "expression": r#"!(request.userInfo.username in ["system:serviceaccount:ns:trusted"])"# }],
                "variables": [{ "name": "tainters", "expression": r#"["system:serviceaccount:ns:listed"]"# }] } })
        };
        let binding = |name: &String| json!({ "spec": { "policyName": name, "validationActions": [action] } });
        (names.iter().map(policy).collect(), names.iter().map(binding).collect())
    }

    /// docs/admission.md explains how to run pod-safety beside each, and names a policy that denies it.
    #[test]
    fn each_foreign_controller_is_documented() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/admission.md");
        let page = std::fs::read_to_string(page).unwrap();
        let (_, section) = page.split_once("## Beside other controllers").unwrap();
        let (section, _) = section.split_once("\n## ").unwrap();
        for other in FOREIGN_CONTROLLERS {
            let name = format!("`{}`", other.name);
            assert!(section.contains(&name), "{name}");
            let row = section.lines().filter(|line| line.starts_with("| ")).find(|line| line.contains(&name));
            let denies = |row: &str| other.policies.iter().any(|policy| row.contains(&format!("`{policy}`")));
            assert!(row.is_none_or(denies), "{name}: {row:?}");
        }
    }

    /// What is read of its own object.
    #[derive(Clone, Copy, Debug)]
    enum Read {
        Nothing,
        Forbidden,
        Setting(&'static str),
        Policy(&'static str),
    }

    impl Read {
        fn objects(self) -> Objects {
            let setting = "/apis/longhorn.io/v1beta2/namespaces/ns/settings/node-down-pod-deletion-policy";
            let (path, answer) = match self {
                Self::Nothing => return Objects::new(),
                Self::Forbidden => (setting, Err("forbidden".to_owned())),
                Self::Setting(value) => (setting, Ok(Some(json!({ "value": value })))),
                Self::Policy(text) => (
                    "/api/v1/namespaces/ns/configmaps/descheduler",
                    Ok(Some(json!({ "data": { "policy.yaml": text } }))),
                ),
            };
            Objects::from([(path.to_owned(), answer)])
        }
    }

    /// What exists of pod-safety.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Has {
        Nothing,
        Fences,
        External,
    }

    use Has::{External, Fences};
    use Health::{Attention, Fine, Unknown};
    use Read::{Forbidden, Policy, Setting};

    const LONGHORN: &str = "longhorn-manager";
    const AZURE: &str = "azure-cloud-controller-manager";
    const FAR: &str = "fence-agents-remediation-controller-manager";
    const SNR: &str = "self-node-remediation-controller-manager";
    const KUEUE: &str = "kueue-controller-manager";
    const NONE: &str = "no known controller";
    const GATE: &str = "--feature-gates=FailureRecoveryPolicy=true";

    /// What runs, its user and argument; what is read; what exists of pod-safety; the expected health and message.
    const ROWS: [(&str, &str, &str, Read, Has, Health, &str); 17] = [
        ("nginx", "sa", "", Read::Nothing, Has::Nothing, Fine, NONE),
        (LONGHORN, "sa", "", Setting("delete-statefulset-pod"), Has::Nothing, Attention, "to do-nothing"),
        (LONGHORN, "sa", "", Setting("delete-statefulset-pod"), Fences, Fine, "evidence releases"),
        (LONGHORN, "sa", "", Setting("do-nothing"), Has::Nothing, Fine, NONE),
        (LONGHORN, "sa", "", Read::Nothing, Has::Nothing, Unknown, "was not read"),
        (LONGHORN, "sa", "", Forbidden, Has::Nothing, Unknown, "forbidden"),
        (LONGHORN, "trusted", "", Setting("delete-both"), Has::Nothing, Fine, NONE),
        ("descheduler", "sa", "", Policy("a: b\ngracePeriodSeconds: 0\n"), Has::Nothing, Attention, "by eviction"),
        ("descheduler", "sa", "", Policy("gracePeriodSeconds: 10\n"), Has::Nothing, Fine, NONE),
        (KUEUE, "sa", "", Read::Nothing, Has::Nothing, Fine, NONE),
        (KUEUE, "sa", GATE, Read::Nothing, Has::Nothing, Attention, "by terminal-phase and force-delete"),
        (AZURE, "sa", "", Read::Nothing, Has::Nothing, Attention, "Tainters={system:serviceaccount:ns:sa}"),
        (AZURE, "listed", "", Read::Nothing, Has::Nothing, Fine, NONE),
        (AZURE, "sa", "", Read::Nothing, Fences, Fine, "by node"),
        (FAR, "sa", "", Read::Nothing, Fences, Attention, "driver External"),
        (FAR, "sa", "", Read::Nothing, External, Fine, "evidence releases"),
        (SNR, "sa", "", Read::Nothing, External, Attention, "SelfNodeRemediationTemplate"),
    ];

    #[test]
    fn denied_foreign_controllers_are_reported_with_the_remedy() {
        let far = json!({ "spec": { "external": { "templateRef": { "kind": "FenceAgentsRemediationTemplate" } } } });
        let check = |row: &(&str, &str, &str, Read, Has, Health, &str), rules: (Vec<Value>, Vec<Value>)| {
            let (name, account, argument, read, has, ..) = *row;
            let seen = ObservedComponents {
                workloads: vec![workload(name, account, &[argument])],
                ..ObservedComponents::default()
            };
            let some = |is: bool, one: &Value| is.then(|| one.clone()).into_iter().collect();
            let (devices, fences) = (some(has == External, &far), some(has == Fences, &Value::Null));
            let (policies, bindings) = rules;
            let cluster =
                ForeignControllers { policies, bindings, devices, fences, observed: seen, objects: read.objects() };
            let mut all = cluster.check_refused(&Installation::default());
            assert_eq!(all.len(), 1, "{row:?}: {all:?}");
            all.remove(0)
        };
        for row in &ROWS {
            let (.., health, expected) = *row;
            for (action, verb) in [("Deny", ": denied by"), ("Warn", "with admissionPolicies.action=Deny")] {
                let symptom = check(row, policies(action));
                let text = format!("{} {}", symptom.what, symptom.remedy);
                assert_eq!(symptom.health, health, "{row:?}: {text}");
                assert!(text.contains(expected) && (health != Attention || text.contains(verb)), "{row:?}: {text}");
            }
            let without = check(row, (Vec::new(), Vec::new()));
            assert!(health == Unknown || without.what.contains(NONE), "{row:?}: {without:?}");
        }
    }
}
