# Sourced by the scripts here: cgroups, of the version in REAL_NODES_CGROUPS (v1 or v2), which src/needs.rs has found. No other
# file of this folder knows that there are two.
#
# On v1 each controller has a hierarchy of its own. On v2 there is one for all, and a cgroup that hands controllers to those below
# it may hold no process itself (the root of all may); so a machine's first processes are in a leaf of the machine's cgroup.

version=${REAL_NODES_CGROUPS:-}
[ "$version" = v1 ] || [ "$version" = v2 ] || { printf 'real nodes: REAL_NODES_CGROUPS is "%s", not v1 or v2\n' "$version" >&2; exit 1; }
top=/sys/fs/cgroup
# Of v1, those that containers use.
hierarchies="cpu cpuacct cpuset memory devices freezer blkio pids systemd"
# Of v2, those that a kubelet uses.
controllers="+cpu +cpuset +memory +pids"
# A machine's own programs: kubelet, containerd, and what they start outside of pods.
leaf=services
# Of a container that is the machine below: what ran there before us.
rest=pod-safety-rest

# Waits for what the kernel does in its own time.
until_so() { # what, command…
    local what=$1 tries
    shift
    for tries in {1..1500}; do
        ! "$@" || return 0
        sleep 0.02
    done
    printf 'real nodes: after 30 s still not so: %s\n' "$what" >&2
    return 1
}

# The folders of a cgroup.
folders() { # cgroup
    local hierarchy
    case $version in
        v1) for hierarchy in $hierarchies; do printf '%s\n' "$top/$hierarchy/$1"; done ;;
        v2) printf '%s\n' "$top/$1" ;;
    esac
}

# The cgroup that all machines of a world are below.
make_world() { # cgroup
    local folder
    for folder in $(folders "$1"); do mkdir -p "$folder"; done
    case $version in
        v1) inherit_cpus "$1" "" ;;
        v2)
            # The root of a container is not the root of all.
            if ! share "$top" 2>/dev/null; then
                clear_out "$top" "$top/$rest"
                share "$top"
            fi
            share "$top/$1"
            ;;
    esac
}

make_machine() { # cgroup
    local folder
    for folder in $(folders "$1"); do mkdir -p "$folder"; done
    [ "$version" = v2 ] || inherit_cpus "$1" "$(dirname "$1")"
}

# A new cpuset of v1 has no processor and no memory.
inherit_cpus() { # cgroup, the one above it
    local what
    for what in cpus mems; do
        cat "$top/cpuset/$2/cpuset.$what" >"$top/cpuset/$1/cpuset.$what"
    done
}

# Hands the controllers to the cgroups below.
share() { # folder
    echo "$controllers" >"$1/cgroup.subtree_control"
}

# Moves all processes to a leaf. They make others meanwhile.
clear_out() { # folder, leaf
    mkdir -p "$2"
    until_so "there is no process in $1" moved "$1" "$2"
}
moved() {
    local pid
    for pid in $(cat "$1/cgroup.procs"); do
        echo "$pid" >"$2/cgroup.procs" 2>/dev/null || [ ! -d "/proc/$pid" ] || return 1
    done
    [ -z "$(cat "$1/cgroup.procs")" ]
}

# The calling shell belongs to the machine from now on: to its cgroup itself, which becomes the root that the machine sees.
become_machine() { # cgroup
    local folder
    for folder in $(folders "$1"); do echo $$ >"$folder/cgroup.procs"; done
}

# Once it sees its root, and before it makes pods.
settle_machine() { # cgroup
    [ "$version" = v2 ] || return 0
    clear_out "$top/$1" "$top/$1/$leaf"
    share "$top/$1"
}

# The calling shell becomes one of the machine's own programs, so that it is frozen with the machine.
join_machine() { # cgroup
    case $version in
        v1) become_machine "$1" ;;
        v2) echo $$ >"$top/$1/$leaf/cgroup.procs" ;;
    esac
}

freeze_machine() { # cgroup
    case $version in
        v1) set_freezer "$1" FROZEN ;;
        v2) set_frozen "$1" 1 ;;
    esac
}

# One that was switched off meanwhile, as a fence does, has nothing that is frozen.
thaw_machine() { # cgroup
    case $version in
        v1) [ ! -e "$top/freezer/$1/freezer.state" ] || { thaw_below "$1"; set_freezer "$1" THAWED; } ;;
        v2) [ ! -e "$top/$1/cgroup.freeze" ] || set_frozen "$1" 0 ;;
    esac
}

# Of v1: the cgroup, and pods in it that are frozen themselves.
thaw_below() { # cgroup
    local state
    while read -r state; do echo THAWED >"$state"; done < <(find "$top/freezer/$1" -name freezer.state)
}

set_freezer() { # cgroup, state
    echo "$2" >"$top/freezer/$1/freezer.state"
    until_so "$1 is $2" grep -q "^$2$" "$top/freezer/$1/freezer.state"
}
set_frozen() { # cgroup, 0 or 1
    echo "$2" >"$top/$1/cgroup.freeze"
    until_so "cgroup.events of $1 has 'frozen $2'" grep -q "^frozen $2$" "$top/$1/cgroup.events"
}

# All of its processes together run for so many of 100,000 microseconds; empty: for as long as they like.
limit_machine() { # cgroup, microseconds
    case $version in
        v1) [ ! -e "$top/cpu/$1/cpu.cfs_quota_us" ] || echo "${2:--1}" >"$top/cpu/$1/cpu.cfs_quota_us" ;;
        v2) [ ! -e "$top/$1/cpu.max" ] || echo "${2:-max} 100000" >"$top/$1/cpu.max" ;;
    esac
}

# Kills all of its processes, at once and without a word to anybody: on v1 the kernel does when the first one dies.
kill_machine() { # cgroup, first process
    case $version in
        v1)
            kill -KILL "$2"
            thaw_below "$1"
            ;;
        v2) echo 1 >"$top/$1/cgroup.kill" ;;
    esac
}

# When the first process of a world has died, the kernel kills all others; but on v1 one that is frozen does not die.
end_world() { # cgroup
    local state
    case $version in
        v1)
            for state in "$top/freezer/$1"/*/freezer.state; do
                [ ! -e "$state" ] || echo THAWED >"$state"
            done
            ;;
        v2) [ ! -d "$top/$1" ] || echo 1 >"$top/$1/cgroup.kill" ;;
    esac
    remove_cgroup "$1"
}

# Removes a cgroup with all below it; there may be none. Its last processes may still be ending.
remove_cgroup() { # cgroup
    until_so "the cgroup $1 is empty and removed" removed "$1"
}
removed() {
    local folder left=0
    for folder in $(folders "$1"); do
        [ ! -d "$folder" ] || find "$folder" -depth -type d -exec rmdir {} + 2>/dev/null || true
        [ ! -d "$folder" ] || left=1
    done
    [ "$left" = 0 ]
}

# Inside the machine: it sees its own cgroup as the root.
mount_cgroups() {
    local hierarchy kind
    case $version in
        v1)
            mount -t tmpfs -o mode=755 tmpfs "$top"
            for hierarchy in $hierarchies; do
                mkdir "$top/$hierarchy"
                kind=$hierarchy
                [ "$hierarchy" != systemd ] || kind=none,name=systemd
                mount -t cgroup -o "$kind" cgroup "$top/$hierarchy"
            done
            ;;
        v2) mount -t cgroup2 cgroup2 "$top" ;;
    esac
}
