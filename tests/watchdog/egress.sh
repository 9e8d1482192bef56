#!/usr/bin/env bash
# How silent a node is whose grants have ended: an experiment, printed as a table. A gate at the node's uplink
# lets packets out until a deadline, which each grant raises. Needs root, network namespaces, and a kernel with nf_tables and TCX (6.6). Takes
# nft from its package. Give it a folder to work in.
#
#   tests/watchdog/egress.sh FOLDER [L [INTERVAL]]
#
# Each figure is in milliseconds, from the deadline of the last grant (asked for at s, so s + L) to the last packet that the peer saw.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tests/packages.sh

WORK=${1:?a folder to work in}
L=${2:-6}
INTERVAL=${3:-2}
mkdir -p "$WORK/bpf"
WORK=$(cd "$WORK" && pwd)
[ "$(id -u)" = 0 ] || packages_die "this needs root: it makes network namespaces and loads a program into the kernel"

if ! command -v nft >/dev/null; then
    [ -e "$WORK/root/usr/sbin/nft" ] || unpack_packages "$WORK/root" nftables libnftables1 libnftnl11 libmnl0 libjansson4
    PATH=$PATH:$WORK/root/usr/sbin
    LD_LIBRARY_PATH=$(dirname "$(find "$WORK/root" -name 'libnftables.so.1')")
    export PATH LD_LIBRARY_PATH
fi

own=()
part() { # namespace, what of egress.py…
    ip netns exec "egress-$1" python3 tests/watchdog/egress.py "${@:2}"
}
started() { # namespace, what of egress.py…
    # The process itself, and not a shell around it: it is stopped and killed.
    exec ip netns exec "egress-$1" python3 tests/watchdog/egress.py "${@:2}"
}
begin() {
    "$@" &
    own+=($!)
    # It says nothing when one is killed.
    disown
}
in_node() { ip netns exec egress-node "$@"; }

taken_away() {
    local pid name
    for pid in "${own[@]}"; do
        kill -9 "$pid" 2>/dev/null || true
        while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
    done
    own=()
    rm -f "$WORK"/bpf/{link,deadline}
    for name in node peer pod macvlan; do
        ip netns del "egress-$name" 2>/dev/null || true
    done
}
trap 'taken_away; umount "$WORK/bpf" 2>/dev/null || true' EXIT
mountpoint -q "$WORK/bpf" || mount -t bpf none "$WORK/bpf"

# A node with two uplinks to its peer. One pod is behind a bridge, and one is a macvlan of the first uplink.
network() {
    local name
    for name in node peer pod macvlan; do
        ip netns add "egress-$name"
        ip -n "egress-$name" link set lo up
    done
    for name in 0 1; do
        ip -n egress-node link add "up$name" type veth peer name "p$name" netns egress-peer
        ip -n egress-node addr add "10.9.$name.1/24" dev "up$name"
        ip -n egress-peer addr add "10.9.$name.2/24" dev "p$name"
        ip -n egress-node link set "up$name" up
        ip -n egress-peer link set "p$name" up
    done
    ip -n egress-node link add br0 type bridge
    ip -n egress-node addr add 10.9.2.1/24 dev br0
    ip -n egress-node link set br0 up
    ip -n egress-node link add pod0 master br0 type veth peer name eth0 netns egress-pod
    ip -n egress-node link set pod0 up
    ip -n egress-pod addr add 10.9.2.2/24 dev eth0
    ip -n egress-pod link set eth0 up
    ip -n egress-pod route add default via 10.9.2.1
    ip -n egress-node link add link up0 name mac0 type macvlan mode bridge
    ip -n egress-node link set mac0 netns egress-macvlan
    ip -n egress-macvlan addr add 10.9.0.3/24 dev mac0
    ip -n egress-macvlan link set mac0 up
    in_node sysctl -qw net.ipv4.ip_forward=1
    ip -n egress-peer route add 10.9.2.0/24 via 10.9.0.1
    # Nobody need ask for an address: questions stop too when the node is silent.
    mac() { ip -n "egress-$1" link show "$2" | awk '/link\/ether/ { print $2 }'; }
    ip -n egress-peer neigh replace 10.9.0.1 lladdr "$(mac node up0)" dev p0 nud permanent
    ip -n egress-node neigh replace 10.9.0.2 lladdr "$(mac peer p0)" dev up0 nud permanent
    ip -n egress-node neigh replace 10.9.1.2 lladdr "$(mac peer p1)" dev up1 nud permanent
    ip -n egress-macvlan neigh replace 10.9.0.2 lladdr "$(mac peer p0)" dev mac0 nud permanent
}

