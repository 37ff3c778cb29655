/*
 * delivery.h: the one API between the server side and the delivery library.
 *
 * The server side (src/server, postgres.h, longjmp) hands events in and takes completions out. The delivery library
 * (src/delivery, modern C++, threads) talks to brokers and endpoints and never sees PostgreSQL.
 *
 * Rules of the delivery API: every function is noexcept and safe to call from a thread that may later longjmp (none
 * keeps a lock or a C++ object alive in the caller's frame); none blocks on the network, except ob_engine_close(),
 * which is bounded. All functions of one engine are called from one thread, the caller's. Text is UTF-8, not
 * NUL-terminated unless it is `const char *`.
 */
#ifndef OUTBOX_DELIVERY_H
#define OUTBOX_DELIVERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define OB_NOEXCEPT noexcept
extern "C" {
#else
#define OB_NOEXCEPT
#endif

/* ---- plain data ------------------------------------------------------------------------------------------- */

/* A piece of text or bytes that the caller owns for the time of the call. data == NULL means SQL NULL. */
typedef struct ob_text {
  const char *data;
  size_t len;
} ob_text;

typedef struct ob_header {
  ob_text name;
  ob_text value;
  bool binary; /* the value is bytes, not text */
} ob_header;

/* An option as CREATE SERVER or CREATE USER MAPPING gave it. */
typedef struct ob_option {
  const char *name;
  const char *value;
} ob_option;

/* What went wrong, in PostgreSQL's style: a primary message in lower case without a full stop, the fact, the next
 * step. Empty strings where there is nothing to say. Never holds a secret. */
typedef enum ob_error_kind {
  OB_OK = 0,
  OB_UNKNOWN_OPTION, /* name is in `subject`; the server side adds the HINT with the nearest name */
  OB_BAD_VALUE,      /* an option or an event's field has a value that cannot work */
  OB_MISSING_OPTION, /* a required option is absent */
  OB_WRONG_PLACE,    /* a secret given to the server, or a server option given to the user mapping */
  OB_FORBIDDEN,      /* superuser only */
  OB_TOO_LARGE,      /* an event that the sink can never take */
  OB_INTERNAL        /* out of memory, a library refused to start */
} ob_error_kind;

typedef struct ob_error {
  ob_error_kind kind;
  char subject[64]; /* the option's name, where there is one */
  char message[512];
  char detail[512];
  char hint[512];
} ob_error;

typedef enum ob_scope { OB_SERVER, OB_USER_MAPPING } ob_scope;

typedef struct ob_event {
  uint64_t ticket;   /* the caller's; comes back in the completion */
  uint64_t key_hash; /* events of one key have one hash; 0 = unordered, no key to keep in order */
  int64_t position;
  int64_t created_at_us; /* Unix time */
  int64_t seq;           /* the application's own; only with has_seq */
  bool has_seq;
  uint8_t id[16];
  ob_text aggregate_type;
  ob_text aggregate_id; /* may be NULL */
  ob_text event_type;
  ob_text key; /* the partition key; may be NULL */
  ob_text dedup_key;
  ob_text payload;      /* NULL = tombstone; JSON text, or raw bytes when payload_is_bytes */
  ob_text content_type; /* of raw bytes; NULL for JSON */
  bool payload_is_bytes;
  int attempt; /* 1 for the first try */
  bool alone;  /* nothing else of its key is under way, and nothing is handed in until it has ended */
  const ob_header *headers;
  size_t n_headers;
} ob_event;

/* What ${database} stands for: the one of this process. To be said before options are parsed; copied. */
void ob_set_database(const char *name) OB_NOEXCEPT;

/* ---- options (pure functions: any thread, any process, no state) ------------------------------------------- */

/* Checks the options of a sink of `kind` ("kafka", "webhook"). With OB_SERVER the list is the whole server as it
 * would be after the DDL. True when good; else false, with *error filled. */
bool ob_check_options(const char *kind, ob_scope scope, const ob_option *options, size_t n, bool superuser,
                      ob_error *error) OB_NOEXCEPT;

/* The names that `kind` knows in `scope`, for a HINT. Writes at most `max` pointers to static strings. */
size_t ob_option_names(const char *kind, ob_scope scope, const char **names, size_t max) OB_NOEXCEPT;

/* The options that every kind has, parsed. Unset ones carry the kind's defaults. */
typedef struct ob_common {
  bool ordered;
  bool block_on_dead_letter; /* a dead letter's key waits for a user */
  int max_attempts;          /* 0 = not set: the caller's default applies */
  int64_t retention_ms;      /* -1 = not set; 0 = delete on delivery */
  const char *retry;         /* policy text; NULL = not set; points into `options` */
  int default_max_attempts;  /* of the kind and format, when neither option nor setting says otherwise */
  const char *default_retry; /* static string */
  int64_t disable_after_ms;  /* failing for so long without a success disables it; 0 = never */
} ob_common;
bool ob_common_options(const char *kind, const ob_option *options, size_t n, ob_common *out,
                       ob_error *error) OB_NOEXCEPT;

/* A header that an event must have, with this value. */
typedef struct ob_match {
  ob_text name;
  ob_text value;
} ob_match;

/* Takes the option "match" apart. `pairs` has room for (strlen(match) + 1) / 4 of them; their texts lie in `room`,
 * which is as long as `match`. False with *error filled when it does not parse. */
bool ob_match_pairs(const char *match, ob_match *pairs, size_t *n, char *room, ob_error *error) OB_NOEXCEPT;

/* Retry policy: 'exponential 100ms..5min' (with full jitter down to a half) or steps '15s*3, 5m*5' (the last one
 * repeats) with up to a tenth more. `attempts` counts the failed ones, from 1; `random` is any uniformly distributed
 * number. `slow`: a minute at least, or the policy's longest delay where that is shorter. */
bool ob_check_retry(const char *policy, ob_error *error) OB_NOEXCEPT;
int64_t ob_retry_delay_ms(const char *policy, int attempts, bool slow, uint64_t random) OB_NOEXCEPT;

/* A list of networks, as in the setting outbox.allow_networks: what every webhook may reach besides the networks of
 * its own option. To be set before sinks are opened or probed; a bad or empty list allows nothing. */
bool ob_check_networks(const char *list, ob_error *error) OB_NOEXCEPT;
void ob_set_networks(const char *list) OB_NOEXCEPT;

/* Judges a server whose owner is no superuser: he may change its user mapping at will, so that must not override
 * options which, beside what a superuser alone may set, only a superuser could change. True when good. */
bool ob_check_owner(const char *kind, const ob_option *options, size_t n, const ob_option *mapping, size_t n_mapping,
                    ob_error *error) OB_NOEXCEPT;

/* A checker judges events at enqueue time against one sink's options: is the topic legal, are the headers, is it
 * too large? It has no thread and no connection. NULL with *error filled when the options do not parse. */
typedef struct ob_checker ob_checker;
ob_checker *ob_checker_open(const char *kind, const ob_option *options, size_t n, ob_error *error) OB_NOEXCEPT;
/* Likewise one that knows the user mapping's secrets: its previews are signed, and show none of them. */
ob_checker *ob_checker_open_with_secrets(const char *kind, const ob_option *options, size_t n,
                                         const ob_option *mapping, size_t n_mapping, ob_error *error) OB_NOEXCEPT;
bool ob_checker_check(const ob_checker *checker, const ob_event *event, ob_error *error) OB_NOEXCEPT;
/* For an event that is being enqueued: false also when the event could be sent but is probably a mistake, such as a
 * NULL payload for a sink that does not say whether that is a tombstone. */
bool ob_checker_check_new(const ob_checker *checker, const ob_event *event, ob_error *error) OB_NOEXCEPT;
/* The largest payload that can pass, in bytes (SIZE_MAX = no limit of its own): lets the caller skip rendering. */
size_t ob_checker_max_payload(const ob_checker *checker) OB_NOEXCEPT;
void ob_checker_close(ob_checker *checker) OB_NOEXCEPT;

/* A part of what a sink would send: of a record its topic, key, each header; of a request its url, each header, its
 * body, and the command that sends the same. `bytes` as they would be sent; where data is NULL, `text` says what
 * stands there: a number of the protocol, or in parentheses who knows more (each attempt anew, the user mapping).
 * Both NULL: null (no key, a tombstone). */
typedef struct ob_part {
  const char *part; /* static string */
  ob_text name;     /* of a header; data NULL for other parts */
  ob_text bytes;
  ob_text text;
} ob_part;

/* What the sink would send for the event at `now`, in Unix seconds, without secrets. NULL with *error filled when it
 * would refuse the event, as ob_checker_check() does. */
typedef struct ob_preview ob_preview;
ob_preview *ob_preview_open(const ob_checker *checker, const ob_event *event, int64_t now,
                            ob_error *error) OB_NOEXCEPT;
/* In order; valid until the preview is closed. */
const ob_part *ob_preview_parts(const ob_preview *preview, size_t *n) OB_NOEXCEPT;
void ob_preview_close(ob_preview *preview) OB_NOEXCEPT;

/* ---- the engine (one per worker process; only its main thread calls) ----------------------------------------- */

typedef struct ob_engine ob_engine;
typedef struct ob_sink ob_sink;

/* Starts the engine. Its threads block every signal. NULL with *error filled on failure. */
ob_engine *ob_engine_open(ob_error *error) OB_NOEXCEPT;

/* Readable whenever ob_collect() or ob_next_log() may have something. Never read it: ob_collect() does. */
int ob_engine_fd(const ob_engine *engine) OB_NOEXCEPT;

/* Ends every thread and connection within about `timeout_ms`. Outstanding tickets get no completion. True: all is
 * gone and the process may run exit handlers. False: something hangs (a resolver, a broker) and the process must
 * leave with _exit(). The engine must not be used again either way. */
bool ob_engine_close(ob_engine *engine, int timeout_ms) OB_NOEXCEPT;

/* Opens a sink: connects in the background, never waits. `name` is used in logs and errors. `mapping` are the
 * options of PUBLIC's user mapping (secrets). */
ob_sink *ob_sink_open(ob_engine *engine, const char *name, const char *kind, const ob_option *options, size_t n,
                      const ob_option *mapping, size_t n_mapping, ob_error *error) OB_NOEXCEPT;

/* Other processes may send to the same peer: this engine is `index` of so many, and keeps its part of the sink's
 * limits. `turns`: memory of all of them for this sink, 0 at first, in which they keep its rate limit together; it
 * must stay as long as the sink is open. NULL: each keeps to its part of that too. May be repeated. */
void ob_sink_share(ob_sink *sink, int index, int of, int64_t *turns) OB_NOEXCEPT;

/* Much may have gathered for the peer while it was stopped: it gets little at once at first, and then more. */
void ob_sink_begin_slowly(ob_sink *sink) OB_NOEXCEPT;

/* Gives the sink up: what is not on the wire comes back as OB_RETURNED at once, what is gets `grace_ms` to finish
 * and then comes back as OB_RETURNED too (it may have arrived: a possible duplicate). Returns immediately; every
 * ticket gets its completion. The pointer is invalid after ob_sink_closed() returned true. */
void ob_sink_close(ob_sink *sink, int grace_ms) OB_NOEXCEPT;
/* True once every ticket of a closing sink has been collected; frees it. */
bool ob_sink_closed(ob_sink *sink) OB_NOEXCEPT;

/* Why a delivery failed, or the peer could not be reached: few enough to be labels of a metric. */
typedef enum ob_reason {
  OB_REASON_NONE, /* it did not fail, or not by itself */
  OB_REASON_TIMEOUT,
  OB_REASON_CONNECTION, /* refused, or lost */
  OB_REASON_DNS,
  OB_REASON_TLS,
  OB_REASON_AUTH,         /* credentials or rights: SASL, HTTP 401, 403, 407 */
  OB_REASON_HTTP_3XX,     /* redirects are not followed */
  OB_REASON_HTTP_4XX,     /* but for those of AUTH, RATE_LIMITED and TOO_LARGE */
  OB_REASON_HTTP_5XX,     /* and answers that are no HTTP status of a known class */
  OB_REASON_RATE_LIMITED, /* HTTP 429 */
  OB_REASON_TOO_LARGE,    /* by the broker's or the endpoint's own word */
  OB_REASON_TOPIC,        /* missing, or may not be written */
  OB_REASON_BROKER,       /* a broker answers, and cannot store */
  OB_REASON_BLOCKED,      /* by the network guard */
  OB_REASON_INVALID,      /* this event cannot be sent with the sink's options */
  OB_REASON_OTHER,
  OB_REASONS
} ob_reason;
/* As a label: "http_5xx". Static string. */
const char *ob_reason_name(ob_reason reason) OB_NOEXCEPT;

typedef enum ob_sink_state {
  OB_SINK_OK,           /* delivering or idle */
  OB_SINK_DEGRADED,     /* delivering, but not to all of its topics, or slower than it could: last_error says why */
  OB_SINK_CIRCUIT_OPEN, /* down as a whole: takes nothing until a probe succeeds */
  OB_SINK_DISABLED      /* will not try again by itself (410, wrong credentials): open it anew to reset */
} ob_sink_state;

typedef struct ob_sink_status {
  ob_sink_state state;
  uint32_t credit;       /* how many events it takes now; 0 while the circuit is open, 1 for a probe */
  int64_t outage_ms;     /* while the circuit is open: since the first failure of the outage; else -1 */
  int64_t retry_in_ms;   /* with credit 0: when to ask again, -1 = when a completion arrives */
  uint64_t failed_tries; /* how often the peer has said no, or could not be reached, since the sink was opened */
  /* Of these and of all other failures so many for each reason; any change also moves `n_failures`. */
  uint64_t n_failures;
  uint64_t failures[OB_REASONS];
  char last_error[512]; /* of the sink as a whole; empty when all is well */
} ob_sink_status;
void ob_sink_get_status(ob_sink *sink, ob_sink_status *status) OB_NOEXCEPT;

/* Takes one reason that has ceased: events that came back as OB_DEFERRED with an error that begins so need not wait
 * any longer. False when there is none. */
bool ob_sink_next_resumed(ob_sink *sink, char *error, size_t size) OB_NOEXCEPT;

/* Submits events in order; everything is copied. Returns how many were taken (a prefix): the rest is
 * back-pressure, not an attempt. Every one taken gets exactly one completion. */
size_t ob_submit(ob_sink *sink, const ob_event *events, size_t n) OB_NOEXCEPT;

typedef enum ob_outcome {
  OB_SENT,     /* acknowledged */
  OB_RETRY,    /* this event failed: count an attempt, wait, try again */
  OB_DEFERRED, /* its destination within the sink (a Kafka topic) cannot be used now, or it has failed before and the
              sink is down as a whole: hold its key like a failing event's, try again after retry_after_ms, and spend
              no attempt, however often */
  OB_REJECTED, /* this event can never succeed: a dead letter */
  OB_RETURNED  /* not tried, or the sink is down as a whole: no attempt is spent, claim it again later */
} ob_outcome;

/* Order: an event with a key that comes back as OB_RETRY, OB_DEFERRED or OB_RETURNED was not overtaken by a later one
 * of its key: those come back as OB_RETURNED (or OB_DEFERRED behind OB_DEFERRED), and what is submitted before the
 * caller has collected all of them is not sent. With on_dead_letter 'block' the same goes for OB_REJECTED. */

typedef struct ob_completion {
  uint64_t ticket;
  ob_outcome outcome;
  int64_t retry_after_ms; /* what the peer asked for; -1 = nothing */
  bool suspect;           /* OB_RETRY that may be the sink's fault: if the circuit opens soon, no attempt is spent */
  bool slow_retry;        /* OB_RETRY: not before a minute (ob_retry_delay_ms) */
  int max_attempts;       /* OB_RETRY: give it up after so many, if the sink allows more; 0 = nothing said */
  const char *error;      /* NULL for OB_SENT; NUL-terminated; valid until the next ob_collect() of the engine */
} ob_completion;

/* Takes at most `max` completions; never waits. */
size_t ob_collect(ob_engine *engine, ob_completion *out, size_t max) OB_NOEXCEPT;

/* What a step of a probe found: an empty hint says that there is nothing to do. Never holds a secret. */
typedef struct ob_probe_step {
  char name[24];
  bool ok;
  double milliseconds;
  char message[512];
  char hint[384];
} ob_probe_step;

/* Tries a sink of these options, whether it is open or not, on a thread of its own: connects, authenticates, asks for
 * metadata and rights. With `send` it then sends a test event, which says that it is one. It ends within `timeout_ms`
 * and then makes the engine's descriptor readable. Options that do not parse are a step that failed; NULL with *error
 * filled means that nothing could be started. */
typedef struct ob_probe ob_probe;
ob_probe *ob_probe_start(ob_engine *engine, const char *name, const char *kind, const ob_option *options, size_t n,
                         const ob_option *mapping, size_t n_mapping, int timeout_ms, bool send,
                         ob_error *error) OB_NOEXCEPT;
/* True when it has ended: then *n of its steps, `max` at most, are in `steps`. Never waits. */
bool ob_probe_poll(const ob_probe *probe, ob_probe_step *steps, size_t max, size_t *n) OB_NOEXCEPT;
/* Forgets it. One that has not ended does so soon, and is the engine's until then. */
void ob_probe_finish(ob_probe *probe) OB_NOEXCEPT;

typedef enum ob_log_level { OB_LOG_DEBUG, OB_LOG_INFO, OB_LOG_WARNING } ob_log_level;
typedef struct ob_log_line {
  ob_log_level level;
  char sink[64];
  char text[1024];
} ob_log_line;
/* Takes one queued log line; false when there is none. Lines are bounded in number: in a flood the oldest go. */
bool ob_next_log(ob_engine *engine, ob_log_line *line) OB_NOEXCEPT;

/* "librdkafka 2.0.2, libcurl 7.88.1, OpenSSL 3.0.15": for doctor and bug reports. Static string. */
const char *ob_library_versions(void) OB_NOEXCEPT;

typedef enum ob_library_fitness {
  OB_LIBRARY_FIT,
  OB_LIBRARY_DEFECTIVE, /* a sink runs, with a defect that cannot be made up for */
  OB_LIBRARY_TOO_OLD    /* no sink opens */
} ob_library_fitness;
/* Whether the librdkafka that is loaded will do; *advice says what is wrong, or, when it is fit, what to know of it.
 */
ob_library_fitness ob_check_librdkafka(ob_error *advice) OB_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
