#!/bin/sh
# Inside a Debian: copies a few of its programs, and the libraries of those and of programs built by Go, to /collected.
set -eu
mkdir -p /collected/usr/bin /collected/usr/sbin /collected/usr/lib /collected/usr/lib64 /collected/tmp /collected/run
for folder in bin sbin lib lib64; do ln -s "usr/$folder" "/collected/$folder"; done

# A shell and what pod-network.sh calls; sleep is also all that a pause image does.
programs="/usr/bin/sh /usr/bin/sleep /usr/bin/mv /usr/bin/cmp /usr/bin/cat /usr/bin/ip
    /usr/sbin/xtables-nft-multi /usr/sbin/xtables-legacy-multi /usr/sbin/nft"
libraries=$(find /usr/lib -name 'libresolv.so.2' -o -name 'libpthread.so.0' -o -name 'libdl.so.2')
extensions=$(find /usr/lib -path '*/xtables/*.so')

for file in $programs $libraries $extensions; do
    cp --parents -L "$file" /collected
    # Some say "not a dynamic executable", which is fine: they need nothing.
    { ldd "$file" 2>/dev/null || true; } | grep -o '/lib[^ ]*' | xargs -r -I{} cp --parents -L {} /collected
done
for name in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
    ln -s xtables-nft-multi "/collected/usr/sbin/$name"
done
