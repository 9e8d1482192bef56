#!/usr/bin/env bash
# Builds the programs of a real control plane (etcd, kube-apiserver, kube-controller-manager,
# kube-scheduler, kubectl), helm, kube-score, a vCenter to be fenced by, and our loader, and keeps definitions of other projects' resources, once, and prints the folder that holds them.
#
# Kubernetes has the version that kubernetes/go.mod pins. KUBERNETES=1.32 selects another one of kubernetes/versions, by
# its minor version or in full; etcd, helm, kube-score and the vCenter are the same for all.
#
# The folder is named by the content of everything that decides what is built, so a change here
# builds anew and two checkouts do not disturb each other. Cold it takes about ten minutes on two
# cores, with Go's own cache warm half a minute, and nothing to build less than 0.2 s.
# POD_SAFETY_TOOLS_CACHE moves the cache away from <repository>/.cache/tools.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${POD_SAFETY_TOOLS_CACHE:-$here/../../../.cache/tools}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)

say() { printf '%s\n' "$*" >&2; }
die() { say "build.sh: $*"; exit 1; }

cd "$here"
pinned=$(sed -n 's|^\tk8s.io/kubernetes v|v|p' kubernetes/go.mod)
asked=${KUBERNETES:-$pinned}
kubernetes=$({ printf '%s\n' "$pinned" && cat kubernetes/versions; } |
    awk -v asked="v${asked#v}" '$0 == asked || index($0, asked ".") == 1' | head -1)
[[ $kubernetes =~ ^v([0-9]+)\.([0-9]+)\. ]] ||
    die "KUBERNETES=$asked is neither $pinned nor one of $(paste -sd' ' kubernetes/versions)"
is_pinned() { [ "$kubernetes" = "$pinned" ]; }

# The content address: names and contents, in an order that no locale changes.
address=$({
    find . -type f \( -name go.mod -o -name go.sum -o -name '*.go' -o -name '*.wsdl' -o -path ./build.sh \) -print0 |
        LC_ALL=C sort -z | xargs -0 sha256sum
    is_pinned || { printf '%s\n' "$kubernetes" && cat kubernetes/module.sh; }
} | sha256sum | cut -c1-16)
finished=$cache/$address

finish() {
    touch "$finished" # says that it is in use; see forget_old
    printf '%s\n' "$finished/bin"
    exit 0
}

# Every change of the loader leaves 400 MB behind. What nobody asked for in a week goes.
forget_old() {
    find "$cache" -mindepth 1 -maxdepth 1 -type d -mtime +7 ! -name "$address" -exec rm -rf {} +
}

[ -d "$finished" ] && finish

command -v go >/dev/null || die "the control-plane tests build Kubernetes from source and need the Go toolchain, but there is no 'go' in PATH."
command -v flock >/dev/null || die "building the tools needs 'flock' (package util-linux), but it is not in PATH."

# Before the lock, which it takes too.
is_pinned || common=$(KUBERNETES='' ./build.sh)

exec 9>"$cache/lock"
flock --nonblock 9 || { say "another build of the tools is running; waiting for it"; flock 9; }
[ -d "$finished" ] && finish

building=$(mktemp -d "$cache/building.XXXXXXXX")
trap 'rm -rf "$building"' EXIT
mkdir "$building/bin"

# The version that a program reports of itself is the one that it is built from.
component=k8s.io/component-base/version
stamp="-X $component.gitVersion=$kubernetes -X $component.gitTreeState=clean"
stamp+=" -X $component.gitMajor=${BASH_REMATCH[1]} -X $component.gitMinor=${BASH_REMATCH[2]}"

# Without -trimpath, which would name a library by the version that is asked for: helm/go.mod replaces those that Kubernetes has
# in another version, and then what both need (two minutes of compiling) is compiled once.
build() { # module folder, linker flags, program, package, more flags
    say "building $3"
    (cd "$1" && GOWORK=off go build "${@:5}" -ldflags "$2" -o "$building/bin/$3" "$4" >&2) || die "$3 does not build; see above."
}
# As a project publishes them, beside the programs.
definitions() { # module of sigs.k8s.io, files in it
    local folder file
    (cd crds && GOWORK=off go mod download "sigs.k8s.io/$1") >&2 || die "sigs.k8s.io/$1 cannot be fetched; see above."
    folder=$(cd crds && GOWORK=off go list -m -f '{{.Dir}}' "sigs.k8s.io/$1")
    for file in "${@:2}"; do
        install -m 644 "$folder/$file" "$building/bin/"
    done
}
of_kubernetes() { # linker flags, program, package
    build kubernetes "$@" "-modfile=$module/go.mod"
}
module=.
if is_pinned; then
    build etcd "-s -w" etcd go.etcd.io/etcd/server/v3
    # It judges a chart by the version of Kubernetes that it was built with, and says its own in `helm version`.
    helm=$(sed -n 's|^require helm.sh/helm/v4 v|v|p' helm/go.mod)
    build helm "-s -w -X helm.sh/helm/v4/internal/version.version=$helm" helm helm.sh/helm/v4/cmd/helm
    build kube-score "-s -w" kube-score github.com/zegl/kube-score/cmd/kube-score
    build vcenter "-s -w" vcenter .
    definitions cluster-api core/config/crd/bases/cluster.x-k8s.io_machines.yaml
    definitions karpenter pkg/apis/crds/karpenter.sh_nodeclaims.yaml
    definitions jobset config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml
    definitions kueue config/components/crd/bases/kueue.x-k8s.io_{resourceflavors,clusterqueues,localqueues,workloads}.yaml
else
    ln "$common"/{etcd,helm,kube-score,vcenter,*.yaml} "$building/bin"
    module=$building/module
    mkdir "$module"
    kubernetes/module.sh "$kubernetes" "$module"
fi
for program in kube-apiserver kube-controller-manager kube-scheduler kubectl; do
    of_kubernetes "-s -w $stamp" "$program" "k8s.io/kubernetes/cmd/$program"
done
of_kubernetes "-s -w" loader ./loader

rm -rf "$building/module"
chmod 755 "$building" # mktemp makes it ours alone; the folder may be shared by users
mv -T "$building" "$finished"
forget_old
finish
