#!/usr/bin/env bash
# Says how long the tests of each program took, from what the runner wrote down: one line a program (the sum of its
# tests, which ran beside each other), then the ten longest tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

report=target/nextest/${1:-default}/junit.xml # whatever CARGO_TARGET_DIR says: the runner keeps it with the workspace
[ -f "$report" ] || { printf 'no test ran: %s is missing\n' "$report" >&2; exit 1; }

cases=$(sed -n 's/.*<testcase name="\([^"]*\)" classname="\([^"]*\)".* time="\([0-9.]*\)".*/\3 \2 \1/p' "$report")
awk '{ time[$2] += $1; tests[$2]++ } END { for (name in time) printf "%9.1f s  %5d tests  %s\n", time[name], tests[name], name }' \
    <<<"$cases" | sort -rn | sed 's/^/== /'
sort -rn <<<"$cases" | awk 'NR <= 10 { printf "==  %7.1f s  %s %s\n", $1, $2, $3 }'
