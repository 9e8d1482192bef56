#!/usr/bin/env bash
# Builds pod-safety's image from the Dockerfile, and prints the names of the images that a cluster is made of.
#
#   tests/kind/images.sh pod-safety [FOLDER]     the image under test, of this checkout or another
#   tests/kind/images.sh debian                  a small Debian, for what else is built here
#
# Where Docker can pull, the bases are the published ones; where not, they are made of what is on this machine.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/state.sh"

docker() { "$here/with.sh" docker "$@"; }
has() { docker image inspect "$1" >/dev/null 2>&1; }
address() { cut -c1-12 <<<"$(sha256sum)"; }

debian() {
    local published=debian:12-slim archive image
    if has "$published" || pulled "$published"; then
        printf '%s\n' "$published"
        return
    fi
    archive=$("$here/debian.sh" root)
    image=pod-safety-kind/debian:$(basename "$archive" .tar)
    has "$image" || docker import "$archive" "$image" >/dev/null
    printf '%s\n' "$image"
}

# The compiler's image that the Dockerfile names, or one like it.
rust() {
    local published debian image
    published=$(sed -n 's/^ARG RUST_IMAGE=//p' "$repository/Dockerfile")
    if has "$published" || pulled "$published"; then
        printf '%s\n' "$published"
        return
    fi
    debian=$(debian)
    image=pod-safety-kind/rust:$( (cat "$repository/Cargo.lock" "$here/images/"{rust.Dockerfile,cargo.toml} && rustc -V && printf '%s' "$debian") | address)
    if ! has "$image"; then
        say "making the compiler's image of this machine's compiler and crates"
        local context
        context=$(mktemp -d "$kind_state/rust.XXXXXXXX")
        trap 'rm -rf "$context"' EXIT
        mkdir "$context/toolchain"
        cp -r "$(rustc --print sysroot)"/{bin,lib} "$context/toolchain/"
        cargo vendor --quiet --locked --manifest-path "$repository/Cargo.toml" "$context/crates" >/dev/null
        cp "$here/images/cargo.toml" "$context"
        docker build --quiet --build-arg DEBIAN="$debian" --file "$here/images/rust.Dockerfile" --tag "$image" "$context" >/dev/null
        rm -rf "$context"
        trap - EXIT
    fi
    printf '%s\n' "$image"
}

pod_safety() { # checkout
    local image=pod-safety:dev rust
    rust=$(rust)
    say "building $image from the Dockerfile, on $rust"
    "$here/with.sh" make --no-print-directory --directory "$1" image IMAGE="$image" RUST_IMAGE="$rust" >&2
    printf '%s\n' "$image"
}

case ${1:-} in
    debian) debian ;;
    pod-safety) pod_safety "${2:-$repository}" ;;
    *) die "usage: images.sh debian|pod-safety [FOLDER]" ;;
esac
