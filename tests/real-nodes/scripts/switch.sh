#!/usr/bin/env bash
# The power of a machine, for tests/kind/bmc.py. While there is a folder /run/lies it says what it was told, and does nothing.
#
#   switch.sh on|off|status NAME
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")

if [ ! -d /run/lies ]; then
    exec "$here/machine.sh" "$1" "${2#n}"
elif [ "$1" != status ]; then
    echo "$1" >"/run/lies/$2"
else
    cat "/run/lies/$2" 2>/dev/null || "$here/machine.sh" status "${2#n}"
fi
