package main

import (
	"fmt"
	"iter"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/google/uuid"
)

const (
	leaseNamespace = "kube-node-lease"
	// zones are what outage handling counts nodes by; three is the usual number.
	zones = 3
	// imagesPerNode is what a kubelet reports at most, and the bulk of a node object.
	imagesPerNode = 50
	// leaseSeconds is the kubelet's default.
	leaseSeconds = 40
)

var nodeConditions = []struct {
	kind            corev1.NodeConditionType
	status          corev1.ConditionStatus
	reason, message string
}{
	{corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"},
	{corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"},
	{corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"},
	{corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"},
}

func nodeName(i int) string { return "node-" + strconv.Itoa(i) }

// nodeIP gives each of up to 65,536 nodes an address of its own in 10.0.0.0/16.
func nodeIP(i int) string { return fmt.Sprintf("10.0.%d.%d", i>>8&0xff, i&0xff) }

func nodeRecords(p *plan, now time.Time) iter.Seq[record] {
	return func(yield func(record) bool) {
		fields, images := nodeStatusFields(), nodeImages()
		for i := range p.nodes {
			node := newNode(i, now, fields, images)
			if !yield(record{"/registry/minions/" + node.Name, node}) {
				return
			}
			if !p.leases {
				continue
			}
			lease := newLease(node, now)
			if !yield(record{"/registry/leases/" + leaseNamespace + "/" + lease.Name, lease}) {
				return
			}
		}
	}
}

func newNode(i int, now time.Time, fields []byte, images []corev1.ContainerImage) *corev1.Node {
	name := nodeName(i)
	meta := objectMeta("", name, now)
	meta.Labels = map[string]string{
		corev1.LabelHostname:           name,
		corev1.LabelTopologyZone:       "zone-" + strconv.Itoa(i%zones),
		corev1.LabelTopologyRegion:     "region",
		corev1.LabelInstanceTypeStable: "large",
		corev1.LabelOSStable:           "linux",
		corev1.LabelArchStable:         "amd64",
	}
	meta.Annotations = map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
	meta.ManagedFields = []metav1.ManagedFieldsEntry{managed("kubelet", "status", now, fields)}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("64"),
		corev1.ResourceMemory:           resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("500Gi"),
		corev1.ResourcePods:             resource.MustParse("256"),
	}
	cidr := fmt.Sprintf("10.%d.%d.0/24", 1+i>>8&0x7f, i&0xff)
	return &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: meta,
		Spec:       corev1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}, ProviderID: "load:///" + name},
		Status: corev1.NodeStatus{
			Capacity:        capacity,
			Allocatable:     capacity,
			Conditions:      newNodeConditions(now),
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeIP(i)}, {Type: corev1.NodeHostName, Address: name}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: uuid.NewString(), SystemUUID: uuid.NewString(), BootID: uuid.NewString(),
				KernelVersion: "6.12.0", OSImage: "Linux", OperatingSystem: "linux", Architecture: "amd64",
				ContainerRuntimeVersion: "containerd://2.2.0", KubeletVersion: "v1.37.2",
			},
			Images: images,
		},
	}
}

func newNodeConditions(now time.Time) []corev1.NodeCondition {
	at := metav1.NewTime(now)
	conditions := make([]corev1.NodeCondition, 0, len(nodeConditions))
	for _, c := range nodeConditions {
		conditions = append(conditions, corev1.NodeCondition{
			Type: c.kind, Status: c.status, Reason: c.reason, Message: c.message,
			LastHeartbeatTime: at, LastTransitionTime: at,
		})
	}
	return conditions
}

func nodeImages() []corev1.ContainerImage {
	images := make([]corev1.ContainerImage, 0, imagesPerNode)
	for i := range imagesPerNode {
		name := fmt.Sprintf("registry.example/team-%d/service", i)
		images = append(images, corev1.ContainerImage{
			Names:     []string{fmt.Sprintf("%s@sha256:%064x", name, i), fmt.Sprintf("%s:v1.%d", name, i)},
			SizeBytes: 128 << 20,
		})
	}
	return images
}

func nodeStatusFields() []byte {
	paths := each([]string{"f:status", "f:allocatable"}, "f:cpu", "f:ephemeral-storage", "f:memory", "f:pods")
	paths = append(paths, each([]string{"f:status", "f:capacity"}, "f:cpu", "f:ephemeral-storage", "f:memory", "f:pods")...)
	for _, c := range nodeConditions {
		item := fmt.Sprintf(`k:{"type":"%s"}`, c.kind)
		paths = append(paths, each([]string{"f:status", "f:conditions", item},
			"f:lastHeartbeatTime", "f:lastTransitionTime", "f:message", "f:reason", "f:status")...)
	}
	paths = append(paths, each([]string{"f:status"}, "f:images")...)
	paths = append(paths, each([]string{"f:status", "f:nodeInfo"}, "f:bootID", "f:machineID", "f:systemUUID")...)
	return fieldSet(paths...)
}

func newLease(node *corev1.Node, now time.Time) *coordinationv1.Lease {
	meta := objectMeta(leaseNamespace, node.Name, now)
	meta.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	meta.ManagedFields = []metav1.ManagedFieldsEntry{managed("kubelet", "", now, fieldSet(
		each([]string{"f:spec"}, "f:holderIdentity", "f:leaseDurationSeconds", "f:renewTime")...))}
	meta.ManagedFields[0].APIVersion = "coordination.k8s.io/v1"
	renewed := metav1.NewMicroTime(now)
	return &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: meta,
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       ptr.To(node.Name),
			LeaseDurationSeconds: ptr.To[int32](leaseSeconds),
			RenewTime:            &renewed,
		},
	}
}
