#!/usr/bin/env bash
# Prints the name of the image that kind's nodes are made of: nothing where the published one can be pulled (kind
# knows it), else one that is made here (images/node.Dockerfile), with the images of the control plane inside.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/state.sh"

docker() { "$here/with.sh" docker "$@"; }

# Whether this daemon reaches a registry does not depend on the image: the smallest one tells.
if pulled registry.k8s.io/pause:3.10; then
    exit
fi

programs=$("$here/programs.sh" node)
tools=$("$here/../control-plane/tools/build.sh")
debian=$("$here/images.sh" debian)
version=$(cat "$programs/kubernetes-version")
node=pod-safety-kind/node:$({ cat "$here"/images/{node.Dockerfile,*.sh,kubelet.conf,manifests/*} && printf '%s\n' "$programs" "$tools" "$debian"; } | sha256sum | cut -c1-12)
docker image inspect "$node" >/dev/null 2>&1 && { printf '%s\n' "$node"; exit; }

say "making the image of a node"
container=pod-safety-kind-node-image
context=$(mktemp -d "$kind_state/node.XXXXXXXX")
trap 'rm -rf "$context"; docker rm --force --volumes "$container" >/dev/null 2>&1 || true' EXIT
cp -r "$here"/images/. "$context"
cp -r "$programs"/{kubelet,kubeadm,kube-proxy,coredns,kind-base,kubernetes-version} "$context"
cp "$tools"/{kubectl,etcd,kube-apiserver,kube-controller-manager,kube-scheduler} "$context"

build() { # stage, name
    docker build --quiet --build-arg DEBIAN="$debian" --build-arg PAUSE="$pause" --file "$context/node.Dockerfile" --target "$1" --tag "$2" "$context" >/dev/null
}

# By the names that this version of kubeadm asks for.
declare -A inside=([pod-network]=pod-safety-kind/pod-network:local)
while read -r image; do
    stage=${image##*/}
    inside[${stage%:*}]=$image
done <"$programs/images"
pause=${inside[pause]:?kubeadm names no pause image}
for stage in "${!inside[@]}"; do build "$stage" "${inside[$stage]}"; done
build node "$node-empty"

# containerd takes images while it runs, so that part is no build.
docker rm --force --volumes "$container" >/dev/null 2>&1 || true
docker run --detach --privileged --name "$container" --entrypoint sleep "$node-empty" infinity >/dev/null
docker exec --detach "$container" containerd
within 30 "containerd answers inside the new node image" docker exec "$container" ctr version
docker save "${inside[@]}" |
    docker exec --interactive "$container" ctr --namespace k8s.io images import --all-platforms --no-unpack - >/dev/null
docker exec "$container" pkill --exact containerd
docker commit --change 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]' "$container" "$node" >/dev/null
docker rm --force --volumes "$container" >/dev/null
docker rmi "${inside[@]}" "$node-empty" >/dev/null
printf '%s\n' "$node"
