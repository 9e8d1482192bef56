#!/usr/bin/env bash
# world.sh PROGRAM ARGUMENTS…: runs it where machines can be made without the machine below noticing: in a network, a mount and a
# process namespace of its own, with files in memory. When its first process dies, however that comes, all of it is gone: machines,
# control plane, files. Only cgroups would stay, so somebody waits for that end outside, and removes them.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/state.sh"
source "$here/cgroups.sh"

cgroup=pod-safety-nodes-$$
export REAL_NODES_CGROUP=$cgroup REAL_NODES_TOOLS=$1
shift

# This process alone holds the other end of this pipe. However it ends, the world ends with it.
exec 7> >(trap '' INT TERM HUP; exec setsid bash -c 'cat >/dev/null; source "$0"; end_world "$1"' "$here/cgroups.sh" "$cgroup" 1>&2)

make_world "$cgroup"

prepare='
mount -t tmpfs -o size=4g,mode=755 tmpfs /run
mount -t tmpfs tmpfs /dev/shm
mkdir -p /run/scratch /run/volumes /run/machines /run/netns /run/ours
mount -t tmpfs -o size=16m tmpfs /run/ours
ip link set lo up
ip link add switch type bridge
ip address add '$network'.1/24 dev switch
for member in 2 3 4; do ip address add '$network'.$member/32 dev switch; done
ip link set switch up
exec "$@"'
# unshare does not mind being asked to end. Whoever asks us, asks for the end of all; and if we are killed, it is too.
setpriv --pdeathsig KILL -- unshare --net --mount --pid --fork --kill-child=KILL --mount-proc --propagation private \
    env TMPDIR=/run/scratch "$REAL_NODES_TOOLS/root/usr/bin/tini-static" -g -- bash -euc "$prepare" bash "$@" <&0 7>&- &
first=$!
trap 'kill -KILL "$first" 2>/dev/null; wait "$first"; exit 130' TERM INT HUP
wait "$first"
