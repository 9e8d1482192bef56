package main

import (
	"iter"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// budgetRecords yields for each budget the ReplicaSet too: a budget in percent
// or with maxUnavailable asks the owner of its pods for the wanted number.
func budgetRecords(p *plan, now time.Time) iter.Seq[record] {
	template := newPodMaker(p.namespace, now).spec("")
	return func(yield func(record) bool) {
		for i := range p.pdbs {
			name := p.app(i)
			set := newReplicaSet(p.namespace, name, now, template)
			budget := newBudget(p.namespace, name, now, i)
			if !yield(record{"/registry/replicasets/" + p.namespace + "/" + name, set}) ||
				!yield(record{"/registry/poddisruptionbudgets/" + p.namespace + "/" + name, budget}) {
				return
			}
		}
	}
}

func newReplicaSet(namespace, name string, now time.Time, template corev1.PodSpec) *appsv1.ReplicaSet {
	meta := objectMeta(namespace, name, now)
	meta.UID = ownerUID(namespace, name)
	labels := map[string]string{"app": name}
	return &appsv1.ReplicaSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSet"},
		ObjectMeta: meta,
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To[int32](podsPerApp),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: template},
		},
		Status: appsv1.ReplicaSetStatus{
			Replicas: podsPerApp, ReadyReplicas: podsPerApp, AvailableReplicas: podsPerApp, ObservedGeneration: 1,
		},
	}
}

// newBudget alternates between the two forms that cost a controller
// differently: a number needs only the pods, a percentage their owner too.
func newBudget(namespace, name string, now time.Time, i int) *policyv1.PodDisruptionBudget {
	minAvailable := intstr.FromInt32(2)
	if i%2 == 0 {
		minAvailable = intstr.FromString("10%")
	}
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: objectMeta(namespace, name, now),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &minAvailable,
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
		},
	}
}
