# CloudNativePG's image with outbox in it, for PostgreSQL 15 to 17: docs/high-availability.md.
ARG PG_MAJOR=17

FROM postgres:${PG_MAJOR}-trixie AS build
ARG PG_MAJOR
RUN apt-get update && apt-get install -y --no-install-recommends \
    g++ libcurl4-openssl-dev librdkafka-dev libssl-dev make nlohmann-json3-dev postgresql-server-dev-${PG_MAJOR}
COPY Makefile outbox.control outbox_inbox.control outbox_manual.control /outbox/
COPY src /outbox/src
COPY sinks/kafka /outbox/sinks/kafka
COPY sinks/webhook /outbox/sinks/webhook
RUN make -C /outbox clean && make -C /outbox -j$(nproc) && make -C /outbox install DESTDIR=/installed && \
    find /installed -name '*.so' -exec strip --strip-unneeded {} +

FROM ghcr.io/cloudnative-pg/postgresql:${PG_MAJOR}-standard-trixie
USER root
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates libcurl4t64 librdkafka1 && \
    rm -rf /var/lib/apt/lists/*
COPY --from=build /installed /
USER 26
