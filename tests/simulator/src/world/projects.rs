//! Objects of other projects by which nodes are fenced, and who writes them: the controllers of these projects, in the
//! namespace that the FenceDevices name, and tenants in their own.
//!
//! A controller ends a machine and then removes the finalizer of its object, or reports success. One that is careless
//! does so without having ended the machine. A tenant's objects name the nodes, too, and a tenant removes finalizers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::fencing::NAMESPACE;
use super::host::Host;
use super::provider::provider_id;
use super::run::World;
use super::{str_at, value_at};
use crate::api::Kind;
use crate::campaign::{Objects, Project};

/// The namespace of the controllers, which the FenceDevices name.
pub(super) const OWN: &str = "machines";
/// The namespace of a tenant.
pub(super) const TENANTS: &str = "tenants";
/// The finalizer of each object.
const FINALIZER: &str = "machines.example/kept";
/// How long a controller takes, in seconds at the most.
const TAKES: u64 = 40;
/// How long after the end of a machine its Node is deleted.
const FOLLOWS: Duration = Duration::from_secs(20);

/// How the API serves the objects of a project.
struct Served {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
}

impl Project {
    const fn served(self) -> Served {
        let (group, version, plural, kind, namespaced) = match self {
            Self::ClusterApi => ("cluster.x-k8s.io", "v1beta2", "machines", "Machine", true),
            Self::OpenShift => ("machine.openshift.io", "v1beta1", "machines", "Machine", true),
            Self::Karpenter => ("karpenter.sh", "v1", "nodeclaims", "NodeClaim", false),
            Self::Medik8s => (MEDIK8S, "v1alpha1", "fenceagentsremediations", "FenceAgentsRemediation", true),
        };
        Served { group, version, plural, kind, namespaced }
    }

    /// The annotation of a Node that names its object.
    fn annotations(self, name: &str) -> Value {
        match self {
            Self::ClusterApi => json!({ "cluster.x-k8s.io/cluster-namespace": OWN, "cluster.x-k8s.io/machine": name }),
            Self::OpenShift => json!({ "machine.openshift.io/machine": format!("{OWN}/{name}") }),
            Self::Karpenter | Self::Medik8s => json!({}),
        }
    }

    /// The spec and the status of an object about a node.
    fn object(self, node: usize) -> (Value, Value) {
        let (name, id) = (format!("node-{node}"), provider_id(node));
        match self {
            Self::ClusterApi => {
                let machine =
                    json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AWSMachine", "name": name });
                (json!({ "providerID": id, "infrastructureRef": machine }), json!({ "nodeRef": { "name": name } }))
            }
            Self::OpenShift => {
                let value = json!({ "apiVersion": "machine.openshift.io/v1beta1", "kind": "AWSMachineProviderConfig" });
                (
                    json!({ "providerID": id, "providerSpec": { "value": value } }),
                    json!({ "nodeRef": { "name": name } }),
                )
            }
            Self::Karpenter => {
                let class = json!({ "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" });
                (json!({ "nodeClassRef": class }), json!({ "nodeName": name, "providerID": id }))
            }
            Self::Medik8s => (json!({}), succeeded()),
        }
    }
}

const MEDIK8S: &str = "fence-agents-remediation.medik8s.io";
const TEMPLATES: &str = "fenceagentsremediationtemplates";

fn succeeded() -> Value {
    let conditions = ["FenceAgentActionSucceeded", "Succeeded"].map(|kind| json!({ "type": kind, "status": "True" }));
    json!({ "conditions": conditions })
}

/// The kinds of a world's project.
pub(super) fn kinds(objects: Objects) -> Vec<Kind> {
    let Served { group, version, plural, kind, namespaced } = objects.project.served();
    let of = |plural: &str, kind: &str| Kind {
        group: group.to_owned(),
        version: version.to_owned(),
        ..Kind::custom(plural, kind, namespaced)
    };
    let templates = (objects.project == Project::Medik8s).then(|| of(TEMPLATES, "FenceAgentsRemediationTemplate"));
    [of(plural, kind)].into_iter().chain(templates).collect()
}

