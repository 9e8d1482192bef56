#!/usr/bin/env bash
# Called by a run at its end: writes its record and what the pages say of it.
#
#   tests/records/write.sh NAME KEY=VALUE…       tests/locks/src/records.rs has the keys; commit is HEAD unless it is given
#
# A record is of a commit. Where the files that the run depends on differ from it, nothing is written.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

unset RUSTFLAGS
if ! cargo run --quiet --locked --profile test -p pod-safety-locks --example record -- "$1" commit="$(git rev-parse HEAD)" "${@:2}"; then
    printf 'write.sh: no record of %s was written; see above\n' "$1" >&2
fi
