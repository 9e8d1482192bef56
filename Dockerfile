# The image holds two static binaries, of pod-safety and of the agent of nodes, and nothing else: no shell, no libc, no package to patch. The image of the sidecar has Debian's
# fence agents beside it.
#
#   docker build -t pod-safety .
#   docker build -t pod-safety:agents --target agents .
#
# The compiler image is pinned by its digest, of which the tag is only the name. A new one is what
# `docker buildx imagetools inspect rust:1.95.0-bookworm` prints.
# Each architecture is built on its own kind of node (or by emulation); nothing here names one.
ARG RUST_IMAGE=rust:1.95.0-bookworm@sha256:6258907abe69656e41cd992e0b705cdcfabcbbe3db374f92ed2d47121282d4a1
ARG DEBIAN_IMAGE=debian:12-slim@sha256:88200866dfff7ea7f5cbcb6ec7c8a701889efe6fe859fe64d6990e4b07ea4171

FROM ${RUST_IMAGE} AS build
ARG TARGETARCH
# The commit, for `pod-safety version`.
ARG REVISION=unknown
WORKDIR /src
# Static, for glibc: Debian's libc of 2022 and later has the `files` and `dns` name services built in, so
# names still resolve in an empty root, by the /etc/hosts and /etc/resolv.conf that the kubelet mounts.
# (The API server is an IP address in a cluster; fence devices may have names.)
ENV RUSTFLAGS="-C target-feature=+crt-static"
# There is no CA bundle either: every TLS client of ours must be given its root certificates (the service
# account's, or those beside a fence device's Secret), and fails to start without them.
COPY . .
# The demonstration (`--no-default-features` leaves it out) is for workstations: no simulator in a cluster.
# `--target` keeps RUSTFLAGS away from build scripts and procedural macros, which cannot be static.
# cargo-auditable writes the names and versions of all crates into the binary. Without that a scanner, and so the
# SBOM of the image, finds nothing in it.
# All paths of the commands are relative: tests/image runs these very lines without a container.
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,id=pod-safety-target-${TARGETARCH},target=/src/target,sharing=locked \
    RUSTFLAGS="" cargo install --quiet --locked --version 0.7.7 --root target/tools cargo-auditable \
    && POD_SAFETY_REVISION="${REVISION}" target/tools/bin/cargo-auditable auditable build --package pod-safety --no-default-features --release --locked --target host-tuple \
    && target/tools/bin/cargo-auditable auditable build --package pod-safety-agent --profile agent --locked --target host-tuple \
    && mkdir -p image \
    && cp "target/$(rustc --print host-tuple)/release/pod-safety" image/pod-safety \
    && cp "target/$(rustc --print host-tuple)/agent/pod-safety-agent" image/pod-safety-agent

FROM ${DEBIAN_IMAGE} AS agents
ARG VERSION=0.1.0
ARG REVISION=unknown
# More packages. The agent of Azure needs "python3-azure python3-adal", which take more than all the others together (tests/image/agents.sh), and does not run without them.
ARG PACKAGES=""
# Labels as those of the last stage.
LABEL org.opencontainers.image.title="pod-safety with fence agents" \
      org.opencontainers.image.description="pod-safety's sidecar: fence agents of Debian, run without rights in the cluster" \
      org.opencontainers.image.source="https://github.com/pod-safety/pod-safety" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# Debian mends its packages under the same name: each release takes those of its day, and the SBOM names them.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates fence-agents ipmitool openssh-client snmp python3-novaclient python3-keystoneclient python3-kubernetes python3-openshift ${PACKAGES} \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 65531 --user-group --no-create-home --home-dir /tmp --shell /usr/sbin/nologin agents
# ssh does nothing for a user without a name, and keeps the keys of hosts in the home of its user.
COPY --from=build /src/image/pod-safety /src/image/pod-safety-agent /
USER 65531:65531
ENTRYPOINT ["/pod-safety"]
CMD ["fence-agents", "--help"]

FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="pod-safety" \
      org.opencontainers.image.description="Kubernetes controllers that force delete a pod only with proof that its processes have terminated" \
      org.opencontainers.image.source="https://github.com/pod-safety/pod-safety" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /src/image/pod-safety /src/image/pod-safety-agent /
# A number, so that runAsNonRoot can be checked without an /etc/passwd.
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/pod-safety"]
CMD ["run"]
