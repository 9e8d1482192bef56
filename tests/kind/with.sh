#!/usr/bin/env bash
# Runs a command where the cluster is: with its kubeconfig, with kind, kubectl and helm in PATH, with the compiler's image for
# `make image`, and, where the Docker daemon is our own (daemon.sh), with that and in its network.
#
#   tests/kind/with.sh COMMAND…
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/state.sh"

path=$PATH
for programs in "$kind_state/programs" "$kind_state/tools" "$kind_state/shims"; do
    path=$programs:$path # made by prepare.sh
done
environment=(KUBECONFIG="$kubeconfig")
[ ! -s "$kind_state/rust-image" ] || environment+=(RUST_IMAGE="$(cat "$kind_state/rust-image")")
if process=$(noted_process "$kind_state/daemon"); then
    environment+=(DOCKER_HOST="unix://$kind_run/docker.sock" DOCKER_BUILDKIT=1 PATH="$kind_state/docker-programs/usr/bin:$path")
    environment+=(no_proxy='*' NO_PROXY='*')
    exec nsenter --target "$process" --net env "${environment[@]}" "$@"
fi
exec env "${environment[@]}" PATH="$path" "$@"
