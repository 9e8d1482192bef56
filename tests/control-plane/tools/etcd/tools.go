//go:build tools

// Package tools pins the etcd server that the control-plane suite runs. It is
// a module of its own because Kubernetes pins an older etcd client.
package tools

import _ "go.etcd.io/etcd/server/v3"
