#!/usr/bin/env bash
# Prints krew.yaml for a release: krew.sh VERSION pod-safety-OS-ARCH.tar.gz...
set -euo pipefail
version=$1; shift
manifest=$(sed "s|{{version}}|$version|g; /^#/d" "$(dirname "${BASH_SOURCE[0]}")/krew.yaml")
for archive in "$@"; do
    IFS=- read -r os arch <<<"$(basename "$archive" .tar.gz | sed 's/^pod-safety-//')"
    sum=$(sha256sum "$archive" | cut -d' ' -f1)
    manifest=${manifest//"{{sha256 $os $arch}}"/$sum}
done
# A platform without its archive must not be published.
if grep -F '{{' <<<"$manifest" >&2; then
    echo "krew.sh: nothing was given for the above" >&2
    exit 1
fi
printf '%s\n' "$manifest"
