# Sourced by the scripts here.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
tests=$(cd "$here/../.." && pwd -P)
repository=$(cd "$tests/.." && pwd -P)

# The hierarchies of cgroup v1 that containers use.
hierarchies="cpu cpuacct cpuset memory devices freezer blkio pids systemd"
# The switch that all machines hang on, with the control plane at its end.
network=10.88.0
pods=10.89

say() { printf '%s\n' "$*" >&2; }
die() { say "real nodes: $*"; exit 1; }
