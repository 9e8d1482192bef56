# Sourced, after state.sh and steps.sh: what a cluster is made with, where Docker can pull images and where not.

with() { "$here/with.sh" "$@"; }

daemon() {
    with docker version >/dev/null 2>&1 || "$here/daemon.sh" up
}

programs() {
    ln -sfn "$("$here/programs.sh")" "$kind_state/programs"
    ln -sfn "$("$here/../control-plane/tools/build.sh")" "$kind_state/tools"
}

# `make image` takes the compiler's image from the environment that with.sh gives it.
rust() { "$here/images.sh" rust >"$kind_state/rust-image"; }

# `kind create cluster` without --image means the published one. Where that cannot be pulled, a `kind` that names ours is found first.
node() {
    local image
    image=$("$here/node.sh")
    rm -rf "$kind_state/shims"
    [ -n "$image" ] || return 0
    mkdir -p "$kind_state/shims"
    cat >"$kind_state/shims/kind" <<KIND
#!/bin/sh
if [ "\$1 \$2" = "create cluster" ]; then
    shift 2
    set -- create cluster --image $image "\$@"
fi
exec $kind_state/programs/kind "\$@"
KIND
    chmod 755 "$kind_state/shims/kind"
}

prepare() {
    step "a Docker daemon" "" daemon
    step "kind, kubectl, helm" "" programs
    step "the compiler's image" "the published one, or one of this machine's compiler and crates" rust
    step "the node's image" "the published one, or one of Kubernetes built from its modules" node
}
