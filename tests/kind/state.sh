# Sourced by the scripts here: where they keep things, and how they speak.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
# What takes long to make again, and what belongs to this checkout's cluster.
kind_cache=$repository/.cache/kind
kind_state=$repository/target/kind
# Sockets have short names. Two checkouts do not disturb each other.
kind_run=/run/pod-safety-kind-$(sha256sum <<<"$repository" | cut -c1-8)
# README's commands make a cluster `pod-safety`: that is a person's own, and stays.
kind_cluster=pod-safety-try
kubeconfig=$kind_state/kubeconfig
mkdir -p "$kind_cache" "$kind_state"
# The programs of a node are of the pinned version, so those of the control plane are too.
unset KUBERNETES

say() { printf '%s\n' "$*" >&2; }
die() { say "kind: $*"; exit 1; }

# When a process began, by which it is told from another that got its number later. Empty: it is not there.
began() { awk '{ sub(/.*\) /, ""); print $20 }' "/proc/$1/stat" 2>/dev/null || true; }

# Writes down that a process is ours.
note_process() { # file, process
    printf '%s %s\n' "$2" "$(began "$2")" >"$1"
}

# The process that was written down, if it still is that.
noted_process() { # file
    local process began
    read -r process began 2>/dev/null <"$1" || return 1
    [ "$(began "$process")" = "$began" ] && printf '%s\n' "$process"
}

# Waits until a command succeeds, and says what did not happen if it does not.
within() { # seconds, what is waited for, command…
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || die "this did not happen in time: $what"
        sleep 0.5
    done
}

# Whether Docker can pull an image; then it has. The daemon that we start has no way to the world.
pulled() { # image
    ! noted_process "$kind_state/daemon" >/dev/null || return 1
    "$repository/tests/kind/with.sh" docker pull --quiet "$1" >/dev/null 2>&1
}
