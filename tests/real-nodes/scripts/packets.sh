#!/usr/bin/env bash
# packets.sh IPTABLES-ARGUMENTS…: what may pass between programs of the control plane, in the world's own network.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/state.sh"
exec iptables -w "$@"
