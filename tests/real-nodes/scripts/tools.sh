#!/usr/bin/env bash
# Puts in place what machines are made of, once, and prints the folder: `kubelet`, `root/` (containerd, runc, CNI's plugins,
# iptables: Debian's packages, unpacked) and `images.tar` (the pods' workload and the sandboxes' pause, made here).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/state.sh"

[ "$(id -u)" = 0 ] || die "only root can make machines"
programs=$("$tests/kind/programs.sh" kubelet)
root=$("$tests/kind/debian.sh" machine)
address=$({ printf '%s\n' "$programs" "$root"; rustc --version; cat "$here/tools.sh" "$tests/real-nodes/workload/main.rs"; } | sha256sum | cut -c1-16)
cache=$repository/.cache/real-nodes
finished=$cache/$address
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
if [ -d "$finished" ]; then
    touch "$finished" # says that it is in use; see below
    printf '%s\n' "$finished"
    exit
fi
scratch=$(mktemp -d "$cache/building.XXXXXXXX")
trap 'rm -rf "$scratch"' EXIT

# One image: one layer with two static programs. A sandbox is the same image, started otherwise.
images() {
    mkdir -p "$scratch/layer/data" "$scratch/image"
    rustc --edition 2024 -O -C target-feature=+crt-static -C strip=symbols \
        -o "$scratch/layer/workload" "$tests/real-nodes/workload/main.rs" >&2
    # The first process of a container is sent no signal that it does not handle; tini hands them on.
    cp "$root/usr/bin/tini-static" "$scratch/layer/tini"
    tar -C "$scratch/layer" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf "$scratch/image/layer.tar" .
    local layer
    layer=$(sha256sum "$scratch/image/layer.tar" | cut -d' ' -f1)
    image workload '["/tini", "--", "/workload"]'
    image pause '["/workload", "pause"]'
    printf '[%s, %s]' "$(manifest workload)" "$(manifest pause)" >"$scratch/image/manifest.json"
    tar -C "$scratch/image" -cf "$scratch/images.tar" .
}
image() { # name, entry point; of the layer
    printf '{"architecture": "%s", "os": "linux", "config": {"Entrypoint": %s}, "rootfs": {"type": "layers", "diff_ids": ["sha256:%s"]}}' \
        "$(go env GOARCH)" "$2" "$layer" >"$scratch/image/$1.json"
}
manifest() { # name
    printf '{"Config": "%s.json", "RepoTags": ["real-nodes.local/%s:1"], "Layers": ["layer.tar"]}' "$1" "$1"
}

images
rm -rf "$scratch/layer" "$scratch/image"
ln -s "$programs/kubelet" "$scratch/kubelet"
ln -s "$root" "$scratch/root"
chmod 755 "$scratch"
mv "$scratch" "$finished"
# What nobody asked for in a week goes.
find "$cache" -mindepth 1 -maxdepth 1 -type d -mtime +7 -exec rm -rf {} +
printf '%s\n' "$finished"