# relative: the write makes the element anew. latch: it fails when the element has expired.
gate() { # how
    local rules='oifname @open accept; oifname up0 drop'
    local open='set open { type ifname; flags timeout; }'
    case $1 in
        relative | latch) in_node nft "table netdev gate { $open; chain out { type filter hook egress device up0 priority 0; $rules; }; }" ;;
        inet) in_node nft "table inet gate { $open; chain out { type filter hook output priority 0; $rules; }; chain through { type filter hook forward priority 0; $rules; }; }" ;;
        bpf) part node gate up0 "$WORK/bpf" ;;
    esac
}

measured() { # name, how, what happens to the feeder, and what else
    local name=$1 how=$2 fault=$3 and=${4:-} feeder see pid
    network
    : >"$WORK/serve"
    begin started node serve >"$WORK/serve"
    sleep 0.5
    begin started peer talk
    until grep -q connected "$WORK/serve"; do sleep 0.1; done
    ip netns exec egress-peer nft 'table inet lose { chain in { type filter hook input priority 0; tcp dport 6003 drop; }; }'
    [ "$and" != queue ] || in_node tc qdisc add dev up0 root tbf rate 100kbit burst 3000 limit 30000
    # Before anything is sent: the uplink is closed until the first grant.
    gate "$how"
    begin started node feed "$how" up0 "$WORK/bpf" "$L" "$INTERVAL" "$fault" >"$WORK/feeder"
    feeder=$!
    begin started node send 5001 10.9.0.2
    begin started pod send 5002 10.9.0.2
    begin started macvlan send 5003 10.9.0.2
    begin started node send 5004 10.9.1.2
    begin started node send 5005 10.9.0.2 bypass up0
    begin started node send 5006 10.9.0.2 xdp up0
    begin started peer see >"$WORK/seen"
    see=$!
    if [ "$fault" = late ]; then
        # Its third grant was acknowledged, and it is stopped before the write.
        until grep -q '^State:.*stopped' "/proc/$feeder/status"; do sleep 0.1; done
        if [ "$and" = soon ]; then
            # The element of the grant before has still a second.
            awk -v l="$L" -v i="$INTERVAL" 'BEGIN { print l - i - 1 }' | xargs sleep
        else
            sleep $((2 * L))
        fi
        kill -CONT "$feeder"
        sleep $((L + 2))
    else
        sleep $((2 * INTERVAL + 1))
        if [ "$fault" = busy ]; then
            for pid in {1..8}; do
                begin timeout 20 bash -c 'while :; do :; done'
            done
        fi
        case $fault in stopped) kill -STOP "$feeder" ;; *) kill -9 "$feeder" ;; esac
        if [ "$and" = flush ]; then
            in_node nft flush ruleset
            in_node tc qdisc del dev up0 clsact 2>/dev/null || true
        fi
        sleep $((L + 3))
    fi
    # By the clock of the figures.
    pid=$(python3 -c 'import time; print(time.clock_gettime(time.CLOCK_BOOTTIME))')
    kill "$see"
    while kill -0 "$see" 2>/dev/null; do sleep 0.1; done
    python3 tests/watchdog/egress.py row "$name" "$fault${and:+, $and}" "$WORK/feeder" "$WORK/seen" "$pid" "$L"
    taken_away
}

taken_away
echo '| gate | the feeder | its last write | process | reply | ping | retransmit | kernel | pod | macvlan | other uplink | AF_PACKET, bypass | AF_XDP |'
echo '|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|'
measured none none killed
for fault in killed stopped busy late; do
    measured 'nft, relative' relative "$fault"
    measured 'BPF, absolute' bpf "$fault"
done
measured 'nft, relative' relative killed flush
measured 'BPF, absolute' bpf killed flush
measured 'BPF, absolute' bpf killed queue
measured 'nft, latched' latch killed
measured 'nft, latched' latch late soon
measured 'nft, latched' latch late
measured 'nft, output and forward' inet killed
