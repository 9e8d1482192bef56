#!/usr/bin/env bash
# A real driver resets a real kernel: the figures of docs/watchdog-lease.md, printed as its table. Needs qemu-system-x86_64, cpio and a static
# busybox, and takes Debian's kernel from its package. Give it a folder to work in.
#
#   tests/watchdog/qemu.sh FOLDER [AGENT [TESTS]]
#
# With the path of a static pod-safety-agent it also shows what `pod-safety-agent check` says of each device, and its drill. With the path of
# its static unit tests they run on cgroups of version 2.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tests/packages.sh

WORK=${1:?a folder to work in}
AGENT=${2:-}
TESTS=${3:-}
mkdir -p "$WORK"
WORK=$(cd "$WORK" && pwd)

if ! compgen -G "$WORK/root/boot/vmlinuz-*" >/dev/null; then
    update_packages
    kernel=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image/ { print $2; exit }')
    unpack_packages "$WORK/root" "$kernel"
fi
kernel=$(compgen -G "$WORK/root/boot/vmlinuz-*" | head -1)
modules=$WORK/root/lib/modules/${kernel##*/vmlinuz-}/kernel/drivers/watchdog

# What each run does after its watchdog was petted for the last time. W is 10 s.
initramfs() { # module
    local root=$WORK/initramfs
    rm -rf "$root"
    mkdir -p "$root"/{bin,dev,proc,sys}
    cp "$(command -v busybox)" "$root/bin/busybox"
    cp "$modules/watchdog.ko" "$modules/$1.ko" "$root/"
    [ -z "$AGENT" ] || cp "$AGENT" "$root/bin/pod-safety-agent"
    [ -z "$TESTS" ] || cp "$TESTS" "$root/bin/unit-tests"
    cat >"$root/init" <<SCRIPT
#!/bin/busybox sh
busybox mount -t proc none /proc
busybox mount -t sysfs none /sys
busybox mount -t devtmpfs none /dev
busybox insmod /watchdog.ko
busybox insmod /$1.ko nowayout=1
what=\$(busybox sed 's/.*what=\([a-z]*\).*/\1/' /proc/cmdline)
if [ "\$what" = cgroups ]; then
    busybox mkdir -p /tmp
    busybox mount -t cgroup2 none /sys/fs/cgroup
    POD_SAFETY_REAL_CGROUPS=1 unit-tests real_cgroups --test-threads 1 2>&1
    busybox poweroff -f
fi
[ "\$what" != check ] || { pod-safety-agent check 2>&1; busybox poweroff -f; }
if [ "\$what" = drill ]; then
    pod-safety-agent drill --reset-this-machine 2>&1 &
    busybox usleep 300000
    echo LAST-PET
    busybox sleep 1000
fi
# It pets once as it starts, and then not for a long time.
busybox watchdog -F -T 10 -t 1000 /dev/watchdog0 &
busybox usleep 300000
echo LAST-PET
case \$what in
    killed) busybox sleep 8; busybox kill -9 \$!; echo KILLED ;;
    stopped) busybox kill -STOP \$! ;;
esac
busybox sleep 1000
SCRIPT
    chmod 755 "$root/init"
    (cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) >"$WORK/initramfs.gz"
}

qemu() { # what, more arguments
    local what=$1
    shift
    # Not KVM: a timer is what is tested, and any machine can do this.
    timeout 120 qemu-system-x86_64 -accel tcg -m 256 -display none -no-reboot -nodefaults -serial stdio -device i6300esb \
        -kernel "$kernel" -initrd "$WORK/initramfs.gz" -append "console=ttyS0 quiet panic=0 what=$what" "$@"
}

now() { date +%s.%N; }

# Seconds from the last pet to the end of the machine, by the clock of this host.
measured() { # what
    local petted='' line control=$WORK/control pause=0
    [ "$1" != paused ] || pause=15
    rm -f "$control.in" "$control.out"
    mkfifo "$control.in" "$control.out"
    {
        while read -r line; do
            case $line in
                *LAST-PET*)
                    petted=$(now)
                    if [ "$pause" != 0 ]; then
                        # The machine does not notice.
                        (echo stop; sleep "$pause"; echo cont) >"$control.in" &
                    fi
                    ;;
            esac
        done
        awk -v from="${petted:?the watchdog was not petted}" -v to="$(now)" 'BEGIN { printf "%.1f", to - from }'
    } < <(exec 3<>"$control.in"; cat "$control.out" >/dev/null & qemu "$1" -chardev "pipe,id=m,path=$control" -mon "chardev=m,mode=readline" 2>/dev/null)
}

for module in i6300esb softdog; do
    initramfs "$module"
    [ -z "$TESTS" ] || qemu cgroups
    [ -z "$AGENT" ] || qemu check | sed "s/^/$module: /"
    for what in ${AGENT:+drill} open stopped killed paused; do
        printf '| %s | %s | %s |\n' "$module" "$what" "$(measured "$what")"
    done
done