/// The path of the objects of a namespace.
fn path_of(project: Project, namespace: &str) -> String {
    let Served { group, version, plural, namespaced, .. } = project.served();
    let within = if namespaced { format!("namespaces/{namespace}/") } else { String::new() };
    format!("/apis/{group}/{version}/{within}{plural}")
}

/// The part of a FenceDevice's spec that names what fences.
pub(super) fn driver(objects: Objects) -> Value {
    let driver = match objects.project {
        Project::ClusterApi => "Machine",
        Project::OpenShift => "OpenShiftMachine",
        Project::Karpenter => return json!({ "driver": "NodeClaim" }),
        Project::Medik8s => {
            let template = json!({ "apiVersion": format!("{MEDIK8S}/v1alpha1"),
                "kind": "FenceAgentsRemediationTemplate", "name": "template" });
            return json!({ "driver": "External", "external": { "templateRef": template } });
        }
    };
    json!({ "driver": driver, "namespaces": [OWN] })
}

/// What a controller does about one object.
struct Work {
    node: usize,
    /// When the machine has ended.
    due: Duration,
    ended: bool,
}

impl World {
    fn objects(&self) -> Option<Objects> {
        self.with.fencing.and_then(|fencing| fencing.objects)
    }

    /// Adds to a Node that registers what its cloud and its project write.
    pub(super) fn of_provider(&self, mut node: Value, number: usize) -> Value {
        let objects = self.objects();
        if objects.is_some() || self.with.fencing.is_some_and(|fencing| fencing.behind_seconds.is_some()) {
            node["spec"] = json!({ "providerID": provider_id(number) });
        }
        if let Some(objects) = objects.filter(|objects| objects.named && objects.without != Some(number)) {
            node["metadata"]["annotations"] = objects.project.annotations(&format!("machine-{number}"));
        }
        node
    }

    /// Makes the objects of all nodes: those of the project, and those of a tenant.
    pub(super) async fn install_objects(&self, nodes: usize) {
        let Some(Objects { project, without, .. }) = self.objects() else { return };
        for name in [OWN, TENANTS] {
            let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            self.prepare("POST", "/api/v1/namespaces", Some(namespace)).await;
        }
        if project == Project::Medik8s {
            let template = json!({ "apiVersion": format!("{MEDIK8S}/v1alpha1"),
                "kind": "FenceAgentsRemediationTemplate", "metadata": { "name": "template", "namespace": NAMESPACE },
                "spec": { "template": { "spec": {} } } });
            let path = format!("/apis/{MEDIK8S}/v1alpha1/namespaces/{NAMESPACE}/{TEMPLATES}");
            self.prepare("POST", &path, Some(template)).await;
        }
        for node in 0..nodes {
            if project != Project::Medik8s && without != Some(node) {
                self.make_object(project, OWN, &format!("machine-{node}"), node).await;
            }
            if project.served().namespaced {
                self.make_object(project, TENANTS, &format!("node-{node}"), node).await;
            }
            if without == Some(node) {
                // Nothing can fence it.
                self.checker.device_fails(&self.node(node), Duration::from_secs(1_000_000));
            }
        }
    }

    async fn make_object(&self, project: Project, namespace: &str, name: &str, node: usize) {
        let Served { group, version, kind, .. } = project.served();
        let (spec, status) = project.object(node);
        let object = json!({ "apiVersion": format!("{group}/{version}"), "kind": kind,
            "metadata": { "name": name, "finalizers": [FINALIZER] }, "spec": spec });
        let path = path_of(project, namespace);
        let code = self.prepare("POST", &path, Some(object)).await;
        assert_eq!(code, 201, "{path}/{name}");
        let status = json!([{ "op": "add", "path": "/status", "value": status }]);
        self.prepare("PATCH", &format!("{path}/{name}/status"), Some(status)).await;
    }

