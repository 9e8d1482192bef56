//! The controllers, the requests that each sends, and what ends them. `source` names the code that sends them in this order.

use pod_safety_control_plane::workloads::Kind;

pub(super) const NODE: &str = "/api/v1/nodes/w1";
pub(super) const POD: &str = "/api/v1/namespaces/shop/pods/db-0";
const EVICTION: &str = "/api/v1/namespaces/shop/pods/db-0/eviction";
const STATUS: &str = "/api/v1/namespaces/shop/pods/db-0/status";
const PODS_THERE: &str = "/api/v1/namespaces/shop/pods?fieldSelector=spec.nodeName%3Dw1";
const CLAIM: &str = "/apis/karpenter.sh/v1/nodeclaims/default-x7";
const MACHINE: &str = "/apis/machine.openshift.io/v1beta1/namespaces/pod-safety/machines/worker-a";
const FAR: &str = "/apis/fence-agents-remediation.medik8s.io/v1alpha1/namespaces/pod-safety/fenceagentsremediations/w1";
const FAR_STATUS: &str =
    "/apis/fence-agents-remediation.medik8s.io/v1alpha1/namespaces/pod-safety/fenceagentsremediations/w1/status";
const SNR: &str = "/apis/self-node-remediation.medik8s.io/v1alpha1/namespaces/pod-safety/selfnoderemediations/w1";
const SNR_STATUS: &str =
    "/apis/self-node-remediation.medik8s.io/v1alpha1/namespaces/pod-safety/selfnoderemediations/w1/status";
const SBR: &str =
    "/apis/storage-based-remediation.medik8s.io/v1alpha1/namespaces/pod-safety/storagebasedremediations/w1";
const SBR_STATUS: &str =
    "/apis/storage-based-remediation.medik8s.io/v1alpha1/namespaces/pod-safety/storagebasedremediations/w1/status";

const NOTHING: &str = "";
/// Each controller reads the pod before it deletes it, so the request has the UID.
const AT_ONCE: &str = r#"{"gracePeriodSeconds":0,"preconditions":{"uid":"UID"}}"#;
const IN_A_SECOND: &str = r#"{"gracePeriodSeconds":1,"preconditions":{"uid":"UID"}}"#;
const EVICTS_AT_ONCE: &str = r#"{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"db-0","namespace":"shop"},"deleteOptions":{"gracePeriodSeconds":0,"preconditions":{"uid":"UID"}}}"#;
const EVICTS_IN_A_SECOND: &str = r#"{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"db-0","namespace":"shop"},"deleteOptions":{"gracePeriodSeconds":1,"preconditions":{"uid":"UID"}}}"#;
const EVICTS: &str = r#"{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"db-0","namespace":"shop"},"deleteOptions":{"gracePeriodSeconds":30,"preconditions":{"uid":"UID"}}}"#;
const FAILED: &str = r#"{"metadata":{"uid":"UID"},"status":{"phase":"Failed"}}"#;
const CORDON: &str = r#"{"spec":{"unschedulable":true}}"#;
const KEEPS: &str = r#"{"metadata":{"finalizers":["karpenter.sh/termination"]}}"#;
const LETS_GO: &str = r#"{"metadata":{"finalizers":null}}"#;
const FAR_ACTED: &str = r#"{"status":{"conditions":[{"type":"FenceAgentActionSucceeded","status":"True"}]}}"#;
const FAR_SUCCEEDED: &str = r#"{"status":{"conditions":[{"type":"FenceAgentActionSucceeded","status":"True"},{"type":"Succeeded","status":"True"}]}}"#;
const SBR_FENCED: &str = r#"{"status":{"conditions":[{"type":"FencingSucceeded","status":"True"}]}}"#;
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

const SWITCHED_OFF: Reason = Reason::Evidence("PowerOff");
const CLAIMED: Reason = Reason::Evidence("Remediated");
const NODE_GONE: Reason = Reason::Reports("does not exist");
const TAINTED: Reason = Reason::Reports("accepts as proof");

