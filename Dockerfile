# A static binary and nothing else: no shell, no libc, no user but a number. For this machine, or for another:
#     docker build -t bellwether .
#     docker buildx build --platform linux/amd64,linux/arm64 .
#     podman build --format docker -t bellwether .      # its own format has no health check
# BuildKit (the default since Docker 23) says what to build on and for; --build-arg TARGETARCH=arm64 says it by hand.

# The digest is that of the index of all architectures: `docker buildx imagetools inspect rust:1.95-slim-bookworm`.
ARG RUST=rust:1.95-slim-bookworm@sha256:d7482085ff5b415f84dba5647ae71606650bdef00db7aeb69f4b3d170c3e4082
FROM --platform=$BUILDPLATFORM $RUST AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
ARG TARGETARCH
# The dependencies are a layer of their own, which stays until one of them changes: beside them only a program that
# does nothing is built here.
COPY scripts/lib.sh scripts/static scripts/
COPY Cargo.toml Cargo.lock ./
COPY patches patches
COPY crates/dev-server/Cargo.toml crates/dev-server/
COPY crates/recipes/Cargo.toml crates/recipes/
RUN mkdir -p src crates/dev-server/src crates/recipes/src && echo 'fn main() {}' >src/main.rs \
    && touch src/lib.rs crates/dev-server/src/lib.rs crates/recipes/src/lib.rs \
    && scripts/static "$TARGETARCH"
COPY crates crates
COPY src src
# What was copied is older than what was built.
RUN touch src/main.rs src/lib.rs crates/recipes/src/lib.rs && cp "$(scripts/static "$TARGETARCH")" /bellwether

FROM scratch
LABEL org.opencontainers.image.title="bellwether" \
      org.opencontainers.image.description="A leader-election sidecar on ZooKeeper: tells your application who leads" \
      org.opencontainers.image.version="0.2.0" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0"
COPY --from=build /bellwether /bellwether
USER 65532:65532
# The API listens on 127.0.0.1:4040, for the containers of the same pod: BELLWETHER_LISTEN opens it.
EXPOSE 4040
# It asks where the first process listens: by --listen, by BELLWETHER_LISTEN or by its file.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["/bellwether", "probe", "live"]
ENTRYPOINT ["/bellwether"]
CMD ["run"]
