package main

import (
	"fmt"
	"iter"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/google/uuid"
)

const (
	containersPerPod = 2
	envPerContainer  = 8
	templateHash     = "6d4cf56db6"
	imageDigest      = "registry.example/team/service@sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"
)

var podConditions = []corev1.PodConditionType{
	corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled,
}

// podMaker builds pods; what all of them share is built once.
type podMaker struct {
	now           time.Time
	namespace     string
	containers    []corev1.Container
	managedFields []metav1.ManagedFieldsEntry
}

func newPodMaker(namespace string, now time.Time) *podMaker {
	return &podMaker{
		now:        now,
		namespace:  namespace,
		containers: newContainers(),
		managedFields: []metav1.ManagedFieldsEntry{
			managed("kube-controller-manager", "", now, podSpecFields()),
			managed("kubelet", "status", now, podStatusFields()),
		},
	}
}

func podRecords(p *plan, now time.Time) iter.Seq[record] {
	maker := newPodMaker(p.namespace, now)
	app := func(i int) string { return p.app(i / podsPerApp) }
	host := func(i int) string { return nodeName(i % max(p.nodes, 1)) }
	return func(yield func(record) bool) {
		put := func(pod *corev1.Pod) bool {
			return yield(record{"/registry/pods/" + pod.Namespace + "/" + pod.Name, pod})
		}
		for i := range p.pods {
			if !put(maker.running(p.prefix+"-"+strconv.Itoa(i), host(i), app(i))) {
				return
			}
		}
		for i := range p.orphans {
			pod := maker.running(p.prefix+"-orphan-"+strconv.Itoa(i), "ghost-"+strconv.Itoa(i%p.ghosts), p.prefix+"-orphans")
			pod.Labels["orphan"] = "true"
			if !put(pod) {
				return
			}
		}
		for i := range p.terminated {
			if !put(maker.succeeded(p.prefix+"-done-"+strconv.Itoa(i), host(i), p.prefix+"-done")) {
				return
			}
		}
	}
}

// app is the name of the i-th ReplicaSet, of its label and of its budget.
func (p *plan) app(i int) string { return p.prefix + "-app-" + strconv.Itoa(i) }

func (m *podMaker) running(name, node, app string) *corev1.Pod {
	meta := objectMeta(m.namespace, name, m.now)
	meta.GenerateName = app + "-"
	meta.Labels = map[string]string{"app": app, "tier": "web", "pod-template-hash": templateHash}
	meta.Annotations = map[string]string{"checksum/config": "0a4d55a8d778e5022fab701977c5d840bbc486d0bf2c1f6d4b1f3a8b2d2f4e61"}
	meta.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app, UID: ownerUID(m.namespace, app),
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}}
	meta.ManagedFields = m.managedFields
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: meta,
		Spec:       m.spec(node),
		Status:     m.runningStatus(),
	}
}

// succeeded is a pod that has run to its end and that nothing restarts.
func (m *podMaker) succeeded(name, node, app string) *corev1.Pod {
	pod := m.running(name, node, app)
	pod.OwnerReferences = nil
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Status.Phase = corev1.PodSucceeded
	at := metav1.NewTime(m.now)
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		status.Ready, status.Started = false, ptr.To(false)
		status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason: "Completed", StartedAt: at, FinishedAt: at, ContainerID: status.ContainerID,
		}}
	}
	for i := range pod.Status.Conditions {
		condition := &pod.Status.Conditions[i]
		if condition.Type == corev1.PodReady || condition.Type == corev1.ContainersReady {
			condition.Status, condition.Reason = corev1.ConditionFalse, "PodCompleted"
		}
	}
	return pod
}

func (m *podMaker) spec(node string) corev1.PodSpec {
	tolerate := func(key string) corev1.Toleration {
		return corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300),
		}
	}
	return corev1.PodSpec{
		NodeName:                      node,
		Containers:                    m.containers,
		RestartPolicy:                 corev1.RestartPolicyAlways,
		TerminationGracePeriodSeconds: ptr.To[int64](30),
		DNSPolicy:                     corev1.DNSClusterFirst,
		ServiceAccountName:            "default",
		DeprecatedServiceAccount:      "default",
		SecurityContext:               &corev1.PodSecurityContext{},
		SchedulerName:                 corev1.DefaultSchedulerName,
		Tolerations:                   []corev1.Toleration{tolerate(corev1.TaintNodeNotReady), tolerate(corev1.TaintNodeUnreachable)},
		Priority:                      ptr.To[int32](0),
		EnableServiceLinks:            ptr.To(true),
		PreemptionPolicy:              ptr.To(corev1.PreemptLowerPriority),
	}
}

