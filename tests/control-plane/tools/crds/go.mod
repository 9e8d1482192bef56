// The definitions of the resources of other projects, as they publish them. Nothing of it is compiled.
module pod-safety/tests/control-plane/tools/crds

go 1.26.0

require (
	sigs.k8s.io/cluster-api v1.14.2
	sigs.k8s.io/jobset v0.10.1
	sigs.k8s.io/karpenter v1.14.0
	sigs.k8s.io/kueue v0.17.0
)
