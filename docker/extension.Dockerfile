# Only the extension, for CloudNativePG's image volumes (PostgreSQL 18): docs/high-availability.md.
# packaging/image-volume says which files.
ARG PG_MAJOR=18

FROM postgres:${PG_MAJOR}-trixie AS build
ARG PG_MAJOR
RUN apt-get update && apt-get install -y --no-install-recommends \
    g++ libcurl4-openssl-dev librdkafka-dev libssl-dev make nlohmann-json3-dev postgresql-server-dev-${PG_MAJOR}
COPY Makefile outbox.control outbox_inbox.control outbox_manual.control LICENSE packaging/image-volume /outbox/
COPY src /outbox/src
COPY sinks/kafka /outbox/sinks/kafka
COPY sinks/webhook /outbox/sinks/webhook
RUN make -C /outbox clean && make -C /outbox -j$(nproc) && make -C /outbox install DESTDIR=/installed
RUN cd /outbox && sh image-volume ${PG_MAJOR} /installed /extension

FROM scratch
COPY --from=build /extension /
