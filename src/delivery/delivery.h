/*
 * delivery.h: what the server side calls of the delivery library: how it finds a kind of sink, the engines of all
 * libraries as one, and what concerns no kind. The functions of a kind stand in its struct (kind.h).
 *
 * The server side (src/server, postgres.h, longjmp) hands events in and takes completions out. The delivery library
 * (src/delivery, modern C++, threads) talks to brokers and endpoints and never sees PostgreSQL. The rules of kind.h
 * hold here too.
 */
#ifndef OUTBOX_DELIVERY_H
#define OUTBOX_DELIVERY_H

#include "delivery/kind.h"

extern "C" {

/* ---- kinds of sink ------------------------------------------------------------------------------------------ */

/* The struct with the functions for this kind. Of a kind that no library has, and of one that is unavailable, they
 * fail and say why. Any thread. */
const ob_sink_kind *ob_kind(const char *kind) noexcept;
/* Registers a kind from a library of its own (kind.h) if it fits this outbox and this PG_VERSION_NUM. Returns false
 * with *error filled otherwise; nothing of the library is called then. Once registered, a library stays; a later one
 * of the same kind takes its place for what is made from then on. Main thread. */
bool ob_kind_register(const char *kind, const ob_sink_kind *library, int pg_version, ob_error *error) noexcept;
/* From now on each function that is given this kind fails with *why, until a whole library of it is registered. Main
 * thread. */
void ob_kind_unavailable(const char *kind, const ob_error *why) noexcept;
bool ob_kind_is_registered(const char *kind) noexcept;
/* Is all of the kind there, and not only what makes messages? */
bool ob_kind_is_whole(const char *kind) noexcept;

/* For configure() of every kind, also of one that is registered later. Main thread. */
void ob_set_origin(const char *database, uint32_t timeline) noexcept;
void ob_set_networks(const char *list) noexcept;

/* ---- the engines (one of each library whose sinks are open; only the worker's main thread calls) -------------- */

typedef struct ob_engines ob_engines;

/* NULL with *error filled on failure. The engine of a library is opened with its first sink or probe. */
ob_engines *ob_engines_open(ob_error *error) noexcept;
/* Readable whenever one of the engines has something. */
int ob_engines_fd(const ob_engines *engines) noexcept;
/* As in ob_sink_kind; engine_close() of all takes `timeout_ms` together. */
bool ob_engines_close(ob_engines *engines, int timeout_ms) noexcept;
size_t ob_collect(ob_engines *engines, ob_completion *out, size_t max) noexcept;
bool ob_next_log(ob_engines *engines, ob_log_line *line) noexcept;
ob_sink *ob_sink_open(ob_engines *engines, const char *name, const char *kind, const ob_sink_options *given,
                      ob_error *error) noexcept;
ob_probe *ob_probe_start(ob_engines *engines, const char *name, const char *kind, const ob_sink_options *given,
                         int timeout_ms, bool send, const char *topics, ob_error *error) noexcept;

/* ---- what concerns no kind (pure functions: any thread, any process, no state) -------------------------------- */

/* A header with this name and value is required in the event. */
typedef struct ob_match {
  ob_text name;
  ob_text value;
} ob_match;

/* Parses the option "match". `pairs` needs strlen(match) / 6 elements; their texts are written to `buffer`,
 * which needs strlen(match) bytes. Returns false with *error filled when `match` is invalid. */
bool ob_match_pairs(const char *match, ob_match *pairs, size_t *n, char *buffer, ob_error *error) noexcept;

/* Retry policy: '100ms..5min' (doubles, with random jitter over the upper half of each delay) or steps
 * '15s*3, 5m*5' (the last one repeats; each delay is up to 10 % longer). `attempts` is the number of failed attempts,
 * from 1; `random` is a uniformly distributed number. With `slow` the delay is at least one minute, or the policy's
 * longest delay if that is shorter. */
bool ob_check_retry(const char *policy, ob_error *error) noexcept;
int64_t ob_retry_delay_ms(const char *policy, int attempts, bool slow, uint64_t random) noexcept;

/* Is this a list of networks, as the setting outbox.allow_networks takes it? */
bool ob_check_networks(const char *list, ob_error *error) noexcept;

/* The reason as a label of a metric: "http_5xx". Static string. */
const char *ob_reason_name(ob_reason reason) noexcept;
}

/* Frees what a kind has made, if there is something. */
template <class Handle> void ob_release(Handle *handle) noexcept {
  if (handle)
    handle->release(handle);
}

#endif
