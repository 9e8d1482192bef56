#!/usr/bin/env bash
# Builds kind and, with `node`, the programs of a node that the control plane's own tools lack (kubelet, kubeadm,
# kube-proxy, coredns), once, and prints the folder that holds them. Go makes them from their modules' source.
#
#   tests/kind/programs.sh [node|kubelet|hollow-kubelet]       with kubelet or hollow-kubelet: nothing else, not even kind
#
# Kubernetes has the version that tests/control-plane/tools pins: its go.mod is taken as it is, so nothing can differ. coredns has
# the version that this kubeadm asks for; the file `images` has all that it asks for.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/state.sh"

kind=v0.33.0

module=$here/../control-plane/tools/kubernetes
kubernetes=$(sed -n 's|^\tk8s.io/kubernetes v|v|p' "$module/go.mod")
[[ $kubernetes =~ ^v([0-9]+)\.([0-9]+)\. ]] || die "$module/go.mod does not pin k8s.io/kubernetes"
folder=$kind_cache/programs-kubernetes-$kubernetes-kind-$kind
mkdir -p "$folder"

exec 9>"$folder/lock"
flock 9
scratch=$(mktemp -d "$folder/building.XXXXXXXX")
trap 'rm -rf "$scratch"' EXIT

installed() { # program, package@version
    [ -x "$folder/$1" ] && return
    say "building $1"
    GOBIN=$scratch GOWORK=off go install -trimpath -ldflags '-s -w' "$2" >&2
    mv "$scratch/$1" "$folder/$1"
}

of_kubernetes() { # program
    [ -x "$folder/$1" ] && return
    say "building $1"
    local version=k8s.io/component-base/version
    local stamp="-X $version.gitVersion=$kubernetes -X $version.gitTreeState=clean"
    stamp+=" -X $version.gitMajor=${BASH_REMATCH[1]} -X $version.gitMinor=${BASH_REMATCH[2]}"
    # The checksums of what only these programs need come from Go's own database, into a copy.
    cp "$module/go.mod" "$module/go.sum" "$scratch"
    (cd "$module" && GOWORK=off go build -mod=mod -modfile "$scratch/go.mod" -ldflags "-s -w $stamp" \
        -o "$scratch/$1" "k8s.io/kubernetes/cmd/$1" >&2)
    mv "$scratch/$1" "$folder/$1"
}

# The kubelet's code without containers: see tests/real-nodes/hollow-kubelet. Named by its source, so that a change builds anew.
hollow_kubelet() {
    local source=$here/../real-nodes/hollow-kubelet/main.go
    local built=$folder/hollow-kubelet-$(sha256sum "$source" | cut -c1-12)
    mkdir -p "$built"
    [ -x "$built/hollow-kubelet" ] || {
        say "building hollow-kubelet"
        cp "$module/go.mod" "$module/go.sum" "$source" "$scratch"
        (cd "$scratch" && GOWORK=off go build -mod=mod -ldflags '-s -w' -o hollow-kubelet . >&2)
        mv "$scratch/hollow-kubelet" "$built/hollow-kubelet"
    }
    printf '%s\n' "$built"
}

if [ "${1:-}" = hollow-kubelet ]; then
    hollow_kubelet
    exit
fi
if [ "${1:-}" = kubelet ]; then
    of_kubernetes kubelet
    printf '%s\n' "$folder"
    exit
fi
installed kind "sigs.k8s.io/kind@$kind"
if [ "${1:-}" = node ]; then
    for program in kubelet kubeadm kube-proxy; do of_kubernetes "$program"; done
    # Asked for a version by name, it asks no server.
    "$folder/kubeadm" config images list --kubernetes-version "$kubernetes" >"$scratch/images"
    coredns=$(sed -n 's|.*/coredns:||p' "$scratch/images")
    [ -n "$coredns" ] || die "kubeadm $kubernetes names no coredns: $(cat "$scratch/images")"
    mv "$scratch/images" "$folder/images"
    installed coredns "github.com/coredns/coredns@$coredns"
    # kind's own scripts for the inside of a node are in its module.
    [ -d "$folder/kind-base" ] || {
        source_of_kind=$(GOWORK=off go mod download -json "sigs.k8s.io/kind@$kind" | sed -n 's|^\t"Dir": "\(.*\)",\?$|\1|p')
        cp -r "$source_of_kind/images/base/files" "$scratch/kind-base"
        chmod -R u+w "$scratch/kind-base"
        mv "$scratch/kind-base" "$folder/kind-base"
    }
    printf '%s' "$kubernetes" >"$folder/kubernetes-version"
fi
printf '%s\n' "$folder"
