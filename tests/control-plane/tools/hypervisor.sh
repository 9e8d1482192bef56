#!/usr/bin/env bash
# A hypervisor to be fenced by: Debian's libvirtd, QEMU and sshd on a machine that has none of them, in namespaces of their own.
# Only root can make one. Nothing of it outlives the first process, and nothing outside its folder is written.
#
#   hypervisor.sh unpacked                                                     the packages, once; prints their folder
#   hypervisor.sh run PACKAGES FOLDER PASSWORD-FILE PORT USER NAME=UUID…       until it is killed
#   hypervisor.sh inside …                                                     the same, in the namespaces
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

unpacked() {
    local cache packages address
    mkdir -p "$here/../../../.cache"
    cache=$(cd "$here/../../../.cache" && pwd -P)
    source "$here/../../packages.sh"
    mapfile -t packages < <(packages_of hypervisor)
    address=$cache/hypervisor-$(sha256sum <<<"${packages[*]}" | cut -c1-16)
    exec 9>"$cache/hypervisor.lock"
    flock 9
    if ! [ -d "$address" ]; then
        printf "fetching Debian's libvirt and QEMU\n" >&2
        scratch=$(mktemp -d "$cache/making.XXXXXXXX")
        trap 'rm -rf "$scratch"' EXIT
        mapfile -t packages < <(missing_packages "${packages[@]}")
        unpack_packages "$scratch/root" "${packages[@]}"
        # Packages of Debian 12 still have files in /lib, which is below /usr on the machine.
        if [ -d "$scratch/root/lib" ] && ! [ -L "$scratch/root/lib" ]; then
            cp -a "$scratch/root/lib/." "$scratch/root/usr/lib/"
        fi
        mv "$scratch/root" "$address"
    fi
    touch "$address" # says that it is in use
    find "$cache" -mindepth 1 -maxdepth 1 -type d -name 'hypervisor-*' -mtime +7 -exec rm -rf {} +
    printf '%s\n' "$address"
}

# The files of /etc that it needs: its own, so that nobody can log in to the machine itself.
accounts() { # folder, user, hash of the password
    mkdir -p "$1/libvirt" "$1/ssh"
    printf 'root:x:0:0::/root:/bin/sh\nsshd:x:901:901::/run/sshd:/usr/sbin/nologin\nlibvirt-qemu:x:902:902::/:/usr/sbin/nologin\n%s:x:1000:1000::/home/fencing:/bin/bash\n' "$2" >"$1/passwd"
    printf 'root:x:0:\nsshd:x:901:\nlibvirt-qemu:x:902:\nkvm:x:904:libvirt-qemu\nlibvirt:x:903:%s\ntty:x:5:\n%s:x:1000:\n' "$2" "$2" >"$1/group"
    printf 'root:*:19000::::::\n%s:%s:19000::::::\n' "$2" "$3" >"$1/shadow"
    printf 'passwd: files\ngroup: files\nshadow: files\nhosts: files\n' >"$1/nsswitch.conf"
    printf '127.0.0.1 localhost\n' >"$1/hosts"
    # Machines run as root of these namespaces, without what a hypervisor of many tenants guards itself with.
    cat >"$1/libvirt/qemu.conf" <<'END'
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
namespaces = []
cgroup_controllers = []
stdio_handler = "file"
END
    # Whoever is in the group libvirt may use the hypervisor.
    cat >"$1/libvirt/libvirtd.conf" <<'END'
unix_sock_group = "libvirt"
unix_sock_rw_perms = "0770"
auth_unix_rw = "none"
END
}

inside() { # packages, folder, port, user, hash, machines…
    local root=$1 folder=$2 port=$3 user=$4 hash=$5 machine
    shift 5
    mkdir -p "$folder"/{etc,var,home}
    accounts "$folder/etc" "$user" "$hash"
    mount -t overlay hypervisor -o "lowerdir=$root/usr:/usr" /usr
    mount --bind "$folder/etc" /etc
    mount --bind "$folder/var" /var
    mount --bind "$folder/home" /home
    mount -t tmpfs hypervisor /run
    mkdir -p /run/sshd /var/{lib,log,cache}/libvirt /home/fencing/.config/libvirt
    ln -s /run /var/run
    # As quickstart-cloud.md tells users: without it virsh has an empty hypervisor of this user's own.
    printf 'uri_default = "qemu:///system"\n' >/home/fencing/.config/libvirt/libvirt.conf
    chown -R 1000:1000 /home/fencing
    ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/key
    /usr/sbin/libvirtd >"$folder/libvirtd.log" 2>&1 &
    local daemon=$!
    until virsh --quiet list >/dev/null 2>&1; do
        kill -0 "$daemon" || { cat "$folder/libvirtd.log" >&2; exit 1; }
        sleep 0.2
    done
    for machine in "$@"; do
        # Without a disk: its firmware looks for one for ever. Emulated, so that /dev/kvm is not needed.
        cat >"$folder/machine.xml" <<END
<domain type='qemu'>
  <name>${machine%%=*}</name><uuid>${machine#*=}</uuid><memory unit='MiB'>16</memory>
  <os><type arch='$(uname -m)' machine='$([ "$(uname -m)" = x86_64 ] && printf pc || printf virt)'>hvm</type></os>
  <devices><emulator>/usr/bin/qemu-system-$(uname -m)</emulator></devices>
</domain>
END
        virsh --quiet define "$folder/machine.xml"
        virsh --quiet start "${machine%%=*}"
    done
    exec /usr/sbin/sshd -D -e -f /dev/null -h /etc/ssh/key -p "$port" -o ListenAddress=127.0.0.1 -o UsePAM=no \
        -o PasswordAuthentication=yes -o KbdInteractiveAuthentication=no -o PidFile=none -o UseDNS=no
}

run() {
    local hash packages=$1 folder=$2 port=$4 user=$5
    hash=$(openssl passwd -6 -stdin <"$3")
    shift 5
    exec unshare --mount --pid --fork --kill-child=KILL --mount-proc --propagation private \
        "$here/hypervisor.sh" inside "$packages" "$folder" "$port" "$user" "$hash" "$@"
}

"$@"
