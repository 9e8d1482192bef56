//! What is read for an explanation, as far as the rights of the user suffice.

mod events;
mod successors;

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context;
use jiff::Timestamp;
use pod_safety_explain::{Attachment, EventRecord, ExplainContext, Installation, Policies, Running, Settings, str_at};
use pod_safety_process::account::LeaderSettings;
use pod_safety_process::registry::Name;
use pod_safety_shared::api::{PAUSE_ANNOTATION, Pause};
use pod_safety_shared::cache::{Snapshot, UnreadKind};
use pod_safety_shared::client::{ApiError, Call};
use pod_safety_shared::controller_loop::Mode;
use pod_safety_shared::lease::LeaseConfig;
use pod_safety_shared::model::{Budget, Kind, Node};
use serde_json::Value;

use crate::cluster::Session;
use crate::error_hints::{NotFound, ResourceKind};
use crate::progress::announce_wait;
use crate::rights::VIEW;
use crate::run;

/// The kinds that the controllers read to decide about pods and nodes.
const KINDS: [Kind; 13] = [
    Kind::Nodes,
    Kind::NodeLeases,
    Kind::Pods,
    Kind::Deployments,
    Kind::ReplicaSets,
    Kind::StatefulSets,
    Kind::ReplicationControllers,
    Kind::Budgets,
    Kind::FenceDevices,
    Kind::FencePolicies,
    Kind::NodeFences,
    Kind::FenceEvidences,
    Kind::Remediations,
];

/// The label by which pods and policies of pod-safety are listed.
pub(crate) const OWN_LABEL: &str = "labelSelector=app.kubernetes.io/name=pod-safety";

/// The pauses of how many nodes are read: for more, operators pause a FencePolicy.
const MAX_PAUSES: usize = 50;

/// The cluster as it was read.
pub(crate) struct ClusterSnapshot {
    pub(crate) cache: Snapshot,
    pub(crate) settings: Settings,
    pub(crate) running: Running,
    /// [`Policies::Unread`] until they are read.
    pub(crate) policies: Policies,
    /// The controllers that run.
    pub(crate) controllers: Vec<Name>,
    /// The account that they run as.
    pub(crate) account: String,
    /// The pods of pod-safety; empty where they may not be listed.
    pub(crate) pods: Vec<Value>,
    /// The leader Lease, while it is held.
    pub(crate) lease: Option<Value>,
    /// The Lease of their flags; `None`: they run without leader election.
    pub(crate) election: Option<LeaseConfig>,
    events: Vec<EventRecord>,
    attachments: Vec<Attachment>,
    successors: Vec<Value>,
    pauses: Vec<(Arc<str>, Pause)>,
    unread: Vec<UnreadKind>,
    /// The kinds of `unread`, without those that this cluster does not have.
    refused_kinds: Vec<Kind>,
    refused: Vec<String>,
    /// The version of the API server; empty: not known.
    pub(crate) server: String,
    /// The time of the read, by the API server's clock.
    pub(crate) wall: Timestamp,
}

impl Session {
    /// Reads an object with all of its fields.
    pub(crate) async fn get_raw(&self, path: &str) -> Result<Value, ApiError> {
        self.connection.send(Call::get(path).all_fields()).await?.to_json().map_err(ApiError::Undecodable)
    }

