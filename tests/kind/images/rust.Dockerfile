# Stands in for the official Rust image where none can be pulled: Debian, this machine's compiler, and the sources of
# every crate in the lock file, for there is no registry either.
ARG DEBIAN
FROM ${DEBIAN}
COPY toolchain /usr/local/rust
COPY crates /usr/local/crates
COPY cargo.toml /usr/local/cargo/config.toml
ENV PATH=/usr/local/rust/bin:/usr/sbin:/usr/bin CARGO_HOME=/usr/local/cargo
