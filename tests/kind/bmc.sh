#!/usr/bin/env bash
# A power switch for each node of the kind cluster, as a Redfish service that pods reach, and what pod-safety must know
# of it: a FenceDevice with its Secret, and a FencePolicy.
#
#   tests/kind/bmc.sh up        starts it and prints the objects, for kubectl apply
#   tests/kind/bmc.sh down      ends it
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/state.sh"
with() { "$here/with.sh" "$@"; }

port=8443
folder=$kind_state/bmc

up() {
    down
    mkdir -p "$folder"
    chmod 700 "$folder"
    # Docker's network of the nodes ends at this address of the machine on which Docker runs.
    local address password
    address=$(with docker network inspect kind --format '{{range .IPAM.Config}}{{println .Gateway}}{{end}}' | grep -m1 -F .)
    password=$(openssl rand -hex 16)
    openssl req -x509 -newkey rsa:2048 -nodes -days 7 -subj /CN=bmc -addext "subjectAltName=IP:$address" \
        -keyout "$folder/key.pem" -out "$folder/certificate.pem" 2>/dev/null
    with kubectl get nodes -o jsonpath='{range .items[*]}{.metadata.name} {.status.nodeInfo.systemUUID}{"\n"}{end}' >"$folder/machines"
    setsid "$here/with.sh" python3 "$here/bmc.py" "$address" "$port" "$folder/certificate.pem" "$folder/key.pem" "$password" \
        "$folder/machines" "$here/switch.sh" >"$folder/log" 2>&1 </dev/null &
    note_process "$folder/process" $!
    within 20 "the power switch listens; see $folder/log" \
        with python3 -c "import socket; socket.create_connection(('$address', $port), 1)"
    objects "$address" "$password"
}

objects() { # address, password
    cat <<YAML
apiVersion: v1
kind: Secret
metadata:
  namespace: pod-safety
  name: bmc
  annotations: { pod-safety.dev/fence-devices: bmc }
stringData: { password: $2 }
---
apiVersion: pod-safety.dev/v1alpha1
kind: FenceDevice
metadata: { namespace: pod-safety, name: bmc }
spec:
  driver: Redfish
  identityCheck: Required
  monitorSeconds: 30
  parameters:
    address: https://$1:$port
    system: /redfish/v1/Systems/{{.Node.Name}}
    username: admin
    ca: |
$(sed 's/^/      /' "$folder/certificate.pem")
  secretParameters:
    - { parameter: password, secret: bmc, key: password }
---
apiVersion: pod-safety.dev/v1alpha1
kind: FencePolicy
metadata: { name: workers }
spec:
  nodeSelector: { matchExpressions: [{ key: node-role.kubernetes.io/control-plane, operator: DoesNotExist }] }
  unhealthy: { silentSeconds: 20 }
  levels: [{ name: bmc, devices: [{ namespace: pod-safety, name: bmc }] }]
  recovery: PowerOn
YAML
}

down() {
    local process
    if process=$(noted_process "$folder/process"); then
        kill "$process"
    fi
    rm -rf "$folder"
}

case ${1:-} in
    up) up ;;
    down) down ;;
    *) die "usage: bmc.sh up|down" ;;
esac
