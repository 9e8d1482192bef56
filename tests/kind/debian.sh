#!/usr/bin/env bash
# Makes of Debian's packages what a machine without a Docker daemon and without images to pull lacks, once, and
# prints where it is. Nothing is installed on the machine.
#
#   tests/kind/debian.sh docker    a folder with dockerd, containerd, runc and Docker's client
#   tests/kind/debian.sh machine   a folder with what tests/real-nodes makes machines of: containerd, runc, CNI's plugins
#   tests/kind/debian.sh root      an archive of a small Debian: the base of nodes and of the compiler's image
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/state.sh"

source "$here/../packages.sh"
mapfile -t host < <(packages_of docker)
mapfile -t machine < <(packages_of machine)
# First what kind's own base image has, then what that gets elsewhere, then what a Rust program is linked with.
root=(systemd dbus conntrack iptables nftables iproute2 ethtool util-linux mount kmod libseccomp2 e2fsprogs bash
    ca-certificates curl jq procps socat
    containerd runc containernetworking-plugins
    gcc libc6-dev)

# The same release as this machine's: programs built here with its C library run there.
suite=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
command -v apt-get >/dev/null && [ -n "$suite" ] || die "this needs Debian's apt-get, for packages"
[ "$(id -u)" = 0 ] || die "only root can make a cluster of Debian's packages"

address() { sha256sum <<<"$*" | cut -c1-8; }
docker=$kind_cache/docker-$suite-$(address "${host[@]}")
machines=$kind_cache/machine-$suite-$(address "${machine[@]}")
archive=$kind_cache/debian-$suite-$(address "${root[@]}").tar
exec 9>"$kind_cache/debian.lock"
flock 9
scratch=$(mktemp -d "$kind_cache/making.XXXXXXXX")
trap 'rm -rf --one-file-system "$scratch"' EXIT

unpacked() { # folder, packages…
    local folder=$1
    [ ! -d "$folder" ] || return 0
    shift
    say "fetching Debian's $1"
    unpack_packages "$scratch/unpacked" "$@"
    # Which of the two kinds of rules iptables writes is a link that installing would make.
    ln -s xtables-nft-multi "$scratch/unpacked/usr/sbin/iptables"
    mv "$scratch/unpacked" "$folder"
}

bootstrapped() {
    [ -f "$archive" ] && return
    say "making a small Debian ($suite) of packages, about a minute"
    local mirror include
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' |
        awk -v suite="$suite" '$2 == suite { print $1; exit }')
    include=$(IFS=, && printf '%s' "${root[*]}")
    # It mounts things inside the new root: in a mount namespace of its own, so that none of them stays.
    env DEBOOTSTRAP_DIR="$docker/usr/share/debootstrap" \
        unshare --mount "$docker/usr/sbin/debootstrap" --variant=minbase "--include=$include" \
        "$suite" "$scratch/root" "$mirror" >"$kind_state/debootstrap.log" 2>&1 || die "debootstrap failed; see $kind_state/debootstrap.log"
    tar -C "$scratch/root" --one-file-system --xattrs --numeric-owner \
        --exclude='./proc/*' --exclude='./sys/*' --exclude='./dev/*' --exclude='./var/cache/apt/*' \
        --exclude='./var/lib/apt/lists/*' -cf "$scratch/root.tar" .
    mv "$scratch/root.tar" "$archive"
}

case ${1:-} in
    docker) unpacked "$docker" "${host[@]}" && printf '%s\n' "$docker" ;;
    machine) unpacked "$machines" "${machine[@]}" && printf '%s\n' "$machines" ;;
    root) unpacked "$docker" "${host[@]}" && bootstrapped && printf '%s\n' "$archive" ;;
    *) die "usage: debian.sh docker|machine|root" ;;
esac
