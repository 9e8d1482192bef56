# Sourced: steps with names, and how long each took.

steps_names=()
steps_seconds=()

step() { # name, command…
    local name=$1 begin=$EPOCHREALTIME
    shift
    say "== $name"
    "$@"
    step_ended "$name" "$begin"
}

# The same, for what a command prints.
step_into() { # variable, name, command…
    local -n into=$1
    local name=$2 begin=$EPOCHREALTIME
    shift 2
    say "== $name"
    into=$("$@")
    step_ended "$name" "$begin"
}

step_ended() { # name, when it began
    steps_names+=("$1")
    steps_seconds+=("$(awk -v begin="$2" -v end="$EPOCHREALTIME" 'BEGIN { printf "%.1f", end - begin }')")
}

steps_took() {
    local at
    printf '\n| step | s |\n|---|---:|\n'
    for at in "${!steps_names[@]}"; do
        printf '| %s | %s |\n' "${steps_names[at]}" "${steps_seconds[at]}"
    done
    printf '| together | %s |\n' "$(printf '%s\n' "${steps_seconds[@]}" | awk '{ sum += $1 } END { printf "%.1f", sum }')"
}
