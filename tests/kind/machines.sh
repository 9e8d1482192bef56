#!/usr/bin/env bash
# Makes machines of kind's nodes, in the one respect that fencing asks about: a machine that was switched off and on
# has another boot id, and is otherwise the same. Containers have the boot id of the machine below; so before a node's
# kubelet starts for the first time after `docker start`, one is drawn and put in its place. What is in /run does not
# outlive the container's processes, as a boot id does not outlive a boot.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/state.sh"
with() { "$here/with.sh" "$@"; }

# kind draws a new machine id with every start, and where there is no SMBIOS a kubelet takes that for the UUID of the
# machine: the first one is kept.
prepare='set -eu
[ ! -e /run/boot_id ] || exit 0
[ -e /kind/machine-id ] || cp /etc/machine-id /kind/machine-id
cp /kind/machine-id /etc/machine-id
cat /proc/sys/kernel/random/uuid >/run/boot_id
mount --bind /run/boot_id /proc/sys/kernel/random/boot_id'

for node in $(with kind get nodes --name "$kind_cluster"); do
    if with docker exec "$node" test -e /kind/machine.sh; then
        continue
    fi
    with docker exec --interactive "$node" sh -eu -c '
        cat >/kind/machine.sh
        printf "[Service]\nExecStartPre=/bin/sh /kind/machine.sh\n" >/etc/systemd/system/kubelet.service.d/20-machine.conf
        systemctl daemon-reload
        systemctl restart kubelet' <<<"$prepare"
done
