#!/bin/sh
# The network of pods, as small as it can be: the plugins of this node get its range of addresses, and the ranges of the
# others are routed to them.
set -eu
config=/etc/cni/net.d/10-pod-network.conflist

write_config() { # range of addresses
    cat >"$config.new" <<JSON
{ "cniVersion": "0.3.1", "name": "pod-network", "plugins": [
  { "type": "ptp", "ipMasq": true, "mtu": 1500,
    "ipam": { "type": "host-local", "dataDir": "/run/cni-ipam-state", "routes": [{ "dst": "0.0.0.0/0" }],
              "ranges": [[{ "subnet": "$1" }]] } },
  { "type": "portmap", "capabilities": { "portMappings": true } } ] }
JSON
    cmp -s "$config.new" "$config" || mv "$config.new" "$config"
}

while :; do
    # A line for each node, and again when it changes; the watch is ended by the API server now and then.
    kubectl get nodes --watch -o 'jsonpath={.metadata.name} {.status.addresses[?(@.type=="InternalIP")].address} {.spec.podCIDR}{"\n"}' |
        while read -r node address range; do
            if [ "$node" = "$NODE_NAME" ]; then
                [ -z "$range" ] || write_config "$range"
            elif [ -n "$range" ]; then
                ip route replace "$range" via "$address" || echo "no route to $node yet"
            fi
        done
    sleep 1
done
