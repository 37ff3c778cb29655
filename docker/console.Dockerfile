# The console:  docker build -f docker/console.Dockerfile -t outbox-console .
FROM debian:trixie-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ libmicrohttpd-dev libpq-dev make pkg-config
COPY outbox.control /outbox/
COPY console /outbox/console
RUN make -C /outbox/console -j$(nproc) && make -C /outbox/console install DESTDIR=/installed prefix=/usr

FROM debian:trixie-slim
RUN apt-get update && apt-get install -y --no-install-recommends libmicrohttpd12t64 libpq5 && rm -rf /var/lib/apt/lists/*
COPY --from=build /installed /
USER nobody
ENTRYPOINT ["outbox-console"]
