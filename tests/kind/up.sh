#!/usr/bin/env bash
# `make kind`: a cluster of three nodes with pod-safety in it, installed as docs/install.md says. What is there already
# stays: run it again after a change and the new image runs. Says at the end what to try, and how long each step took.
#
#   tests/kind/up.sh [FOLDER]      the checkout that is built and installed; without: this one
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/state.sh"
source "$here/steps.sh"
checkout=$(cd "${1:-$repository}" && pwd -P)
source "$here/prepare.sh"

exists() { with kind get clusters 2>/dev/null | grep -qx "$kind_cluster"; }

# Half a cluster is none: what a killed run left is made anew.
create() {
    if exists && [ -e "$kind_state/created" ] && with kubectl get --raw /readyz >/dev/null 2>&1; then
        say "the cluster is there already"
        return
    fi
    with kind delete cluster --quiet --name "$kind_cluster"
    rm -f "$kind_state/created"
    with kind create cluster --name "$kind_cluster" --config "$checkout/charts/kind-cluster.yaml" --wait 180s >&2
    with kubectl wait --for=condition=Ready node --all --timeout=120s >&2
    touch "$kind_state/created"
}

image() { with make --no-print-directory --directory "$checkout" image >&2; }
load() { with kind load docker-image --quiet --name "$kind_cluster" pod-safety:dev; }

# As docs/install.md has it. Pods that run an older image of the same name begin anew.
install() {
    cd "$checkout"
    with helm upgrade --install pod-safety charts/pod-safety --namespace pod-safety --create-namespace --values charts/kind-values.yaml
    with kubectl --namespace pod-safety rollout restart deployment/pod-safety
    with kubectl --namespace pod-safety rollout status deployment/pod-safety --timeout=180s
}

# A test has prepared already, and counts its own steps.
if [ -z "${IN_TEST:-}" ]; then
    rm -f "$steps_taken"
    prepare
fi
step "pod-safety's image" "\`make image\` builds it from the Dockerfile" image
step "the cluster" "three nodes Ready" create
step "each node a machine" "its own boot id after each start" "$here/machines.sh"
step "the image into the nodes" "" load
step "helm install" "two replicas Ready" install
step "helm test" "its pod succeeds" with helm --namespace pod-safety test pod-safety
[ -z "${IN_TEST:-}" ] || exit 0
steps_took

cat <<NEXT

A cluster of three nodes runs, and pod-safety in it. In a shell where kubectl and helm mean it (make kind-shell):

  kubectl get nodes
  kubectl --namespace pod-safety logs deployment/pod-safety --follow
  kubectl --namespace pod-safety exec deployment/pod-safety -- /pod-safety drain $kind_cluster-worker
  docker exec $kind_cluster-worker ip link set eth0 down       # pulls that node's cable; docker restart puts it back

docs/kind.md goes on from here: a power switch for each node, and a StatefulSet that survives the loss of one.
make kind-delete takes all of it away.
NEXT