/// Why the pod may be removed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reason {
    /// There is a FenceEvidence of this kind. After pod-safety has set the pod to `Failed`, other controllers may remove it, too.
    Evidence(&'static str),
    /// The Event of the release contains this text.
    Reports(&'static str),
}

/// The next action of a controller.
pub(super) enum Step {
    /// Sends a request until it is allowed; or, if this policy denies the first one, until the pod is gone.
    Sends(&'static str, &'static str, &'static str, Option<&'static str>),
    /// Sends a request that is denied, and continues.
    Once(&'static str, &'static str, &'static str, &'static str),
    /// Adds a taint, unless it exists; this policy denies it at first.
    Taints(&'static str, &'static str, Option<&'static str>),
    /// The machine is switched off, or its instance terminated.
    Off,
    /// Waits until pod-safety has deleted this object.
    Deleted(&'static str),
    /// Waits until pod-safety has created this object.
    Exists(&'static str),
    /// Waits until the pod is gone.
    PodGone,
}

impl Step {
    /// The policy that denies it at first.
    pub(super) const fn refused(&self) -> Option<&'static str> {
        match *self {
            Self::Sends(_, _, _, policy) | Self::Taints(_, _, policy) => policy,
            Self::Once(_, _, _, policy) => Some(policy),
            Self::Off | Self::Deleted(_) | Self::Exists(_) | Self::PodGone => None,
        }
    }
}

/// The source of evidence that the machine is off.
pub(super) enum Proof {
    /// No FencePolicy selects the node.
    None,
    /// A separate fence device.
    Switch,
    /// The object of another project that represents the machine.
    Object { driver: &'static str, kind: Kind, at: &'static str, object: &'static str, role: &'static str },
    /// A remediator of medik8s: its kind, and that of its template.
    Remediator([Kind; 2]),
}

pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) account: &'static str,
    pub(super) source: &'static str,
    /// Values of the chart besides `action=Deny`.
    pub(super) set: &'static str,
    pub(super) flags: &'static [&'static str],
    pub(super) proof: Proof,
    pub(super) reason: Reason,
    pub(super) script: &'static [Step],
}

impl Row {
    const fn new(name: &'static str, account: &'static str, source: &'static str, script: &'static [Step]) -> Self {
        let (set, flags, proof, reason) = ("", &[], Proof::Switch, SWITCHED_OFF);
        Self { name, account, source, set, flags, proof, reason, script }
    }

    const fn proved(self, proof: Proof, because: Reason) -> Self {
        Self { proof, reason: because, ..self }
    }

    const fn with_settings(self, set: &'static str, flags: &'static [&'static str]) -> Self {
        Self { set, flags, ..self }
    }
}

pub(super) fn row(name: &str) -> &'static Row {
    ROWS.iter().find(|row| row.name == name).unwrap()
}

const fn far(kind: &'static str, plural: &'static str) -> Kind {
    Kind::custom("fence-agents-remediation.medik8s.io/v1alpha1", kind, plural)
}

const fn snr(kind: &'static str, plural: &'static str) -> Kind {
    Kind::custom("self-node-remediation.medik8s.io/v1alpha1", kind, plural)
}

const fn sbr(kind: &'static str, plural: &'static str) -> Kind {
    Kind::custom("storage-based-remediation.medik8s.io/v1alpha1", kind, plural)
}

const REMEDIATORS: [[Kind; 2]; 3] = [
    [
        far("FenceAgentsRemediation", "fenceagentsremediations"),
        far("FenceAgentsRemediationTemplate", "fenceagentsremediationtemplates"),
    ],
    [
        snr("SelfNodeRemediation", "selfnoderemediations"),
        snr("SelfNodeRemediationTemplate", "selfnoderemediationtemplates"),
    ],
    [
        sbr("StorageBasedRemediation", "storagebasedremediations"),
        sbr("StorageBasedRemediationTemplate", "storagebasedremediationtemplates"),
    ],
];

const NODE_CLAIM: Proof = Proof::Object {
    driver: "NodeClaim",
    kind: Kind::custom("karpenter.sh/v1", "NodeClaim", "nodeclaims"),
    at: CLAIM,
    object: r#"{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim",
        "metadata":{"name":"default-x7","finalizers":["karpenter.sh/termination"]},
        "spec":{"nodeClassRef":{"group":"karpenter.k8s.aws","kind":"EC2NodeClass","name":"default"}},
        "status":{"nodeName":"w1","providerID":"cloud:///w1"}}"#,
    role: "pod-safety-fencing-nodeclaims",
};
const OPENSHIFT_MACHINE: Proof = Proof::Object {
    driver: "OpenShiftMachine",
    kind: Kind::custom("machine.openshift.io/v1beta1", "Machine", "machines"),
    at: MACHINE,
    object: r#"{"apiVersion":"machine.openshift.io/v1beta1","kind":"Machine",
        "metadata":{"namespace":"pod-safety","name":"worker-a","finalizers":["machine.machine.openshift.io"]},
        "spec":{"providerID":"cloud:///w1","providerSpec":{"value":{
            "apiVersion":"machine.openshift.io/v1beta1","kind":"AWSMachineProviderConfig"}}},
        "status":{"nodeRef":{"kind":"Node","name":"w1"}}}"#,
    role: "pod-safety-fencing-openshift-machines",
};

const KARPENTER: &str = "system:serviceaccount:kube-system:karpenter";
const MACHINE_API: &str = "system:serviceaccount:openshift-machine-api:machine-api-controllers";
const MCM: &str = "system:serviceaccount:kube-system:machine-controller-manager";
const CCM: &str = "system:serviceaccount:kube-system:cloud-controller-manager";

