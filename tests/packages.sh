# Sourced by the scripts that need packages of Debian or Ubuntu; the only place that names them.
#
# Releases call the same package differently. `A|B` is the first that this machine's lists have, `A+B` is both, and `A*` all whose
# names begin so: no release is asked for its name.

packages_of() { # what for
    case $1 in
        # With what the scripts and tests themselves call.
        fence-agents)
            printf '%s\n' 'fence-agents-*|fence-agents' ipmitool openipmi 'libopenipmi0t64|libopenipmi0' libfreeipmi17 \
                'libsnmp40t64|libsnmp40' 'libpopt0t64|libpopt0' libncurses6 'libreadline8t64|libreadline8'
            ;;
        # What tests/real-nodes makes machines of.
        machine)
            printf '%s\n' containerd runc tini libseccomp2 libfaketime containernetworking-plugins
            packages_of iptables
            ;;
        # A daemon, and what makes it a small Debian.
        docker)
            printf '%s\n' 'docker.io+docker-cli|docker.io' containerd runc tini libdevmapper1.02.1 debootstrap
            packages_of iptables
            ;;
        # A libvirtd, and an sshd by which it is reached.
        hypervisor)
            printf '%s\n' libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients openssh-server
            case $(uname -m) in aarch64) echo qemu-system-arm ;; *) echo qemu-system-x86 ;; esac
            ;;
        iptables)
            printf '%s\n' iptables 'libip4tc2t64|libip4tc2' 'libip6tc2t64|libip6tc2' 'libxtables12t64|libxtables12' libmnl0 \
                libnftnl11 libnfnetlink0 'libnetfilter-conntrack3t64|libnetfilter-conntrack3'
            ;;
        *) packages_die "packages.sh does not know $1" ;;
    esac
}

packages_say() { printf '%s\n' "$*" >&2; }
packages_die() { packages_say "packages: $*"; exit 1; }

# May be called before anything is begun, and says nothing then.
can_be_root() { [ "$(id -u)" = 0 ] || command -v sudo >/dev/null; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        packages_die "this needs root, and there is no sudo: run it as root, or, as root: $*"
    fi
}

# The lists, fetched once for a script and those that it starts.
update_packages() {
    [ -z "${POD_SAFETY_PACKAGES_UPDATED:-}" ] || return 0
    command -v apt-get >/dev/null || packages_die "this needs the apt-get of Debian 12, Debian 13 or Ubuntu 24.04"
    as_root apt-get update -qq >&2
    export POD_SAFETY_PACKAGES_UPDATED=yes
}

# Which of these names the lists have, and not only others that stand for them, one a line.
known_packages() { # name…
    local policy
    policy=$(LC_ALL=C apt-cache policy "$@")
    awk '/^[^ ]/ { name = $1; sub(/:$/, "", name) } $1 == "Candidate:" && $2 != "(none)" { print name }' <<<"$policy"
}

# The names that this machine has for what is asked for, one a line.
resolved_packages() { # specification…
    local specification alternative name found
    local -a alternatives
    local known
    # shellcheck disable=SC2046 # names have no blanks
    known=$(known_packages $(printf '%s\n' "$@" | tr '|+' '\n\n' | grep -v '\*'))
    for specification in "$@"; do
        IFS='|' read -ra alternatives <<<"$specification"
        for alternative in "${alternatives[@]}"; do
            found=$(all_of "$alternative") && break
        done
        [ -n "$found" ] || packages_die "no package of this machine's lists is $specification; Debian 12, Debian 13 and Ubuntu 24.04 (with universe) have it"
        printf '%s\n' "$found"
    done
}

# Nothing, if one of them is missing.
all_of() { # A+B, or A*
    if [[ $1 == *\* ]]; then
        apt-cache search --names-only "^${1%\*}" | cut -d' ' -f1 | LC_ALL=C sort | grep .
        return
    fi
    local name
    for name in ${1//+/ }; do
        grep -qx "$name" <<<"$known" || return 1
    done
    printf '%s\n' ${1//+/ }
}

install_packages() { # specification…
    local names
    update_packages
    names=$(resolved_packages "$@")
    # shellcheck disable=SC2086 # names have no blanks
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $names >/dev/null
}

# These packages and all that they depend on, without what this machine has: for a folder that is laid over its /usr.
missing_packages() { # specification…
    local names
    update_packages
    names=$(resolved_packages "$@")
    # shellcheck disable=SC2086
    names=$(apt-cache depends --recurse --no-{recommends,suggests,conflicts,breaks,replaces,enhances} $names |
        grep '^[a-z0-9]' | LC_ALL=C sort -u | LC_ALL=C comm -23 - <(dpkg-query -W -f '${Package}\n' | LC_ALL=C sort -u))
    # An alternative that is never needed beside systemd and a merged /usr, and would disturb them.
    # shellcheck disable=SC2086
    known_packages $names | grep -vE 'elogind|usrmerge|cdebconf'
}

# Packages whose installing would start servers, or bring half a desktop.
unpack_packages() { # folder, specification…
    local folder=$1 downloads names package
    shift
    update_packages
    names=$(resolved_packages "$@")
    downloads=$(mktemp -d)
    # shellcheck disable=SC2086
    (cd "$downloads" && apt-get download -qq -o APT::Sandbox::User=root $names >&2)
    for package in "$downloads"/*.deb; do
        dpkg -x "$package" "$folder"
    done
    rm -r "$downloads"
}
