#!/usr/bin/env bash
# Writes go.mod and go.sum of this folder as they would be with another version of Kubernetes.
#
#   tests/control-plane/tools/kubernetes/module.sh VERSION FOLDER      writes them there
#   tests/control-plane/tools/kubernetes/module.sh --sums VERSION…     adds the checksums of these versions to versions.sum
#
# Kubernetes' own go.mod has the version of each dependency, so nothing is resolved here and a build is the same every day.
# What Kubernetes keeps in its folder staging/ is published as modules of the same release. The go.sum that comes with its source
# has the checksums of all dependencies but these; versions.sum has those of Kubernetes and of these. Only `--sums` asks Go's
# checksum database.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export GOWORK=off

die() { printf 'module.sh: %s\n' "$*" >&2; exit 1; }

write() { # version, folder
    local staging=v0.${1#v1.} source
    source=$(cd "$2" && go mod download -json "k8s.io/kubernetes@$1" | sed -n 's|^\t"Dir": "\(.*\)",\?$|\1|p') && [ -n "$source" ] ||
        die "Go's module proxy does not have k8s.io/kubernetes $1"
    # No program needs the samples, and not every release of them is published.
    sed -e 's|^module .*|module pod-safety/tests/control-plane/tools/kubernetes|' -e '/k8s\.io\/sample-/d' \
        -e "s|^\(\tk8s\.io/[a-z-]*\) v0\.0\.0\( // indirect\)\?\$|\1 $staging\2|" \
        -e "s|=> \./staging/src/\(k8s\.io/[a-z-]*\)\$|=> \1 $staging|" "$source/go.mod" >"$2/go.mod"
    printf '\nrequire k8s.io/kubernetes %s\n\nexclude k8s.io/sample-apiserver v0.0.0\n' "$1" >>"$2/go.mod"
    cat "$source/go.sum" "$here/versions.sum" >"$2/go.sum"
}

if [ "$1" != --sums ]; then
    write "$1" "$2"
    exit
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for version in "${@:2}"; do
    write "$version" "$scratch"
    sort "$scratch/go.sum" >"$scratch/known"
    (cd "$here" && go list -mod=mod -modfile "$scratch/go.mod" -deps ./loader \
        k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-scheduler,kubectl} >/dev/null)
    sort "$scratch/go.sum" | comm -13 "$scratch/known" - | LC_ALL=C sort -u - "$here/versions.sum" >"$scratch/versions.sum"
    cat "$scratch/versions.sum" >"$here/versions.sum"
done
