# Sourced by the scripts here.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
tests=$(cd "$here/../.." && pwd -P)
repository=$(cd "$tests/.." && pwd -P)

# The switch that all machines hang on, with the control plane at its end.
network=10.88.0
pods=10.89

say() { printf '%s\n' "$*" >&2; }
die() { say "real nodes: $*"; exit 1; }

# In the world, what was unpacked is at hand.
if [ -n "${REAL_NODES_TOOLS:-}" ]; then
    root=$REAL_NODES_TOOLS/root
    libraries=$(uname -m)-linux-gnu
    export PATH=$root/usr/bin:$root/usr/sbin:$PATH
    export XTABLES_LIBDIR=$root/usr/lib/$libraries/xtables
    export LD_LIBRARY_PATH=$root/lib/$libraries:$root/usr/lib/$libraries
fi
