//go:build tools

// Package tools pins the helm that installs the chart in tests. It is a module
// of its own because helm pins its own libraries of Kubernetes.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
