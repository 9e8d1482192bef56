//go:build tools

// Package tools pins the linter that scores the rendered chart.
package tools

import _ "github.com/zegl/kube-score/cmd/kube-score"
