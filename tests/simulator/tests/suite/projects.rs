//! Nodes that are fenced by objects of other projects, and tenants who write such objects, report in the place of
//! kubelets, and have pods that do not end. Many seeds of them are in `campaign`, their planted bugs in `planted`.

use pod_safety_simulator::campaign::{Fault, Fencing, Objects, Plan, Project, draw};

use crate::fencing::{BEGIN, BLIND, LONG, plan, seen};
use crate::runs::{seconds_of_lines, well};

const ALL: [Project; 4] = [Project::ClusterApi, Project::OpenShift, Project::Karpenter, Project::Medik8s];
const REPORTED: &str = "released on the report of another project's controller";
const LIMIT: &str = "limit: a controller of another project reported the end of a machine that ran";

/// `node-0` is cut off.
fn cut(objects: Objects) -> Plan {
    let fencing = Fencing { objects: Some(objects), ..BLIND };
    plan(fencing, vec![(BEGIN, Fault::CutNode { node: 0, seconds: LONG })])
}

#[test]
fn a_node_whose_object_is_gone_or_whose_remediation_succeeded_is_released() {
    for project in ALL {
        for named in [true, false] {
            let outcome = well(&cut(Objects { project, careless: false, named, without: None }));
            assert_eq!(seconds_of_lines(&outcome, &["writes the evidence node-0"]).len(), 1, "{project:?}");
            assert!(seen(&outcome, REPORTED) > 0, "{project:?}: {:#?}", outcome.timeline);
            assert_eq!(seen(&outcome, LIMIT), 0, "{project:?}");
        }
    }
}

/// Not a promise but a limit (docs/assumptions.md): nothing shows that the machine runs while its kubelet is cut off.
#[test]
fn limit_a_controller_that_reports_the_end_of_a_machine_that_runs_is_believed() {
    for project in ALL {
        let outcome = well(&cut(Objects { project, careless: true, named: true, without: None }));
        assert!(seen(&outcome, LIMIT) > 0, "{project:?}: {:#?}", outcome.timeline);
    }
}

#[test]
fn attack_a_machine_of_a_tenant_proves_nothing() {
    for project in [Project::ClusterApi, Project::OpenShift] {
        let outcome = well(&cut(Objects { project, careless: false, named: false, without: Some(0) }));
        assert_eq!(seen(&outcome, "evidence was written"), 0, "{project:?}: {:#?}", outcome.timeline);
        assert_eq!(seen(&outcome, "a tenant removed a finalizer"), 0, "{project:?}");
    }
}

#[test]
fn random_worlds_have_objects_of_each_project_and_tenants_of_each_kind() {
    let plans: Vec<Plan> = (0..1_000).map(draw).collect();
    let objects: Vec<Objects> = plans.iter().filter_map(|plan| plan.with.fencing?.objects).collect();
    for project in ALL {
        assert!(objects.iter().any(|one| one.project == project), "{project:?}: {objects:?}");
    }
    let some = |what: fn(&Objects) -> bool| objects.iter().any(what);
    assert!(some(|one| one.careless) && some(|one| one.named) && some(|one| one.without.is_some()), "{objects:?}");
    let kinds = |kind: &str| plans.iter().flat_map(|plan| &plan.faults).any(|(_, fault)| fault.kind() == kind);
    assert!(["EditPod", "Linger", "ConfirmFormer"].into_iter().all(kinds));
}
