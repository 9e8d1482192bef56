#!/usr/bin/env bash
# A machine: process, mount, network, UTS, IPC and cgroup namespaces, with its own containerd and kubelet. Runs in the world
# (world.sh). NUMBER is 1 to 9; the kubeconfig and the authority of its kubelet are in /run/machines/nNUMBER.
#
#   machine.sh on|off|status|freeze|thaw|starve|feed|boot NUMBER
#   machine.sh start|kill|stop|continue|repair NUMBER kubelet|containerd|agent
#   machine.sh disarm NUMBER                         its agent ends in good order
#   machine.sh import NUMBER ARCHIVE                  an image, into its containerd
#   machine.sh network NUMBER IPTABLES-ARGUMENTS…     in the machine's own network
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/state.sh"
source "$here/cgroups.sh"

command=$1 number=$2
name=n$number
folder=/run/machines/$name
group=$REAL_NODES_CGROUP/$name

# The first process of the machine, if it is on.
first() {
    local pid
    pid=$(cat "$folder/pid" 2>/dev/null) && [ -d "/proc/$pid" ] && printf '%s' "$pid"
}

# A person and a switch may want it at the same time.
alone() {
    mkdir -p "$folder"
    exec 8>"$folder/lock"
    flock 8
    "$1"
}

on() {
    ! first >/dev/null || return 0
    rm -f "$folder/pid" "$folder/cable"
    make_machine "$group"
    # What follows is in the machine's cgroup, so that it is frozen as a whole.
    setsid bash -euc 'source "$0"; become_machine "$1"
        exec unshare --mount --net --uts --ipc --cgroup --pid --fork --kill-child=KILL --propagation private "$2" boot "$3"' \
        "$here/cgroups.sh" "$group" "$here/machine.sh" "$number" >>"$folder/boot.log" 2>&1 </dev/null 8>&- &
    local pid
    until_so "$name boots; see $folder/boot.log" first_of $!
    settle_machine "$group"
    # The cable, from the switch into the machine.
    ip link delete "to-$name" 2>/dev/null || true
    ip link add "to-$name" type veth peer name eth0 netns "$pid"
    ip link set "to-$name" master switch up
    printf '%s' "$pid" >"$folder/pid"
    : >"$folder/cable"
}

# The one child of unshare. What is not unshare yet may have others.
first_of() { # process
    [ "$(cat "/proc/$1/comm" 2>/dev/null)" = unshare ] && pid=$(pgrep -P "$1") && [ -n "$pid" ]
}

off() {
    local pid
    if pid=$(first); then
        kill_machine "$group" "$pid"
        until_so "$name is off" gone "$pid"
    fi
    ip link delete "to-$name" 2>/dev/null || true
    remove_cgroup "$group"
    rm -f "$folder/pid"
}
gone() { [ ! -d "/proc/$1" ]; }

# Inside: the first process of the machine.
boot() {
    hostname "$name"
    mount -t proc proc /proc
    mount -t sysfs sysfs /sys
    mount_cgroups
    mkdir -p "$folder/run" "$folder/own" "$folder/log"
    mount -t tmpfs -o mode=755 tmpfs "$folder/run"
    identity
    until_so "$name has a cable" test -e "$folder/cable"
    ip link set lo up
    ip address add "$network.1$number/24" dev eth0
    ip link set eth0 up
    ip route add default via "$network.1"
    # The one Service that is asked for here: what kube-proxy would write, for pods and for the agent.
    for chain in PREROUTING OUTPUT; do
        iptables -w -t nat -A $chain -d 10.96.0.1 -p tcp --dport 443 -j DNAT --to-destination "$(cat "$folder/service")"
    done
    configure
    service containerd
    for tries in {1..600}; do # seconds, where others compile
        ctr -a "$folder/run/containerd.sock" version >/dev/null 2>&1 && break
        sleep 0.1
    done
    [ -e "$folder/imported" ] || ctr -a "$folder/run/containerd.sock" -n k8s.io images import --digests "$REAL_NODES_TOOLS/images.tar" >>"$folder/log/import" 2>&1
    : >"$folder/imported"
    service kubelet
    [ ! -e "$folder/agent" ] || service agent
    # The services' parent is whoever started them; this is who takes in the orphans.
    trap : CHLD
    while :; do sleep infinity & wait $! || true; done
}

# A machine keeps its id, and gets a new boot id with each boot. What a kubelet would set for the machine below is files here.
identity() {
    local own=$folder/own name value
    [ -e "$own/machine-id" ] || tr -d - </proc/sys/kernel/random/uuid >"$own/machine-id"
    cat /proc/sys/kernel/random/uuid >"$own/boot-id"
    mount --bind "$own/machine-id" /etc/machine-id
    if [ -e /sys/class/dmi/id/product_uuid ]; then
        [ -e "$own/product" ] || cat /proc/sys/kernel/random/uuid >"$own/product"
        mount --bind "$own/product" /sys/class/dmi/id/product_uuid
    fi
    mount --bind "$own/boot-id" /proc/sys/kernel/random/boot_id
    while read -r name value; do
        printf '%s\n' "$value" >"$own/${name//\//.}"
        mount --bind "$own/${name//\//.}" "/proc/sys/$name"
    done <<<'vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000'
}

