//! Which pods keep their identity when they are replaced.

use crate::model::Kind;

use super::*;

/// Pods of operators stayed Terminating, and their nodes were never fenced.
#[test]
fn the_controller_of_a_pod_decides_whether_its_replacement_keeps_its_identity() {
    for (api, kind, expected) in [
        ("apps/v1", "StatefulSet", true),
        ("apps.kruise.io/v1beta1", "StatefulSet", true),
        ("postgresql.cnpg.io/v1", "Cluster", true),
        ("core.strimzi.io/v1beta2", "StrimziPodSet", true),
        ("apps/v1", "ReplicaSet", false),
        ("apps/v1", "DaemonSet", false),
        ("batch/v1", "Job", false),
        ("v1", "Node", false),
        ("v1", "ReplicationController", false),
    ] {
        let world = World::listed();
        world.apply(Kind::Pods, &pod("a").owned_by(api, kind, "o").0, at(1));
        let guard = world.read();
        let read = guard.view().pod(&Uid::new("uid-a").unwrap()).unwrap();
        assert_eq!(read.keeps_identity(), expected, "{api} {kind}");
    }
    let world = World::listed();
    world.apply(Kind::Pods, &pod("a").0, at(1));
    assert!(!world.read().view().pod(&Uid::new("uid-a").unwrap()).unwrap().keeps_identity(), "it has no controller");
}
