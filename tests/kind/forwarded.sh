#!/usr/bin/env bash
# Types the block of docs/runbooks/README.md that queries a process: kubectl port-forward to the leader's pod, then each curl.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/state.sh"

block=$(awk '/^```/ { if (text ~ /port-forward/) { printf "%s", text; exit } text = ""; next } { text = text $0 "\n" }' "$repository/docs/runbooks/README.md")
forward=$(grep -m1 'port-forward' <<<"$block")
queries=$(grep '^curl ' <<<"$block")
[ -n "$queries" ] || die "docs/runbooks/README.md has no curl beside its port-forward"
leader=$("$here/with.sh" kubectl -n kube-system get lease pod-safety -o jsonpath='{.spec.holderIdentity}')
"$here/with.sh" bash -euo pipefail -c "
    ${forward/POD/${leader%_*}} &
    trap 'kill %1' EXIT
    for _ in {1..50}; do curl -sf localhost:8080/livez >/dev/null && break; sleep 0.2; done
    $queries"
