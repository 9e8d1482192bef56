#!/usr/bin/env bash
# `make test-kind`: what a person would do, in a real kind cluster, and what must come of it. The commands of README and
# docs/kind.md are read from a clean checkout and typed as they stand. First README's installation beside kube-controller-manager.
# Then, in mode `replace`, the node of a StatefulSet's pod loses its network and goes on running; nothing is replaced without
# proof; with a power switch pod-safety switches the node off, the pod runs elsewhere, the node comes back; Prometheus
# has seen it. Then everything is deleted, also when it fails or is interrupted (KEEP=1 leaves it). A run that passes writes
# tests/records/test-kind.toml.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/state.sh"
source "$here/steps.sh"
source "$here/prepare.sh"
kubectl() { with kubectl "$@"; }
seen=$kind_state/seen
checkout=$kind_state/checkout
# The cluster of README's commands, while it is there.
plain_cluster=

ended() {
    local status=$?
    trap - EXIT
    [ "$status" = 0 ] || look || true
    rm -rf "$checkout"
    if [ -z "${KEEP:-}" ]; then
        [ -z "$plain_cluster" ] || with kind delete cluster --quiet --name "$plain_cluster" || true
        "$here/down.sh"
    fi
    [ "$status" = 0 ] || say "FAILED; what was seen is in $seen"
    exit "$status"
}

# What a person would look at, kept for when something went wrong.
look() {
    mkdir -p "$seen"
    kubectl get nodes,pods,nodefences,fenceevidences,fencedevices,fencepolicies --all-namespaces -o wide >"$seen/objects.txt" 2>&1
    kubectl get events --all-namespaces --sort-by=.lastTimestamp >"$seen/events.txt" 2>&1
    kubectl get nodefences,fenceevidences -o yaml >"$seen/fencing.yaml" 2>&1
    local pod
    for pod in $(kubectl --namespace pod-safety get pods -o name 2>/dev/null); do
        kubectl --namespace pod-safety logs "$pod" >"$seen/${pod##*/}.log" 2>&1
    done
    cp "$kind_state/bmc/log" "$seen/bmc.log" 2>/dev/null
}

of() { # object, JSONPath, more arguments
    kubectl get "$1" -o jsonpath="$2" "${@:3}"
}
is() { # object, JSONPath, value
    [ "$(of "$1" "$2" 2>/dev/null)" = "$3" ]
}
uid() { of pod/db-0 '{.metadata.uid}'; }
replaced() {
    [ "$(uid 2>/dev/null)" != "$first" ] && is pod/db-0 '{.status.phase}' Running
}
ready='{.status.conditions[?(@.type=="Ready")].status}'
boot='{.status.nodeInfo.bootID}'

# Whether an expression of Prometheus has a result.
shows() { # expression
    local query
    query=$(python3 -c 'import sys, urllib.parse; print(urllib.parse.quote(sys.argv[1], safe=""))' "$1")
    kubectl get --raw "/api/v1/namespaces/monitoring/services/prometheus:9090/proxy/api/v1/query?query=$query" |
        python3 -c 'import json, sys; sys.exit(not json.load(sys.stdin)["data"]["result"])'
}

clean_checkout() {
    rm -rf "$checkout"
    git clone --quiet "$repository" "$checkout"
    commit=$(git -C "$checkout" rev-parse HEAD)
}