configure() {
    mkdir -p "$folder/cni"
    cat >"$folder/containerd.toml" <<TOML
version = 2
root = "$folder/containerd"
state = "$folder/run/containerd"
[grpc]
  address = "$folder/run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "real-nodes.local/pause:1"
  tolerate_missing_hugetlb_controller = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$root/usr/lib/cni"
    conf_dir = "$folder/cni"
  [plugins."io.containerd.grpc.v1.cri".registry.mirrors."$network.1:5000"]
    endpoint = ["http://$network.1:5000"]
TOML
    cat >"$folder/cni/pods.conflist" <<JSON
{ "cniVersion": "0.4.0", "name": "pods", "plugins": [{ "type": "ptp", "ipam": { "type": "host-local",
  "dataDir": "$folder/run/addresses", "ranges": [[{ "subnet": "$pods.$number.0/24" }]], "routes": [{ "dst": "0.0.0.0/0" }] } }] }
JSON
    cat >"$folder/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix://$folder/run/containerd.sock
authentication: { anonymous: { enabled: false }, webhook: { enabled: false }, x509: { clientCAFile: $folder/authority } }
authorization: { mode: AlwaysAllow }
podLogsDir: $folder/log/pods
resolvConf: ""
failSwapOn: false
imageGCHighThresholdPercent: 100
evictionHard: { imagefs.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%", memory.available: "0%" }
nodeStatusUpdateFrequency: 2s
nodeLeaseDurationSeconds: 8
makeIPTablesUtilChains: false
oomScoreAdj: 0
shutdownGracePeriod: 0s
YAML
}

service() { # kubelet or containerd, in the machine
    case $1 in
        containerd) setsid containerd --config "$folder/containerd.toml" >>"$folder/log/containerd" 2>&1 </dev/null & ;;
        kubelet)
            [ ! -e "$folder/run/agent/closed" ] || return 0 # its unit has the agent's gate
            setsid "$REAL_NODES_TOOLS/kubelet" --config "$folder/kubelet.yaml" --kubeconfig "$folder/kubeconfig" \
                --root-dir "$folder/kubelet" --cert-dir "$folder/kubelet/pki" --hostname-override "$name" --node-ip "$network.1$number" \
                >>"$folder/log/kubelet" 2>&1 </dev/null &
            ;;
        agent)
            supervise >>"$folder/log/supervise" 2>&1 </dev/null &
            local words
            read -ra words <"$folder/agent"
            setsid "${words[@]}" >>"$folder/log/agent" 2>&1 </dev/null &
            ;;
    esac
    printf '%s' $! >"$folder/run/$1.pid"
}

# What systemd does for a kubelet whose unit has the agent's gate: while there is an agent, one that ended is started again, unless the
# gate is closed.
supervise() {
    exec 9>"$folder/run/supervised"
    flock --nonblock 9 || return 0
    while [ -e "$folder/agent" ]; do
        if ! kill -0 "$(cat "$folder/run/kubelet.pid")" 2>/dev/null; then
            service kubelet 9>&-
        fi
        sleep 0.5
    done
}

# The agent takes its promise back; then the kubelet runs on, whatever the gate says.
disarm() {
    local pid tries
    pid=$(cat "$folder/run/agent.pid")
    kill -TERM "$pid" 2>/dev/null || true
    for tries in {1..100}; do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
    rm -f "$folder/run/agent/closed"
    "$0" mend "$number" kubelet
}

# A process that is put into a machine belongs to its cgroup too, or a freeze would leave it out.
within() {
    local pid
    pid=$(first) || die "$name is off"
    join_machine "$group"
    exec nsenter --target "$pid" --mount --pid --net --uts --ipc --cgroup "$here/machine.sh" "$@"
}

# A fault of a machine goes when its power does, and a switch may cut that at any moment.
unless_off() {
    local before
    before=$(first) || return 0
    ! (within "$@") || return 0
    alone true # what is being switched off is off after this
    [ "$(first)" != "$before" ]
}

case $command in
    on | off) alone "$command" ;;
    boot) boot ;;
    status) first >/dev/null && echo on || echo off ;;
    freeze) freeze_machine "$group" ;;
    thaw) thaw_machine "$group" ;;
    starve) limit_machine "$group" 1000 ;;
    feed) limit_machine "$group" "" ;;
    start) within service "$number" "$3" ;;
    kill) within signal "$number" "$3" KILL ;;
    stop) within signal "$number" "$3" STOP ;;
    continue) unless_off signal "$number" "$3" CONT ;;
    repair) unless_off mend "$number" "$3" ;;
    import) within receive "$number" "$3" ;;
    disarm) unless_off disarmed "$number" ;;
    disarmed) disarm ;;
    receive) ctr -a "$folder/run/containerd.sock" -n k8s.io images import --digests "$3" ;;
    mend) "$0" signal "$number" "$3" CONT 2>/dev/null || service "$3" ;;
    network)
        shift 2
        pid=$(first) || exit 0
        exec nsenter --target "$pid" --net iptables -w "$@"
        ;;
    service) service "$3" ;;
    signal) kill -"$4" "$(cat "$folder/run/$3.pid")" ;;
    *) die "machine.sh does not know $command" ;;
esac
