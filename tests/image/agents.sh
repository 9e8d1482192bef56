#!/usr/bin/env bash
# Runs the last steps of the Dockerfile's stage `agents` on a Debian of packages, because no image can be pulled everywhere, and
# prints what they add in MB. Each agent of docs/quickstart-cloud.md must print its metadata there, as the user of the image.
# usage: tests/image/agents.sh ["PACKAGES"]; needs root, and the network. Without PACKAGES it writes tests/records/image-agents.toml.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
begin=$SECONDS
die() { printf 'agents.sh: %s\n' "$*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || die "only root can make a Debian of packages"

stage=$(awk '/^FROM / { inside = / AS agents$/ } inside' Dockerfile)
run=$(awk '/^RUN / { inside = 1; sub(/^RUN /, "") } inside { print } inside && !/\\$/ { exit }' <<<"$stage")
user=$(sed -n 's/^USER //p' <<<"$stage")
suite=bookworm
grep -q '^ARG DEBIAN_IMAGE=debian:12-' Dockerfile || die "the stage is of another Debian than $suite"
[ -n "$run" ] && [ -n "$user" ] || die "the Dockerfile has no stage agents with RUN and USER"

tools=$(tests/kind/debian.sh docker)
mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' | awk -v suite="$suite" '$2 == suite { print $1; exit }')
scratch=$(mktemp -d)
root=$scratch/root
trap 'rm -rf --one-file-system "$scratch"' EXIT
# It mounts things inside the new root: in a mount namespace of its own, so that none of them stays.
DEBOOTSTRAP_DIR=$tools/usr/share/debootstrap unshare --mount "$tools/usr/sbin/debootstrap" --variant=minbase "$suite" "$root" "$mirror" >"$scratch/log" 2>&1 ||
    die "debootstrap failed: $(tail -3 "$scratch/log")"
cp /etc/resolv.conf "$root/etc/"
cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
# Debian's own images keep no cache of apt.
megabytes() { rm -rf "$root"/var/cache/apt/* && du -sm "$root" | cut -f1; }
before=$(megabytes)
env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive PACKAGES="${1:-}" chroot "$root" sh -euc "$run" >"$scratch/log" 2>&1 ||
    die "the packages cannot be installed: $(tail -3 "$scratch/log")"
adds="$(($(megabytes) - before)) MB"
printf 'the packages add %s\n' "$adds"

mapfile -t agents < <(sed -n 's/^ *agent: \(fence_[a-z_]*\)$/\1/p' docs/quickstart-cloud.md)
[ "${#agents[@]}" -gt 5 ] || die "docs/quickstart-cloud.md names ${#agents[@]} agents"
for agent in "${agents[@]}"; do
    metadata=$(echo action=metadata | env -i PATH=/usr/sbin:/usr/bin:/bin chroot --userspec="$user" "$root" "/usr/sbin/$agent") || die "$agent does not run"
    [[ $metadata == *"<resource-agent"* ]] || die "$agent prints no metadata"
done
# Some agents start ssh, which does nothing for a user without a name.
chroot --userspec="$user" "$root" ssh -G localhost >/dev/null || die "ssh does not run as $user"
printf 'agents that run as %s: %s\n' "$user" "${agents[*]}"

[ -n "${1:-}" ] || tests/records/write.sh image-agents outcome=passed seconds=$((SECONDS - begin)) figure="the packages add: $adds" \
    figure="agents that run: ${agents[*]}"