# The first `console` block of a page with this command, without its comments.
block() { # page, command
    awk -v command="$2" '/^```/ { if (index(text, command)) { printf "%s", text; exit } inside = /^```console/; text = ""; next }
        inside { sub(/ +# .*/, ""); text = text $0 "\n" }' "$checkout/$1" | grep . || die "$1 has no console block with: $2"
}

# A line of docs/kind.md. The scripts that it names are this checkout's: they know this cluster.
typed() { # how it begins, and a node in the place of the first worker
    local line
    line=$(block docs/kind.md "$1" | grep -m1 -F "$1")
    (cd "$repository" && with bash -euo pipefail -c "${line/$kind_cluster-worker/${2:-$kind_cluster-worker}}")
}

in_checkout() { (cd "$checkout" && with bash -euo pipefail -c "$1"); }

# README's commands, each a step. A plain cluster of kind, whose kube-controller-manager has all of its controllers.
readme() {
    local line lines
    mapfile -t lines < <(block README.md "kind create cluster --name pod-safety")
    [ "${#lines[@]}" -gt 3 ] || die "README installs with ${#lines[@]} commands"
    ! with kind get clusters 2>/dev/null | grep -qx pod-safety || die "there is a cluster pod-safety already, which README's commands make: delete it first"
    plain_cluster=pod-safety
    for line in "${lines[@]}"; do
        step "\`$line\`" "from README, as it stands" in_checkout "$line" </dev/null
    done
}

# What is green must be true: an ordinary pod runs, a budget has a status, and `doctor` says who does what.
plain() {
    kubectl --namespace pod-safety wait --for=condition=Available deployment/pod-safety --timeout=120s
    kubectl create deployment ordinary --image="$(pause "$plain_cluster-control-plane")"
    kubectl create poddisruptionbudget ordinary --selector=app=ordinary --min-available=1
    kubectl rollout status deployment/ordinary --timeout=90s
    within 60 "the budget has a status" is pdb/ordinary '{.status.currentHealthy}' 1
    # With the rights of the person who installed it, and the program of the image.
    local verdict=0
    with docker rm --force pod-safety-program >/dev/null 2>&1 || true
    with docker create --name pod-safety-program pod-safety:dev >/dev/null
    with docker cp pod-safety-program:/pod-safety "$kind_state/pod-safety"
    with docker rm pod-safety-program >/dev/null
    with "$kind_state/pod-safety" doctor --color=never >"$seen/doctor.txt" || verdict=$?
    cat "$seen/doctor.txt" >&2
    [ "$verdict" = 0 ] || [ "$verdict" = 3 ] || die "doctor ended with $verdict"
    grep -q kube-controller-manager "$seen/doctor.txt" || die "doctor does not say what kube-controller-manager does here"
}

# The name of the image that holds a pod's namespaces, on a node.
pause() { # node
    with docker exec "$1" ctr --namespace k8s.io images ls -q | grep -m1 '^registry.k8s.io/pause:'
}

prometheus() {
    local context image=pod-safety-kind/prometheus:dev
    context=$kind_state/prometheus
    mkdir -p "$context"
    cp -L "$repository/.cache/bin/prometheus" "$here/prometheus/Dockerfile" "$context"
    with docker build --quiet --build-arg DEBIAN="$("$here/images.sh" debian)" --tag "$image" "$context" >/dev/null
    rm -rf "$context"
    with kind load docker-image --quiet --name "$kind_cluster" "$image"
    kubectl apply --filename "$here/prometheus/objects.yaml"
    kubectl --namespace monitoring create configmap pod-safety-rules --from-file="$checkout/charts/pod-safety/rules"
    kubectl --namespace monitoring rollout status deployment/prometheus --timeout=120s
    within 60 "Prometheus reads both replicas" shows 'count(up{job="pod-safety"} == 1) == 2'
}

# What a person would trip over after the installation.
installed() {
    [ "$(kubectl get nodes -o jsonpath='{range .items[*]}{.status.nodeInfo.systemUUID}{"\n"}{end}' | sort -u | wc -l)" = 3 ] ||
        die "nodes share a UUID, so no device can tell which machine is which: $(kubectl get nodes -o jsonpath='{.items[*].status.nodeInfo.systemUUID}')"
    with helm --namespace pod-safety get notes pod-safety | grep -q 'already has these controllers disabled' ||
        die "kube-controller-manager does the same work: charts/kind-cluster.yaml is not what the chart asks for"
    [ "$(kubectl --namespace pod-safety get pods --field-selector=status.phase=Running -l app.kubernetes.io/name=pod-safety -o jsonpath='{range .items[*]}{.spec.nodeName}{"\n"}{end}' | sort -u | wc -l)" = 2 ] ||
        die "both replicas run on one node; when it is lost nobody finds that"
    with helm --namespace pod-safety upgrade pod-safety "$checkout/charts/pod-safety" --reset-then-reuse-values >/dev/null
    kubectl --namespace pod-safety rollout status deployment/pod-safety --timeout=120s
}

stateful_set() {
    typed 'sed '
    kubectl rollout status statefulset/db --timeout=60s
    first=$(uid)
    version=$(of "node/$kind_cluster-worker" '{.status.nodeInfo.kubeletVersion}')
    node=$(of pod/db-0 '{.spec.nodeName}')
    container=$(of pod/db-0 '{.status.containerStatuses[0].containerID}')
    container=${container#containerd://}
    first_boot=$(of "node/$node" "$boot")
    say "db-0 runs on $node"
}

runs_on_lost_node() {
    with docker exec "$node" ctr --namespace k8s.io tasks ls | grep -F "$container" | grep -q RUNNING
}

# Cut off, the node goes on running: that is why silence proves nothing.
cut() {
    typed 'docker exec ' "$node"
    within 60 "$node is lost" is "node/$node" "$ready" Unknown
    within 60 "db-0 is asked to end" kubectl wait --for=jsonpath='{.metadata.deletionTimestamp}' pod/db-0 --timeout=1s
}

nothing_without_proof() {
    sleep 20
    [ "$(uid)" = "$first" ] || die "db-0 was replaced while nothing proved that the first one had ended"
    runs_on_lost_node || die "db-0 was to go on running on the node that is cut off, or this test shows nothing"
    within 30 "Prometheus shows what is held" shows 'pod_safety_holds{controller="pod-gc"} > 0'
    { kubectl describe pod/db-0 && kubectl describe "node/$node"; } >"$seen/held.txt"
    say "db-0 still runs on $node, and nothing took its place"
}

fenced() {
    typed 'tests/kind/bmc.sh up'
    within 120 "there is evidence that $node is off" kubectl wait --for=jsonpath='{.spec.kind}'=PowerOff fenceevidences --all --timeout=1s
    within 60 "db-0 runs again" replaced
    local elsewhere
    elsewhere=$(of pod/db-0 '{.spec.nodeName}')
    [ "$elsewhere" != "$node" ] || die "db-0 runs on $node, which was to be off"
    grep -q "$node: ForceOff, then Off" "$kind_state/bmc/log" || die "nobody switched $node off"
    say "db-0 runs on $elsewhere"
}

back() {
    within 180 "$node is Ready again" is "node/$node" "$ready" True
    [ "$(of "node/$node" "$boot")" != "$first_boot" ] || die "$node came back with the boot id that it had"
    within 120 "the incident is done" kubectl wait --for=jsonpath='{.status.phase}'=Done nodefences --all --timeout=1s
    is "node/$node" '{.spec.taints}' '' || die "$node kept a taint: $(of "node/$node" '{.spec.taints}')"
    ! kubectl get events --field-selector reason=FencingHeld -o name | grep -q . || die "somebody was called for what went as it should"
    runs_on_lost_node && die "the first db-0 runs again on $node"
    return 0
}

prometheus_saw_it() {
    within 60 "both replicas are read" shows 'count(up{job="pod-safety"} == 1) == 2'
    within 30 "one leader" shows 'sum(leader_election_master_status{name="pod-safety"}) == 1'
    within 30 "the mode" shows 'pod_safety_controller_mode{controller="pod-gc", mode="replace"} == 1'
    within 30 "releases by PowerOff: the pod, and our own replica if it was there" shows 'sum(max_over_time(pod_safety_force_deletes_total{evidence="PowerOff"}[15m])) >= 1'
    within 30 "no other release of a pod that may have run" shows 'sum(max_over_time(pod_safety_force_deletes_total{evidence!~"PowerOff|KubeletTerminated|NeverScheduled"}[15m])) == 0'
    within 30 "the node was lost" shows 'max_over_time(node_collector_unhealthy_nodes_in_zone[15m]) == 1'
    within 30 "and is not any more" shows 'max(node_collector_unhealthy_nodes_in_zone) == 0'
    within 30 "the incident came to its end" shows 'max_over_time(pod_safety_fence_phases_total{phase="Done"}[15m]) >= 1'
    within 30 "how long the proof took" shows 'max_over_time(pod_safety_fence_time_to_evidence_seconds_count[15m]) >= 1'
}

trap ended EXIT
trap 'exit 130' INT TERM
"$here/down.sh"
rm -rf "$seen"
mkdir -p "$seen"
rm -f "$steps_taken"
begin=$EPOCHSECONDS
step "a clean checkout" "\`git clone\` of the last commit; everything below comes from it" clean_checkout
prepare
readme
step "an ordinary pod and a budget" "the pod runs, the budget has a status, \`doctor\` says who does what" plain
step "the plain cluster is deleted" "" with kind delete cluster --quiet --name "$plain_cluster"
plain_cluster=
IN_TEST=1 "$here/up.sh" "$checkout"
step "what is installed fits, and can be upgraded" \
    "each node has a UUID of its own; kube-controller-manager runs without its four; the replicas run on two nodes; \`helm upgrade\` goes through" installed
step "a process is queried" "the commands of the runbooks, as they stand" "$here/forwarded.sh"
step "Prometheus in the cluster" "it reads both replicas" prometheus
step "a StatefulSet" "its pod runs on a worker" stateful_set
cable=$EPOCHSECONDS
step "its node is cut off; the pod is deleted gracefully" "Ready is Unknown, the pod Terminating" cut
step "20 s in which nothing may be replaced" \
    "the pod is the same, its process *runs* on the node that is cut off, the metrics show the hold" nothing_without_proof
step "a power switch" "it says \`ForceOff, then Off\`; FenceEvidence \`PowerOff\`; the pod runs on the other worker" fenced
cable=$((EPOCHSECONDS - cable))
step "the node is back" "another boot id, no taints, the incident \`Done\`, no Warning Events, the first pod's process is gone" back
step "Prometheus has seen it" \
    "one release, by \`PowerOff\`; the lost node, and later none; one leader; the mode; the time to the evidence" prometheus_saw_it
look
[ -n "${KEEP:-}" ] || step "everything is deleted" "" "$here/down.sh"
steps_took
"$here/../records/write.sh" test-kind commit="$commit" outcome=passed seconds=$((EPOCHSECONDS - begin)) kubernetes="$version" \
    figure="from the pulled cable to the new pod: $cable s" steps="$steps_taken"
