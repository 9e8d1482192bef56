#!/usr/bin/env bash
# `make kind-delete`: the cluster goes, whatever state it is in, and the daemon that was started for it. What took long
# to make stays: images in target/kind until `make clean`, programs in .cache/kind.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/state.sh"

"$here/bmc.sh" down
if [ -x "$kind_state/programs/kind" ] && "$here/with.sh" docker version >/dev/null 2>&1; then
    "$here/with.sh" kind delete cluster --name "$kind_cluster"
fi
[ ! -e "$kind_state/daemon" ] || "$here/daemon.sh" down
rm -f "$kind_state/created" "$kind_state/fencing.yaml" "$kubeconfig"
rm -rf "$kind_state"/{node,rust}.???????? # what was being made when somebody killed it
