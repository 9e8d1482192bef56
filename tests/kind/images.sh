#!/usr/bin/env bash
# Prints the names of the images that others are built on.
#
#   tests/kind/images.sh rust        the compiler's image, for the Dockerfile
#   tests/kind/images.sh debian      a small Debian, for what else is built here
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

# Name and version of the program that the Dockerfile installs by cargo.
installs() { sed -n 's/.*cargo install .*--version \([^ ]*\) .* \([^ ]*\) \\$/\2 \1/p' "$repository/Dockerfile"; }

# The sources of all crates of the lock file, and of that program by its own lock file.
vendor() { # folder
    local program version tool
    read -r program version <<<"$(installs)"
    [ -n "$version" ] || die "the Dockerfile installs no program by cargo install --version"
    # Outside of the repository, or cargo would take it for a member of the workspace.
    tool=$(mktemp -d)
    mkdir "$tool/src"
    touch "$tool/src/lib.rs"
    printf '[package]\nname = "tool"\nedition = "2024"\n[dependencies]\n%s = "=%s"\n' "$program" "$version" >"$tool/Cargo.toml"
    cargo vendor --quiet --manifest-path "$tool/Cargo.toml" "$tool/crates" >/dev/null
    # It has a lock file and no workspace of its own.
    mv "$tool/crates/$program" "$tool/program"
    cargo vendor --quiet --locked --manifest-path "$tool/Cargo.toml" --sync "$tool/program/Cargo.toml" \
        --sync "$repository/Cargo.toml" "$1" >/dev/null
    rm -rf "$tool"
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
    image=pod-safety-kind/rust:$( (cat "$repository/Cargo.lock" "$here/images/"{rust.Dockerfile,cargo.toml} && rustc -V && printf '%s' "$debian" "$(installs)") | address)
    if ! has "$image"; then
        say "making the compiler's image of this machine's compiler and crates"
        local context
        context=$(mktemp -d "$kind_state/rust.XXXXXXXX")
        trap 'rm -rf "$context"' EXIT
        mkdir "$context/toolchain"
        cp -r "$(rustc --print sysroot)"/{bin,lib} "$context/toolchain/"
        vendor "$context/crates"
        cp "$here/images/cargo.toml" "$context"
        docker build --quiet --build-arg DEBIAN="$debian" --file "$here/images/rust.Dockerfile" --tag "$image" "$context" >/dev/null
        rm -rf "$context"
        trap - EXIT
    fi
    printf '%s\n' "$image"
}

case ${1:-} in
    debian) debian ;;
    rust) rust ;;
    *) die "usage: images.sh debian|rust" ;;
esac
