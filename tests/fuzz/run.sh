#!/usr/bin/env bash
# Runs each fuzz target under libFuzzer for its share of MINUTES (10), one after another. ONLY=WORD takes those with the
# word in their name. An input that fails a check is kept in __fuzz__/TARGET/crashes, is shown with the reason, and ends
# this with 1. KEEP=1 adds the inputs that reached new code to those that every run of the tests begins with.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD

command -v c++ >/dev/null || { echo "run.sh: libFuzzer is C++, and there is no compiler: apt-get install g++" >&2; exit 1; }

# What `cargo bolero` sets, in place of one more program to install: which code an input reaches, and what its bytes are
# compared with. A target triple keeps the flags from build scripts.
flags="--cfg fuzzing --cfg fuzzing_libfuzzer -Cpasses=sancov-module"
for arg in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=" -Cllvm-args=-sanitizer-coverage-$arg"
done
packages=(-p pod-safety-proof -p pod-safety-wire -p pod-safety-fence -p pod-safety-devices -p pod-safety -p pod-safety-simulator)
built=$(RUSTFLAGS="$flags" CARGO_INCREMENTAL=0 cargo test --locked --no-run --lib --bins "${packages[@]}" \
    --target "$(rustc --print host-tuple)" --target-dir target/fuzz 2>&1) || { echo "$built" >&2; exit 1; }
mapfile -t programs < <(sed -n 's/^ *Executable .*(\(.*\))$/\1/p' <<<"$built")

targets=()
for program in "${programs[@]}"; do
    while read -r name; do targets+=("$program $name"); done < <(
        "$program" --list --format terse | sed -n 's/: test$//p' | grep 'fuzz::' | grep -v '::bug_' | grep -F "${ONLY:-}"
    )
done
[ "${#targets[@]}" != 0 ] || { echo "run.sh: no target has \"${ONLY:-fuzz::}\" in its name" >&2; exit 1; }
seconds=$((${MINUTES:-10} * 60 / ${#targets[@]}))

failed=0
for target in "${targets[@]}"; do
    read -r program name <<<"$target"
    kept=$root/tests/fuzz/__fuzz__/${name//::/__}
    found=$root/target/fuzz/inputs/${name//::/__}
    mkdir -p "$found" "$kept/corpus" "$kept/crashes"
    arguments="-max_total_time=$seconds -max_len=1024 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1"
    log=$found.log
    if BOLERO_LIBFUZZER_ARGS="$arguments -artifact_prefix=$kept/crashes/ $found $kept/corpus" \
        "$program" "$name" --exact --nocapture --test-threads=1 >"$log" 2>&1; then
        executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        printf '== %9s inputs, %s  %s\n' "${executed:-0}" "$(grep -o 'cov: [0-9]*' "$log" | tail -1)" "$name"
        if [ -n "${KEEP:-}" ]; then
            BOLERO_LIBFUZZER_ARGS="-merge=1 $kept/corpus $found" "$program" "$name" --exact --nocapture >>"$log" 2>&1
        fi
    else
        failed=1
        printf '== FAILED  %s (%s)\n' "$name" "$log"
        tail -40 "$log"
    fi
    rmdir "$kept/corpus" "$kept/crashes" "$kept" 2>/dev/null || true
done
exit "$failed"