    /// One look at all objects. `works` are those of which a controller knows, by UID.
    async fn tend_objects(&self, objects: Objects, works: &mut BTreeMap<String, Work>) {
        let (now, remediates) = (self.checker.now(), objects.project == Project::Medik8s);
        for object in self.etcd.objects(objects.project.served().kind) {
            let (name, namespace) = (str_at(&object, "/metadata/name"), str_at(&object, "/metadata/namespace"));
            let path = format!("{}/{name}", path_of(objects.project, namespace));
            let deleted = value_at(&object, "/metadata/deletionTimestamp").is_some();
            if namespace == TENANTS {
                if deleted {
                    self.checker.probe("a tenant removed a finalizer");
                    self.remove_finalizers(&path).await;
                }
                continue;
            }
            let node = name.rsplit('-').next().and_then(|number| number.parse().ok());
            let Some(node) = node.filter(|_| deleted != remediates) else { continue };
            let uid = str_at(&object, "/metadata/uid");
            let takes = Duration::from_secs(2 + self.chance.below(TAKES, "projects", uid, 0));
            let work = works.entry(uid.to_owned()).or_insert(Work { node, due: now + takes, ended: false });
            if now < work.due {
                continue;
            }
            if !work.ended {
                work.ended = true;
                self.end_machine(objects, node);
            }
            if !remediates {
                self.remove_finalizers(&path).await;
            } else if value_at(&object, "/status").is_none() {
                let status = json!([{ "op": "add", "path": "/status", "value": succeeded() }]);
                self.prepare("PATCH", &format!("{path}/status"), Some(status)).await;
            }
        }
    }

    /// Ends the machine of a node, or reports it alone.
    fn end_machine(&self, Objects { project, careless, .. }: Objects, node: usize) {
        match project {
            _ if careless => {
                if self.has_power(node) {
                    self.checker.probe("a controller of another project reported the end of a machine that ran");
                }
            }
            Project::Medik8s => self.power_off(node),
            Project::ClusterApi | Project::OpenShift | Project::Karpenter => self.terminate(node),
        }
        if project != Project::Medik8s {
            self.checker.instance_is_gone(&self.node(node));
        }
        self.checker.controller_ended(&self.node(node), !careless);
    }

    /// What follows when an object is gone: the Node of a machine goes, and what a remediator switched off is switched
    /// on. Returns the nodes to switch on.
    async fn after_objects(&self, objects: Objects, works: &mut BTreeMap<String, Work>) -> Vec<usize> {
        let all = self.etcd.objects(objects.project.served().kind);
        let now = self.checker.now();
        let is_over = |uid: &String, work: &Work| {
            now > work.due + FOLLOWS && all.iter().all(|object| str_at(object, "/metadata/uid") != uid)
        };
        let over: Vec<String> =
            works.iter().filter(|(uid, work)| is_over(uid, work)).map(|(uid, _)| uid.clone()).collect();
        let nodes: Vec<usize> = over.iter().filter_map(|uid| works.remove(uid)).map(|work| work.node).collect();
        if objects.project == Project::Medik8s {
            return nodes;
        }
        for node in nodes.into_iter().filter(|_| !objects.careless) {
            self.prepare("DELETE", &format!("/api/v1/nodes/{}", self.node(node)), None).await;
        }
        Vec::new()
    }

    async fn remove_finalizers(&self, path: &str) {
        let none = json!([{ "op": "remove", "path": "/metadata/finalizers" }]);
        self.prepare("PATCH", path, Some(none)).await;
    }
}

/// Runs the controllers of the world's project, and its tenant.
pub(super) fn start(world: &Arc<World>, host: &Arc<Host>) {
    let Some(objects) = world.objects() else { return };
    let (world, env) = (Arc::clone(world), host.env());
    host.start_task("projects", async move {
        let mut works = BTreeMap::new();
        loop {
            world.tend_objects(objects, &mut works).await;
            for node in world.after_objects(objects, &mut works).await {
                let world = Arc::clone(&world);
                env.spawner.spawn("boot", Box::pin(async move { world.power_on(node).await }));
            }
            env.sleep(Duration::from_secs(1)).await;
        }
    });
}