pub(super) static ROWS: [Row; 17] = [
    Row::new(
        "karpenter",
        KARPENTER,
        "kubernetes-sigs/karpenter@22664681 pkg/controllers/nodeclaim/lifecycle finalize, node/termination finalize",
        &[
            Step::Sends("PATCH", NODE, KEEPS, None),
            Step::Deleted(CLAIM),
            Step::Sends("DELETE", NODE, NOTHING, None),
            Step::Taints("karpenter.sh/disrupted", "NoSchedule", None),
            Step::Off,
            Step::Sends("PATCH", NODE, LETS_GO, None),
            Step::Sends("PATCH", CLAIM, LETS_GO, None),
        ],
    )
    .proved(NODE_CLAIM, NODE_GONE),
    Row::new(
        "karpenter_repair",
        KARPENTER,
        "kubernetes-sigs/karpenter@22664681 pkg/controllers/node/health Reconcile, node/termination/terminator forceDelete",
        &[
            Step::Sends("PATCH", NODE, KEEPS, None),
            Step::Sends("DELETE", NODE, NOTHING, None),
            Step::Taints("karpenter.sh/disrupted", "NoSchedule", None),
            Step::Sends("DELETE", POD, IN_A_SECOND, None),
            Step::Off,
            Step::Sends("PATCH", NODE, LETS_GO, None),
        ],
    )
    .proved(Proof::None, NODE_GONE),
    Row::new(
        "cluster_autoscaler",
        "system:serviceaccount:kube-system:cluster-autoscaler",
        "kubernetes/autoscaler@1d0777f7 cluster-autoscaler/core/scaledown/actuation/drain.go drainNode",
        &[
            Step::Taints("ToBeDeletedByClusterAutoscaler", "NoSchedule", None),
            Step::Sends("POST", EVICTION, EVICTS, None),
            Step::PodGone,
        ],
    ),
    Row::new(
        "descheduler",
        "system:serviceaccount:kube-system:descheduler",
        "kubernetes-sigs/descheduler@7d2b28bf pkg/descheduler/evictions/evictions.go evictPod, gracePeriodSeconds: 0",
        &[Step::Sends("POST", EVICTION, EVICTS_AT_ONCE, Some("eviction"))],
    ),
    Row::new(
        "fence_agents_remediation",
        "system:serviceaccount:fence-agents-remediation:fence-agents-remediation-controller-manager",
        "medik8s/fence-agents-remediation@51f603e0 controllers Reconcile, medik8s/common pkg/resources DeletePods",
        &[
            Step::Exists(FAR),
            Step::Taints("medik8s.io/fence-agents-remediation", "NoExecute", None),
            Step::Off,
            Step::Sends("PATCH", FAR_STATUS, FAR_ACTED, None),
            Step::Sends("DELETE", PODS_THERE, r#"{"gracePeriodSeconds":0}"#, Some("force-delete")),
            Step::Sends("PATCH", FAR_STATUS, FAR_SUCCEEDED, None),
        ],
    )
    .proved(Proof::Remediator(REMEDIATORS[0]), CLAIMED),
    Row::new(
        "self_node_remediation",
        "system:serviceaccount:self-node-remediation:self-node-remediation-controller-manager",
        "medik8s/self-node-remediation@640aac50 internal/controller remediateWithResourceRemoval, useOutOfServiceTaint",
        &[
            Step::Exists(SNR),
            Step::Taints("remediation.medik8s.io/self-node-remediation", "NoSchedule", None),
            Step::Sends("PATCH", SNR_STATUS, r#"{"status":{"phase":"Pre-Reboot-Completed"}}"#, None),
            Step::Off,
            Step::Sends("PATCH", SNR_STATUS, r#"{"status":{"phase":"Reboot-Completed"}}"#, None),
            Step::Taints(OUT_OF_SERVICE, "NoExecute", Some("node")),
            Step::PodGone,
            Step::Sends("PATCH", SNR_STATUS, r#"{"status":{"phase":"Fencing-Completed"}}"#, None),
        ],
    )
    .proved(Proof::Remediator(REMEDIATORS[1]), CLAIMED),
    Row::new(
        "storage_based_remediation",
        "system:serviceaccount:sbr-operator-system:sbr-operator-controller-manager",
        "medik8s/storage-based-remediation@0a1dc771 internal/controller Reconcile, ensureOutOfServiceTaint",
        &[
            Step::Exists(SBR),
            Step::Sends("PATCH", NODE, CORDON, None),
            Step::Off,
            Step::Sends("PATCH", SBR_STATUS, SBR_FENCED, None),
            Step::Taints(OUT_OF_SERVICE, "NoExecute", Some("node")),
        ],
    )
    .proved(Proof::Remediator(REMEDIATORS[2]), CLAIMED),
    // The Machine is deleted after its Node: neither waits for the other, because the controller is among the default deleters.
    Row::new(
        "machine_api",
        MACHINE_API,
        "openshift/machine-api-operator@95119612 pkg/controller/machine drainNode, Reconcile",
        &[
            Step::Deleted(MACHINE),
            Step::Sends("PATCH", NODE, CORDON, None),
            Step::Sends("POST", EVICTION, EVICTS_IN_A_SECOND, None),
            Step::Off,
            Step::Sends("DELETE", NODE, NOTHING, None),
            Step::Sends("PATCH", MACHINE, LETS_GO, None),
        ],
    )
    .proved(OPENSHIFT_MACHINE, NODE_GONE),
    Row::new(
        "machine_api_vsphere",
        MACHINE_API,
        "openshift/machine-api-operator@95119612 pkg/controller/vsphere delete, deleteUnevictedPods",
        &[
            Step::Sends("PATCH", NODE, CORDON, None),
            Step::Sends("POST", EVICTION, EVICTS_IN_A_SECOND, None),
            Step::Off,
            Step::Sends("DELETE", POD, AT_ONCE, Some("force-delete")),
            Step::Sends("DELETE", NODE, NOTHING, None),
        ],
    ),
    Row::new(
        "machine_controller_manager",
        MCM,
        "gardener/machine-controller-manager@54caf546 pkg/util/provider/machinecontroller drainNode, deleteVM, deleteNodeObject",
        &[
            Step::Sends("PATCH", NODE, CORDON, None),
            Step::Once("DELETE", POD, AT_ONCE, "force-delete"),
            Step::Off,
            Step::Sends("DELETE", NODE, NOTHING, Some("node")),
        ],
    ),
    Row::new(
        "machine_controller_manager_listed",
        MCM,
        "gardener/machine-controller-manager@54caf546, as above",
        &[
            Step::Sends("PATCH", NODE, CORDON, None),
            Step::Once("DELETE", POD, AT_ONCE, "force-delete"),
            Step::Off,
            Step::Sends("DELETE", NODE, NOTHING, None),
        ],
    )
    .with_settings(",admissionPolicies.nodeDeleters={machine-controller-manager}", &[])
    .proved(Proof::None, NODE_GONE),
    Row::new(
        "cloud_node_lifecycle",
        "system:serviceaccount:kube-system:node-controller",
        "kubernetes/cloud-provider controllers/nodelifecycle MonitorNodes",
        &[Step::Off, Step::Sends("DELETE", NODE, NOTHING, None)],
    )
    .proved(Proof::None, NODE_GONE),
    Row::new(
        "azure_cloud_controller_manager",
        CCM,
        "kubernetes-sigs/cloud-provider-azure#4508 pkg/provider/azure.go updateNodeTaint",
        &[Step::Off, Step::Taints(OUT_OF_SERVICE, "NoExecute", Some("node"))],
    ),
    Row::new(
        "azure_cloud_controller_manager_listed",
        CCM,
        "kubernetes-sigs/cloud-provider-azure#4508, as above",
        &[Step::Off, Step::Taints(OUT_OF_SERVICE, "NoExecute", None)],
    )
    .with_settings(
        ",admissionPolicies.outOfServiceTainters={system:serviceaccount:kube-system:cloud-controller-manager},controllers.podGc.trustOutOfServiceTaint=true",
        &["--trust-out-of-service-taint"],
    )
    .proved(Proof::None, TAINTED),
    Row::new(
        "longhorn",
        "system:serviceaccount:longhorn-system:longhorn-service-account",
        "longhorn/longhorn-manager@5ddaa369 controller/kubernetes_pod_controller.go handlePodDeletionIfNodeDown",
        &[Step::Sends("DELETE", POD, AT_ONCE, Some("force-delete"))],
    ),
    Row::new(
        "piraeus_ha_controller",
        "system:serviceaccount:piraeus-datastore:ha-controller",
        "piraeusdatastore/piraeus-ha-controller@2f09cfaa pkg/agent/reconcile_failover.go evictPods",
        &[
            Step::Taints("drbd.linbit.com/lost-quorum", "NoSchedule", None),
            Step::Sends("DELETE", POD, AT_ONCE, Some("force-delete")),
        ],
    ),
    Row::new(
        "kueue",
        "system:serviceaccount:kueue-system:kueue-controller-manager",
        "kubernetes-sigs/kueue@v0.17.0 pkg/controller/failurerecovery Reconcile",
        &[Step::Sends("PATCH", STATUS, FAILED, Some("terminal-phase"))],
    ),
];
