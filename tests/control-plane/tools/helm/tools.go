//go:build tools

// Package tools pins the helm that installs the chart in tests. Its go.mod replaces the libraries that ../kubernetes has in
// another version, so that they are compiled once for both. Another version of either one needs other lines there; with
// none of them helm builds too, and takes two minutes more.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