func (m *podMaker) runningStatus() corev1.PodStatus {
	at := metav1.NewTime(m.now)
	status := corev1.PodStatus{
		Phase:     corev1.PodRunning,
		HostIP:    "10.0.0.1",
		HostIPs:   []corev1.HostIP{{IP: "10.0.0.1"}},
		PodIP:     "10.1.0.1",
		PodIPs:    []corev1.PodIP{{IP: "10.1.0.1"}},
		StartTime: &at,
		QOSClass:  corev1.PodQOSBurstable,
	}
	for _, kind := range podConditions {
		status.Conditions = append(status.Conditions, corev1.PodCondition{
			Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: at,
		})
	}
	for _, container := range m.containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, ImageID: imageDigest,
			ContainerID: "containerd://" + hexID() + hexID(),
			Ready:       true, Started: ptr.To(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
		})
	}
	return status
}

// hexID is half of a container id.
func hexID() string {
	id := uuid.New()
	return fmt.Sprintf("%x", id[:])
}

func newContainers() []corev1.Container {
	containers := make([]corev1.Container, 0, containersPerPod)
	for i := range containersPerPod {
		port := int32(8080 + i)
		container := corev1.Container{
			Name:                     "c" + strconv.Itoa(i),
			Image:                    "registry.example/team/service:v1." + strconv.Itoa(i),
			ImagePullPolicy:          corev1.PullIfNotPresent,
			Ports:                    []corev1.ContainerPort{{Name: "http" + strconv.Itoa(i), ContainerPort: port, Protocol: corev1.ProtocolTCP}},
			TerminationMessagePath:   corev1.TerminationMessagePathDefault,
			TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi"),
			}},
			ReadinessProbe: &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
					Path: "/ready", Port: intstr.FromInt32(port), Scheme: corev1.URISchemeHTTP,
				}},
				TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3,
			},
		}
		for k := range envPerContainer {
			container.Env = append(container.Env, corev1.EnvVar{
				Name: "SETTING_" + strconv.Itoa(k), Value: "a-value-of-an-average-length",
			})
		}
		containers = append(containers, container)
	}
	return containers
}

func podSpecFields() []byte {
	paths := each([]string{"f:metadata"}, "f:generateName")
	paths = append(paths, each([]string{"f:metadata", "f:labels"}, "f:app", "f:pod-template-hash", "f:tier")...)
	for i := range containersPerPod {
		item := []string{"f:spec", "f:containers", fmt.Sprintf(`k:{"name":"c%d"}`, i)}
		for k := range envPerContainer {
			paths = append(paths, each(append(append([]string{}, item...), "f:env", fmt.Sprintf(`k:{"name":"SETTING_%d"}`, k)), "f:name", "f:value")...)
		}
		paths = append(paths, each(item, "f:image", "f:imagePullPolicy", "f:name")...)
		paths = append(paths, each(append(append([]string{}, item...), "f:readinessProbe"),
			"f:failureThreshold", "f:httpGet", "f:periodSeconds", "f:successThreshold", "f:timeoutSeconds")...)
		paths = append(paths, each(item, "f:resources", "f:terminationMessagePath", "f:terminationMessagePolicy")...)
	}
	paths = append(paths, each([]string{"f:spec"},
		"f:dnsPolicy", "f:enableServiceLinks", "f:restartPolicy", "f:schedulerName", "f:securityContext", "f:terminationGracePeriodSeconds")...)
	return fieldSet(paths...)
}

func podStatusFields() []byte {
	var paths [][]string
	for _, kind := range podConditions {
		item := []string{"f:status", "f:conditions", fmt.Sprintf(`k:{"type":"%s"}`, kind)}
		paths = append(paths, each(item, "f:lastProbeTime", "f:lastTransitionTime", "f:status", "f:type")...)
	}
	paths = append(paths, each([]string{"f:status"}, "f:containerStatuses", "f:hostIP", "f:hostIPs", "f:phase", "f:podIP", "f:podIPs", "f:startTime")...)
	return fieldSet(paths...)
}
