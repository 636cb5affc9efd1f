# A static binary and nothing else: no shell, no libc, no user but a number.
# BuildKit (the default since Docker 23) keeps the dependencies between builds.

# Rust's Alpine image builds for musl, which is linked statically, on the architecture it runs on.
FROM rust:1.95-alpine AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY src src
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin bellwether \
    && cp target/release/bellwether /bellwether

FROM scratch
LABEL org.opencontainers.image.title="bellwether" \
      org.opencontainers.image.description="A leader-election sidecar: stands in line in ZooKeeper and tells your application who leads" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0"
COPY --from=build /bellwether /bellwether
USER 65532:65532
# The API listens on 127.0.0.1:4040, for the containers of the same pod: BELLWETHER_LISTEN opens it.
EXPOSE 4040
ENTRYPOINT ["/bellwether"]
CMD ["run"]
