#!/usr/bin/env bash
# Unpacks real fence agents and what they can be tried against without hardware, once, and prints the folder:
#
#   agents/         Debian's fence-agents, which find their library, Python packages and ipmitool below this folder
#   bin/            ipmitool; ipmi_sim, a management controller that speaks IPMI; sushy-emulator, one that speaks Redfish;
#                   moto_server, a cloud that speaks as EC2 does
#
# Nothing is installed on the machine: the packages would bring clouds' libraries and start services. Only paths
# are changed in the agents. The folder is named by the content of this file and of the packages' names, as that of build.sh
# beside it is by what decides what is built.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=$here/../../../.cache
mkdir -p "$cache"
cache=$(cd "$cache" && pwd -P)
source "$here/../../packages.sh"
mapfile -t debian < <(packages_of fence-agents)
finished=$cache/fence-agents-$({ cat "$here/fence-agents.sh"; printf '%s\n' "${debian[@]}"; } | sha256sum | cut -c1-16)

done_already() {
    [ -d "$finished" ] || return 1
    touch "$finished" # says that it is in use; see below
    printf '%s\n' "$finished"
}
done_already && exit

# Agents of this version are what docs/fence-devices.md speaks of.
version=4.12.1
python=(sushy-tools==2.2.0 pexpect==4.9.0 pycurl==7.49.0 requests==2.34.2 boto3==1.44.8 moto==5.2.5 flask==3.1.3 flask-cors==6.0.5 suds-community==1.2.0)

say() { printf '%s\n' "$*" >&2; }

exec 9>"$cache/fence-agents.lock"
flock 9
done_already && exit
building=$finished.building
rm -rf "$building"
mkdir -p "$building"/{agents,bin}
trap 'rm -rf "$building"' EXIT

say "fetching Debian's fence-agents and ipmi_sim"
unpack_packages "$building/root" "${debian[@]}"
grep -qF "RELEASE_VERSION = \"$version\"" "$building/root/usr/share/fence/fencing.py" ||
    say "these are not fence-agents $version; tests may differ from what they were written for"

say "fetching their Python packages, sushy-emulator and moto"
if ! python3 -m pip --version >/dev/null 2>&1; then
    install_packages python3-pip
fi
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$building/python" "${python[@]}" >&2

# An environment that is empty must be enough for an agent: whatever stands before `python3` in somebody's PATH is not.
interpreter=$(python3 -c 'import sys; print(sys.executable)')
libraries=$finished/root/usr/lib/x86_64-linux-gnu:$finished/root/lib/x86_64-linux-gnu:$finished/root/usr/lib/aarch64-linux-gnu:$finished/root/lib/aarch64-linux-gnu

program() { # name, line that becomes it
    printf '#!/bin/sh\n%s\n' "$2" >"$building/bin/$1"
    chmod 755 "$building/bin/$1"
}
program ipmitool "LD_LIBRARY_PATH=$libraries exec $finished/root/usr/bin/ipmitool \"\$@\""
program ipmi_sim "LD_LIBRARY_PATH=$libraries exec $finished/root/usr/bin/ipmi_sim \"\$@\""
program sushy-emulator "PYTHONPATH=$finished/python exec $interpreter -c 'from sushy_tools.emulator.main import main; raise SystemExit(main())' \"\$@\""
program moto_server "PYTHONPATH=$finished/python exec $interpreter -c 'from moto.server import main; main()' \"\$@\""

cp -a "$building"/root/usr/sbin/fence_* "$building/agents/"
cp -a "$building/root/usr/share/fence" "$building/library"
for agent in "$building"/agents/*; do
    if [ ! -L "$agent" ] && head -c 20 "$agent" | grep -q '^#!/usr/bin/python3'; then
        sed -i -e "1s|/usr/bin/python3|$interpreter|" \
            -e "1a import sys; sys.path[:0] = [\"$finished/library\", \"$finished/python\"]" \
            -e "s|\"/usr/bin/ipmitool\"|\"$finished/bin/ipmitool\"|" "$agent"
    fi
done

mv "$building" "$finished"
# What nobody asked for in a week goes.
find "$cache" -mindepth 1 -maxdepth 1 -type d -name 'fence-agents-*' -mtime +7 -exec rm -rf {} +
done_already
