#!/usr/bin/env bash
# A Docker daemon for machines that have none, of Debian's packages. It lives in a network, a mount and a process
# namespace of its own: the machine sees neither its bridges, its firewall rules nor its mounts, and when its first
# process dies, all of it is gone, the nodes too.
#
#   tests/kind/daemon.sh up      starts it, unless it runs
#   tests/kind/daemon.sh down    ends it, whatever state it is in; images stay in target/kind until `make clean`
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/state.sh"

# Files that the nodes' kubelets write for the whole machine.
machine_wide=(vm/overcommit_memory kernel/panic kernel/panic_on_oops)
cgroup=${kind_run##*/}

up() {
    noted_process "$kind_state/daemon" >/dev/null && return
    down # what a daemon that was killed left
    [ "$(id -u)" = 0 ] || die "there is no Docker daemon here, and only root can start one"
    local docker libraries
    docker=$("$here/debian.sh" docker)
    libraries=$(uname -m)-linux-gnu
    ln -sfn "$docker" "$kind_state/docker-programs" # for with.sh
    mkdir -p "$kind_run" "$kind_state/bin"
    runc "$docker"
    local name
    for name in "${machine_wide[@]}"; do
        printf '%s %s\n' "$name" "$(cat "/proc/sys/$name")"
    done >"$kind_state/machine-wide"

    # Of the daemon's own wishes: no score that only a stronger root may ask for, and private cgroups, as kind wants.
    setsid unshare --net --mount --pid --fork --kill-child --mount-proc --propagation private \
        env PATH="$kind_state/bin:$docker/usr/sbin:$docker/usr/bin:$PATH" \
        LD_LIBRARY_PATH="$docker/lib/$libraries:$docker/usr/lib/$libraries" XTABLES_LIBDIR="$docker/usr/lib/$libraries/xtables" \
        "$docker/usr/bin/docker-init" -- "$here/daemon.sh" inside \
        --host "unix://$kind_run/docker.sock" --data-root "$kind_state/docker" --exec-root "$kind_run/exec" \
        --pidfile "$kind_run/docker.pid" --cgroup-parent "/$cgroup" --default-cgroupns-mode private \
        --oom-score-adjust 0 --storage-driver overlay2 \
        >"$kind_state/daemon.log" 2>&1 </dev/null 9>&- &
    note_process "$kind_state/daemon" $!
    within 60 "Docker's daemon answers; see $kind_state/daemon.log" "$here/with.sh" docker version
}

# In the namespaces: a network needs its loopback, and Docker a default route to believe that there is a world.
inside() {
    ip link set lo up
    ip link add uplink type bridge
    ip address add 10.87.0.1/24 dev uplink
    ip link set uplink up
    ip route add default via 10.87.0.2
    exec dockerd "$@"
}

# Privileged containers get every capability. Where this machine may not give CAP_SYS_RESOURCE away, runc would
# refuse them all: a runc that leaves it out is found first.
runc() { # Docker's folder
    rm -f "$kind_state/bin/runc"
    local bounding
    bounding=$(awk '$1 == "CapBnd:" { print $2 }' /proc/self/status)
    ((0x$bounding >> 24 & 1)) && return
    local python
    python=$(python3 -c 'import sys; print(sys.executable)')
    printf '#!/bin/sh\nexec %s -S -E %s/runc.py %s/usr/sbin/runc "$@"\n' "$python" "$here" "$1" >"$kind_state/bin/runc"
    chmod 755 "$kind_state/bin/runc"
}

down() {
    local process
    if process=$(noted_process "$kind_state/daemon"); then
        kill -KILL "$process"
        within 30 "the namespaces are empty" cgroups_empty
    fi
    rm -f "$kind_state/daemon"
    rm -rf --one-file-system "$kind_run"
    local folder
    for folder in /sys/fs/cgroup/"$cgroup" /sys/fs/cgroup/*/"$cgroup"; do
        [ ! -d "$folder" ] || find "$folder" -depth -type d -exec rmdir {} + 2>/dev/null || true
    done
    [ -f "$kind_state/machine-wide" ] || return 0
    local name value
    while read -r name value; do
        printf '%s' "$value" >"/proc/sys/$name"
    done <"$kind_state/machine-wide"
    rm "$kind_state/machine-wide"
}

cgroups_empty() {
    ! find /sys/fs/cgroup/"$cgroup" /sys/fs/cgroup/*/"$cgroup" -name cgroup.procs -exec cat {} + 2>/dev/null | grep -q .
}

case ${1:-} in
    up) up ;;
    down) down ;;
    inside) shift && inside "$@" ;;
    *) die "usage: daemon.sh up|down" ;;
esac
