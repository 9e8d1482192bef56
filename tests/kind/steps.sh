# Sourced: steps with names, what must hold after each, and how long each took. They are written down for the record of the run.

steps_taken=$kind_state/steps

step() { # name, what must hold, command…
    local name=$1 holds=$2 begin=$EPOCHREALTIME
    shift 2
    say "== $name"
    "$@"
    awk -v OFS='\t' -v name="$name" -v holds="$holds" -v begin="$begin" -v end="$EPOCHREALTIME" \
        'BEGIN { printf "%.1f\t%s\t%s\n", end - begin, name, holds }' >>"$steps_taken"
}

steps_took() {
    printf '\n'
    awk -F '\t' '{ printf "%8.1f s  %s\n", $1, $2; sum += $1 } END { printf "%8.1f s  together\n", sum }' "$steps_taken"
}
