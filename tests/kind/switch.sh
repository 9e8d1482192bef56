#!/usr/bin/env bash
# The power of a kind node: off is `docker kill`, every process of it ends at once, without a word to anybody.
#
#   tests/kind/switch.sh on|off|status NODE
set -euo pipefail

case $1 in
    on) docker start "$2" ;;
    off) docker kill --signal=KILL "$2" ;;
    status)
        case $(docker inspect --format '{{.State.Running}}' "$2") in
            true) echo on ;;
            false) echo off ;;
        esac
        ;;
esac
