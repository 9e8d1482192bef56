#!/usr/bin/env bash
# A machine with the driver of an i6300esb and the agent in it, until it is reset. The word `kill` on the input kills the agent. Started by
# controllers/agent/tests/whole/guest.rs, in a folder that tests/watchdog/qemu.sh has worked in before.
set -euo pipefail

work=$(cd "$1" && pwd) agent=$2 port=$3
kernel=$(compgen -G "$work/root/boot/vmlinuz-*" | head -1)
drivers=$work/root/lib/modules/${kernel##*/vmlinuz-}/kernel/drivers
root=$work/guest
rm -rf "$root"
mkdir -p "$root"/{bin,dev,proc,run,sys}
cp "$(command -v busybox)" "$root/bin/busybox"
cp "$agent" "$root/bin/pod-safety-agent"
cp -r "$work/account" "$root/account"
cp "$drivers/watchdog/watchdog.ko" "$drivers/watchdog/i6300esb.ko" "$drivers/net/ethernet/intel/e1000/e1000.ko" "$root/"
cat >"$root/init" <<SCRIPT
#!/bin/busybox sh
for module in watchdog e1000; do busybox insmod /\$module.ko; done
busybox insmod /i6300esb.ko nowayout=1
busybox mount -t proc none /proc
busybox mount -t sysfs none /sys
busybox mount -t devtmpfs none /dev
busybox mount -t cgroup2 none /sys/fs/cgroup
busybox ip link set eth0 up
busybox ip addr add 10.0.2.15/24 dev eth0
pod-safety-agent run --node a --namespace safe --server 10.0.2.2 --port $port --account /account --gated &
while read -r word; do
    [ "\$word" != kill ] || busybox kill -9 \$!
done
busybox sleep 1000
SCRIPT
chmod 755 "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) >"$work/guest.gz"
exec timeout 300 qemu-system-x86_64 -accel tcg -m 256 -display none -no-reboot -nodefaults -serial stdio -device i6300esb -netdev user,id=n \
    -device e1000,netdev=n,romfile= -kernel "$kernel" -initrd "$work/guest.gz" -append "console=ttyS0 quiet panic=0"
