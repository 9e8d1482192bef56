#!/usr/bin/env bash
# The power of a machine, for ipmi_sim: `chassis.sh NAME CONTROLLER get power`, `chassis.sh NAME CONTROLLER set power 0|1`.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
name=$1 act=$3
shift 3
case $act in
    get)
        power=0
        [ "$("$here/switch.sh" status "$name")" = off ] || power=1
        printf 'power:%s\n' "$power"
        ;;
    set)
        while [ $# -ge 2 ]; do
            case "$1 $2" in
                'power 0') "$here/switch.sh" off "$name" >&2 ;;
                'power 1') "$here/switch.sh" on "$name" >&2 ;;
            esac
            shift 2
        done
        ;;
esac
