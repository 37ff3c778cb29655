# Only the extension, for CloudNativePG's image volumes (PostgreSQL 18): docs/cloudnativepg.md.
#   lib, share   where the server looks for libraries and extensions;  system   shared libraries that the stock image lacks
ARG PG_MAJOR=18

FROM postgres:${PG_MAJOR}-trixie AS build
ARG PG_MAJOR
RUN apt-get update && apt-get install -y --no-install-recommends \
    g++ libcurl4-openssl-dev librdkafka-dev libssl-dev make nlohmann-json3-dev postgresql-server-dev-${PG_MAJOR}
COPY Makefile outbox.control /outbox/
COPY src /outbox/src
RUN make -C /outbox clean && make -C /outbox -j$(nproc) && make -C /outbox install DESTDIR=/installed
RUN mkdir -p /extension/lib /extension/share/extension /extension/system && \
    cp /installed/usr/lib/postgresql/${PG_MAJOR}/lib/outbox.so /extension/lib/ && \
    strip --strip-unneeded /extension/lib/outbox.so && \
    cp /installed/usr/share/postgresql/${PG_MAJOR}/extension/* /extension/share/extension/
# All that outbox needs and a bare postgres does not have, but the C library and what the server itself brings.
RUN ldd /extension/lib/outbox.so | awk '$3 ~ "^/" {print $3}' | sort > /tmp/ours && \
    { ldd /usr/lib/postgresql/${PG_MAJOR}/bin/postgres | awk '$3 ~ "^/" {print $3}'; echo /lib/x86_64-linux-gnu/libc.so.6; } | sort > /tmp/theirs && \
    comm -23 /tmp/ours /tmp/theirs | xargs -I{} cp -L {} /extension/system/

FROM scratch
COPY --from=build /extension /