    /// The same; `None` if it does not exist.
    pub(crate) async fn get_opt(&self, path: &str) -> Result<Option<Value>, ApiError> {
        match self.get_raw(path).await {
            Err(error) if error.is_not_found() => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// The items of a list, with all of their fields.
    pub(crate) async fn items(&self, path: &str) -> Result<Vec<Value>, ApiError> {
        self.connection.list_items(path).await
    }
}

impl ClusterSnapshot {
    /// Reads everything that may be read; pods at least in `namespace`.
    pub(crate) async fn read(session: &Session, namespace: Option<&str>) -> anyhow::Result<Self> {
        let (session, server) = &session.with_server_clock().await;
        let nothing = &mut |_: Kind, _: &_| {};
        let reading = Snapshot::read_allowed(&session.connection, &session.env, &KINDS, namespace, nothing);
        let (snapshot, unread) = announce_wait(|| "all nodes and pods to be read".to_owned(), reading).await?;
        // Whether budgets that allow nothing now ever allow more depends on the scales of custom resources too.
        let blocks = |budget: &&Budget| budget.status.disruptions_allowed <= 0;
        session.query_scales(&snapshot, |view| view.budgets().filter(blocks).collect()).await;
        let wall = session.env.clock.wall();
        let mut refused = Vec::new();
        let OwnProcesses { settings, running, controllers, fenced_from, account, pods, lease, election } =
            read_running(session, wall, &mut refused).await;
        // If no pod of pod-safety shows its flags, the namespaces of its devices are not known, and no device is left
        // out.
        if let Some(fenced_from) = fenced_from {
            snapshot.restrict_fencing_to(fenced_from);
        }
        Ok(Self {
            cache: snapshot,
            settings,
            running,
            policies: Policies::Unread,
            controllers,
            account,
            pods,
            lease,
            election,
            events: Vec::new(),
            attachments: Vec::new(),
            successors: Vec::new(),
            pauses: Vec::new(),
            refused_kinds: unread.iter().filter(|one| !is_absent(one)).map(|one| one.error.kind).collect(),
            unread,
            refused,
            server: server.clone(),
            wall,
        })
    }

    /// Reads what the admission policies do.
    pub(crate) async fn read_policies(&mut self, session: &Session) {
        let bindings = format!("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings?{OWN_LABEL}");
        self.policies = session.items(&bindings).await.map_or(Policies::Unread, |all| force_delete_policy(&all));
    }

    /// Reads the VolumeAttachments; false: they could not be read.
    pub(crate) async fn read_attachments(&mut self, session: &Session) -> bool {
        match session.items("/apis/storage.k8s.io/v1/volumeattachments").await {
            Ok(all) => {
                self.attachments = all.iter().filter_map(Attachment::from_object).collect();
                true
            }
            Err(error) => {
                let refusal = describe_refusal(&error, "list volumeattachments");
                self.refused.push(format!("{refusal}: it is not known which node holds which volume."));
                false
            }
        }
    }

    /// Reads why nodes with the annotation of pod-safety are not fenced, or only this node: the cache does not keep the
    /// values of annotations.
    pub(crate) async fn read_pauses(&mut self, session: &Session, only: Option<&str>) {
        let marked: Vec<Arc<str>> = self.with_context(|ctx| {
            let marked = |node: &&Node| {
                node.details.as_ref().and_then(|details| details.remediation_excluded_by) == Some(PAUSE_ANNOTATION)
            };
            let is_selected = |node: &&Node| only.is_none_or(|only| *node.name == *only);
            ctx.view
                .nodes()
                .filter(is_selected)
                .filter(marked)
                .take(MAX_PAUSES)
                .map(|node| Arc::clone(&node.name))
                .collect()
        });
        for name in marked {
            let Ok(node) = session.get_raw(&format!("/api/v1/nodes/{name}")).await else { continue };
            let text = node["metadata"]["annotations"][PAUSE_ANNOTATION].as_str();
            self.pauses.extend(text.map(|text| (name, Pause::parse(text))));
        }
    }

    /// Reads the StatefulSet of this name: `explain` takes the right to list them, and not the right to get them.
    pub(crate) async fn read_set(&self, session: &Session, namespace: &str, name: &str) -> anyhow::Result<Value> {
        let path = format!("/apis/apps/v1/namespaces/{namespace}/statefulsets?fieldSelector=metadata.name={name}");
        let sets = session.items(&path).await.context("reading the StatefulSet")?;
        let set = sets.into_iter().find(|set| str_at(set, "/metadata/name") == name);
        set.ok_or_else(|| NotFound::new(ResourceKind::Set, Some(namespace), name).into())
    }

    /// Calls `explain` with the context of what was read.
    pub(crate) fn with_context<T>(&self, explain: impl FnOnce(&ExplainContext<'_>) -> T) -> T {
        let guard = self.cache.view();
        explain(&ExplainContext {
            view: guard.view(),
            now: self.cache.at(),
            wall: self.wall,
            settings: &self.settings,
            running: &self.running,
            policies: self.policies,
            events: &self.events,
            attachments: &self.attachments,
            successors: &self.successors,
            pauses: &self.pauses,
            unread: &self.refused_kinds,
        })
    }

    /// Why pods were not read in all namespaces, and the namespace in which they were read; `None`: they were read in
    /// all.
    pub(crate) fn pods_unread(&self) -> Option<(String, Option<&str>)> {
        let unread = self.unread.iter().find(|one| one.error.kind == Kind::Pods)?;
        Some((sentence(unread), unread.read_in.as_deref()))
    }

    /// What could not be read and is therefore not known, a sentence each.
    pub(crate) fn missing(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        let kinds: Vec<&str> =
            self.unread.iter().filter(|one| is_absent(one)).map(|one| one.error.kind.resource()).collect();
        if !kinds.is_empty() {
            all.push(format!("This cluster does not have the custom resources {} of pod-safety.dev. Fencing and confirmations do not work without them. pod-safety manifests prints them.", kinds.join(", ")));
        }
        let own_kinds: Vec<&str> = self
            .unread
            .iter()
            .filter(|one| !is_absent(one) && one.error.kind.is_own_crd())
            .map(|one| one.error.kind.resource())
            .collect();
        if !own_kinds.is_empty() {
            all.push(format!(
                "You may not list {}: the state of fencing and the evidence are not known. The ClusterRole {VIEW}, which is part of view, lets you.",
                own_kinds.join(", ")
            ));
        }
        all.extend(self.unread.iter().filter(|one| !one.error.kind.is_own_crd()).map(sentence));
        all.extend(self.refused.iter().cloned());
        all
    }
}

/// Whether this cluster does not have the kind.
fn is_absent(unread: &UnreadKind) -> bool {
    unread.error.source.code() == Some(404)
}

/// What could not be read and is therefore not known.
fn sentence(UnreadKind { error, read_in: only }: &UnreadKind) -> String {
    let (resource, unknown) = (error.kind.resource(), describe_unknown(error.kind));
    match only {
        Some(namespace) => format!("You may list {resource} only in namespace {namespace}: {unknown}."),
        None => format!("You may not list {resource}: {unknown}."),
    }
}

/// A sentence that the read was refused, or failed otherwise.
pub(crate) fn describe_refusal(error: &ApiError, what: &str) -> String {
    match error.code() {
        Some(403) => format!("You may not {what}"),
        _ => format!("It was not possible to {what} ({error})"),
    }
}

/// What is not known without a kind.
const fn describe_unknown(kind: Kind) -> &'static str {
    match kind {
        Kind::Nodes => "it is not known whether nodes are Ready",
        Kind::NodeLeases => {
            "it is not known when kubelets renewed their Leases, and without that nothing is decided about missing nodes"
        }
        Kind::Pods => "what else runs on its node is not counted",
        Kind::Budgets => "the answer to an eviction is not known",
        Kind::Deployments | Kind::ReplicaSets | Kind::StatefulSets | Kind::ReplicationControllers => {
            "the owners of pods are known only in part"
        }
        Kind::FenceDevices | Kind::FencePolicies | Kind::NodeFences | Kind::FenceEvidences | Kind::Remediations => {
            "the state of fencing is not known"
        }
        Kind::Volumes | Kind::Claims | Kind::Attachments | Kind::VolumeLeases => {
            "the owners of its volumes are not known"
        }
        Kind::EvictionRequests | Kind::Evictions => "it is not known who asks for evictions",
    }
}

/// What the policy about force deletions does, by its bindings.
fn force_delete_policy(bindings: &[Value]) -> Policies {
    let of_it = |binding: &&Value| {
        let policy = binding.pointer("/spec/policyName").and_then(Value::as_str);
        policy.is_some_and(|name| name.ends_with("-force-delete"))
    };
    let policy_bindings: Vec<&Value> = bindings.iter().filter(of_it).collect();
    let denies = |binding: &&Value| {
        let actions = binding.pointer("/spec/validationActions").and_then(Value::as_array);
        actions.is_some_and(|actions| actions.iter().any(|action| action == "Deny"))
    };
    match (policy_bindings.is_empty(), policy_bindings.iter().any(denies)) {
        (true, _) => Policies::Absent,
        (false, true) => Policies::Deny,
        (false, false) => {
            let made = |binding: &&Value| binding.pointer("/metadata/creationTimestamp")?.as_str()?.parse().ok();
            Policies::Audit { since: policy_bindings.iter().filter_map(made).min() }
        }
    }
}

/// What is known of the processes of pod-safety.
struct OwnProcesses {
    settings: Settings,
    running: Running,
    controllers: Vec<Name>,
    /// `None`: their flags are not known.
    fenced_from: Option<BTreeSet<String>>,
    account: String,
    pods: Vec<Value>,
    lease: Option<Value>,
    election: Option<LeaseConfig>,
}

/// Which processes run, and with which settings: by the arguments of the pods of pod-safety, parsed as `run` parses
/// them.
async fn read_running(session: &Session, wall: Timestamp, refused: &mut Vec<String>) -> OwnProcesses {
    let mut running = Running::default();
    let mut config = run::parse_config(&[]);
    let pods = own_pods(session).await;
    if let Err(error) = &pods {
        let refusal = describe_refusal(error, "list pods in all namespaces");
        refused.push(format!("{refusal}: the mode of pod-safety is not known."));
    }
    // The arguments of the pods name their Lease.
    let lease_is_known = pods.is_ok();
    let pods = pods.unwrap_or_default();
    running.installation = Installation::from_pods(&pods);
    running.count_standbys(&pods);
    for flags in pods.iter().filter_map(arguments).filter_map(|args| run::parse_config(&args)) {
        running.mode = Some(flags.mode);
        config = Some(flags);
    }
    let election = config.as_ref().and_then(|config| config.lease.clone());
    let mut held = None;
    if let Some(LeaseConfig { namespace, name, .. }) = &election {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
        match session.get_raw(&path).await {
            Ok(lease) => {
                running.set_leader(&lease, &pods, wall);
                held = running.leader.is_some().then_some(lease);
            }
            Err(error) if error.is_not_found() => running.lease_unread = !lease_is_known,
            Err(error) => {
                running.lease_unread = true;
                let refusal = describe_refusal(&error, &format!("read the lease {namespace}/{name}"));
                refused.push(format!("{refusal}: the leader is not known."));
            }
        }
    } else {
        running.set_only_replica(&pods);
    }
    let account =
        pods.first().and_then(account).unwrap_or_else(|| "system:serviceaccount:pod-safety:pod-safety".to_owned());
    let mut controllers = config.as_ref().map_or(Vec::new(), |config| config.controllers.clone());
    let has_flags = running.mode.is_some();
    let fenced_from = config.as_ref().filter(|_| has_flags).map(|config| config.settings.fencing_namespaces.clone());
    // A leader without a pod has its settings in its Lease.
    if let Some(leader) = held.as_ref().filter(|_| !has_flags).and_then(LeaderSettings::from_lease) {
        running.mode = Some(leader.mode);
        controllers = leader.controllers;
    }
    running.without_fencing = !controllers.is_empty() && !controllers.contains(&Name::Fencing);
    let settings = config.map_or_else(Settings::default, |config| Settings {
        mode: running.mode.unwrap_or(config.mode),
        pod_gc: config.settings.pod_gc,
        node_lifecycle: config.settings.node_lifecycle,
    });
    OwnProcesses { settings, running, controllers, fenced_from, account, pods, lease: held, election }
}

/// The line below what a command wrote for the controllers, if none of them leads; empty if one does, or it is not known.
pub(crate) async fn missing_leader(session: &Session) -> &'static str {
    let (session, _version) = &session.with_server_clock().await;
    let running = read_running(session, session.env.clock.wall(), &mut Vec::new()).await.running;
    match running.has_no_leader() {
        true if running.mode == Some(Mode::Observe) => "pod-safety runs in the mode observe: nothing happens.\n",
        true => "No leader: nothing happens until one runs (pod-safety doctor).\n",
        false => "",
    }
}

/// The pods of pod-safety: those with its label and with the account to which its ClusterRoleBindings grant its rights.
/// Any tenant may set the label, but only a cluster admin may bind roles. If the bindings cannot be read, the label has
/// to suffice.
pub(crate) async fn own_pods(session: &Session) -> Result<Vec<Value>, ApiError> {
    let pods = session.items(&format!("/api/v1/pods?{OWN_LABEL}")).await?;
    let bindings = format!("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings?{OWN_LABEL}");
    Ok(match session.items(&bindings).await {
        Ok(bindings) if !bindings.is_empty() => keep_bound(pods, &bindings),
        _ => pods,
    })
}

fn keep_bound(mut pods: Vec<Value>, bindings: &[Value]) -> Vec<Value> {
    let subjects = bindings.iter().filter_map(|binding| binding["subjects"].as_array()).flatten();
    let accounts: BTreeSet<String> = subjects
        .filter(|one| one["kind"] == "ServiceAccount")
        .filter_map(|one| account_of(one["namespace"].as_str()?, one["name"].as_str()?))
        .collect();
    pods.retain(|pod| account(pod).is_some_and(|account| accounts.contains(&account)));
    pods
}

/// The user name of a pod's ServiceAccount.
fn account(pod: &Value) -> Option<String> {
    account_of(pod["metadata"]["namespace"].as_str()?, pod["spec"]["serviceAccountName"].as_str()?)
}

fn account_of(namespace: &str, name: &str) -> Option<String> {
    (!namespace.is_empty() && !name.is_empty()).then(|| format!("system:serviceaccount:{namespace}:{name}"))
}

/// The arguments of `run` in a pod of pod-safety. Its environment variables count as arguments, as they do for `run`.
fn arguments(pod: &Value) -> Option<Vec<String>> {
    let containers = pod.pointer("/spec/containers")?.as_array()?;
    let is_run = |container: &&Value| container.pointer("/args/0").is_some_and(|first| first == "run");
    let container = containers.iter().find(is_run)?;
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|one| one.as_str().map(str::to_owned)).collect()
    };
    let mut args: Vec<String> = texts(&container["args"]).into_iter().skip(1).collect();
    for variable in container["env"].as_array().into_iter().flatten() {
        let (Some(name), Some(value)) = (variable["name"].as_str(), variable["value"].as_str()) else {
            continue;
        };
        let Some(flag) = name.strip_prefix("POD_SAFETY_") else { continue };
        let flag = format!("--{}", flag.to_lowercase().replace('_', "-"));
        if !args.iter().any(|arg| arg.split('=').next() == Some(&flag)) {
            args.push(format!("{flag}={value}"));
        }
    }
    Some(args)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::untrusted_text::{objects, run_command, server};

    /// With the label alone, a pod of a tenant determined the reported mode of pod-safety, and its logs were collected.
    #[test]
    fn attack_a_foreign_pod_with_the_label_of_pod_safety_is_ignored() {
        let pod = |namespace: &str, account: &str| json!({ "metadata": { "namespace": namespace, "name": "pod-safety-1" }, "spec": { "serviceAccountName": account } });
        let subject = json!({ "kind": "ServiceAccount", "namespace": "ours", "name": "pod-safety" });
        let bindings = [json!({ "subjects": [subject] }), json!({ "subjects": null })];
        let pods = vec![pod("tenant", "pod-safety"), pod("ours", "pod-safety"), pod("ours", "default")];
        assert_eq!(keep_bound(pods, &bindings), [pod("ours", "pod-safety")]);
    }

    #[test]
    fn arguments_of_a_pod_include_its_environment_variables() {
        let pod = json!({ "spec": { "containers": [{ "name": "pod-safety", "args": ["run", "--mode=replace", "--pod-gc-quarantine=7s"],
            "env": [{ "name": "POD_SAFETY_MODE", "value": "observe" }, { "name": "POD_SAFETY_TRUST_OUT_OF_SERVICE_TAINT", "value": "true" },
                { "name": "POD_SAFETY_NODE_NAME", "valueFrom": {} }] }] } });
        let config = run::parse_config(&arguments(&pod).unwrap()).unwrap();
        assert_eq!(config.mode.name(), "replace");
        assert_eq!(config.settings.pod_gc.quarantine.as_secs(), 7);
        assert!(config.settings.pod_gc.trust_out_of_service_taint);
    }

    #[test]
    fn a_policy_that_only_warns_is_not_deny() {
        let binding = |actions: Value| {
            json!({ "metadata": { "creationTimestamp": "2026-01-01T00:00:00Z" },
                "spec": { "policyName": "pod-safety-force-delete", "validationActions": actions } })
        };
        let since = "2026-01-01T00:00:00Z".parse().ok();
        assert_eq!(force_delete_policy(&[]), Policies::Absent);
        assert_eq!(force_delete_policy(&[binding(json!(["Warn", "Audit"]))]), Policies::Audit { since });
        assert_eq!(force_delete_policy(&[binding(json!(["Deny", "Audit"]))]), Policies::Deny);
    }

    #[test]
    fn a_lease_that_was_not_renewed_has_no_leader() {
        let wall: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let lease = |renewed: &str| json!({ "spec": { "holderIdentity": "pod-safety-x_00ff", "renewTime": renewed, "leaseDurationSeconds": 15 } });
        let pods = [json!({ "metadata": { "name": "pod-safety-x" }, "spec": { "nodeName": "a" } })];
        let mut running = Running::default();
        running.set_leader(&lease("2026-01-01T00:00:55.000000Z"), &pods, wall);
        assert_eq!((running.leader.as_deref(), running.leader_node.as_deref()), (Some("pod-safety-x"), Some("a")));
        let mut running = Running::default();
        running.set_leader(&lease("2026-01-01T00:00:30.000000Z"), &pods, wall);
        assert!(running.leader.is_none() && running.stale.is_some());
    }

    /// `confirm-down` printed that nothing happens until a leader runs, and the pods were force deleted.
    #[test]
    fn bug_a_replica_without_leader_election_was_taken_for_a_missing_leader() {
        const NONE: &str = "No leader: nothing happens until one runs";
        const OBSERVES: &str = "pod-safety runs in the mode observe: nothing happens.";
        for (flag, ready, expected) in [
            ("--leader-elect=false", "True", ""),
            ("--leader-elect=false", "False", NONE),
            ("--leader-elect=true", "True", NONE),
            ("--mode=observe", "True", OBSERVES),
        ] {
            let mut all = objects();
            for lease in all.get_mut("/apis/coordination.k8s.io/v1/leases").unwrap() {
                if lease["metadata"]["name"] == "pod-safety" {
                    lease["spec"]["renewTime"] = json!("2001-01-01T00:00:00.000000Z");
                }
            }
            for pod in all.get_mut("/api/v1/pods").unwrap() {
                if pod["metadata"]["name"] == "pod-safety-x" {
                    pod["spec"]["containers"][0]["args"] = json!(["run", "--fencing-namespaces=fence", flag]);
                    pod["status"]["conditions"][0]["status"] = json!(ready);
                }
            }
            let cluster = server(all, "v1.37.2".to_owned(), false);
            let line = "confirm-down worker-b1 --reason r --listen 1s --confirm 'worker-b1 is off'";
            let (code, text) = run_command(line, &cluster);
            assert_eq!(code, 0, "{text}");
            for known in [NONE, OBSERVES] {
                assert_eq!(text.contains(known), known == expected, "{flag} {ready}: {text}");
            }
            let (_, status) = run_command("status", &cluster);
            assert_eq!(status.contains("✖ pod-safety   No leader"), expected == NONE, "{flag} {ready}: {status}");
        }
    }
}
