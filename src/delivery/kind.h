/*
 * kind.h: the interface between outbox and a kind of sink in a library of its own. The library exports one function,
 * which has the name OB_KIND_INIT and returns a struct of functions, ob_sink_kind. Outbox calls nothing else of the
 * library, and only C types are passed. So both sides may be built by different compilers and from different versions
 * of the C++ classes behind the functions. The kind "manual", which is in outbox itself, has a struct as well.
 *
 * Beside the library outbox_KIND there may be a second one, outbox_KIND_messages (`messages_only`). Sessions that
 * only check or preview events load it instead: it links no client library, whose loading would take each session
 * milliseconds.
 *
 * Outbox gives the library no callbacks. It fetches completions and log lines (the engine's descriptor, collect() and
 * next_log()) and sets what the library must know (configure()), on its own thread. So no thread of a kind runs code
 * of outbox, and neither side calls the other while it is being called. Each library has masks, a network guard and
 * an HTTP loop of its own, from the kit's archive.
 *
 * Rules: every function is noexcept and safe to call from a thread that may later longjmp (none keeps a lock or a C++
 * object alive in the caller's frame); none blocks on the network, except engine_close(), which is bounded. All
 * functions of one engine are called from one thread, the caller's. Text is UTF-8, not NUL-terminated unless it is
 * `const char *`.
 */
#ifndef OUTBOX_KIND_H
#define OUTBOX_KIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define OB_NOEXCEPT noexcept
extern "C" {
#else
#define OB_NOEXCEPT
#endif

/* OB_KIND_INTERFACE is raised with each change of this file after which kinds must be compiled anew. */
enum { OB_KIND_MAGIC = 0x6f627831, OB_KIND_INTERFACE = 16 };

/* ---- plain data ------------------------------------------------------------------------------------------- */

/* Text or bytes, owned by the caller and valid for the duration of the call. data == NULL means SQL NULL. */
typedef struct ob_text {
  const char *data;
  size_t len;
} ob_text;

typedef struct ob_header {
  ob_text name;
  ob_text value;
  bool binary; /* the value is bytes, not text */
} ob_header;

/* An option of CREATE SERVER or CREATE USER MAPPING. */
typedef struct ob_option {
  const char *name;
  const char *value;
} ob_option;

/* An error in PostgreSQL's message style: a primary message in lower case without a full stop, the facts, the next
 * step. A field without content is an empty string. Never contains a secret. */
typedef enum ob_error_kind {
  OB_OK = 0,
  OB_UNKNOWN_OPTION, /* `subject` is the name; the server side adds a HINT with the closest known name */
  OB_BAD_VALUE,      /* an option or an event's field has an invalid value */
  OB_MISSING_OPTION, /* a required option is absent */
  OB_WRONG_PLACE,    /* a secret given to the server, or a server option given to the user mapping */
  OB_FORBIDDEN,      /* superuser only */
  OB_TOO_LARGE,      /* the event is larger than the sink can ever send */
  OB_OUT_OF_MEMORY,
  OB_INTERNAL /* a library refused to start */
} ob_error_kind;

typedef struct ob_error {
  ob_error_kind kind;
  char subject[64]; /* the option's name, where there is one */
  char message[512];
  char detail[512];
  char hint[512];
} ob_error;

typedef struct ob_event {
  uint64_t ticket;   /* chosen by the caller; returned in the completion */
  uint64_t key_hash; /* equal for events of one key; 0 = unordered, the event has no key to keep in order */
  int64_t position;
  int64_t created_at_us; /* Unix time */
  int64_t seq;           /* set by the application; valid if has_seq */
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
  int attempt;  /* 1 for the first try; failures that spend no attempt do not count */
  bool alone;   /* no other event of its key is in flight, and none is submitted until this one has ended */
  bool failed;  /* its last delivery failed, whether or not that spent an attempt */
  bool is_test; /* a probe sends it: the message has the header "outbox-probe: true" */
  const ob_header *headers;
  size_t n_headers;
  /* NULL, or why the caller could not make the event, which then has neither payload nor headers: it ends as
   * OB_REJECTED with this message and detail, in its turn. */
  const ob_error *refused;
} ob_event;

/* ---- options ---------------------------------------------------------------------------------------------- */

/* The options of one sink. */
typedef struct ob_sink_options {
  const ob_option *server;
  size_t n_server;
  const ob_option *mapping; /* of PUBLIC's user mapping: the secrets */
  size_t n_mapping;
  bool mapping_known; /* false: the caller may not read the mapping, and what depends on it is left out */
  /* The owner of the server is one, so the sink may connect to any network. Only sink_open() and probe_start() read
   * it. */
  bool owner_is_superuser;
} ob_sink_options;

typedef enum ob_scope {
  OB_SERVER,
  OB_USER_MAPPING,
  OB_BOTH,  /* those of the server and of the mapping together, if the server's owner is no superuser */
  OB_TARGET /* those of the server that hold the address of the sink, such as "url" */
} ob_scope;

/* The largest value of the option max_payload, and its default, in bytes. While an event is sent, the worker needs
 * about four times the size of its payload. */
#define OB_LARGEST_PAYLOAD ((size_t)256 * 1024 * 1024)
#define OB_DEFAULT_MAX_PAYLOAD ((size_t)16 * 1024 * 1024)

/* The options that all kinds have in common, parsed. Options that are not set have the kind's defaults. */
typedef struct ob_common {
  bool ordered;
  bool block_on_dead_letter; /* a dead letter blocks its key until a user acts */
  int max_attempts;          /* 0 = not set, the caller's default applies */
  int64_t retention_ms;      /* -1 = not set; 0 = delete events when they are delivered */
  const char *retry;         /* text of the policy; NULL = not set; points into `options` */
  int default_max_attempts;  /* default of the kind and format, if neither option nor setting is set */
  const char *default_retry; /* static string */
  int64_t disable_after_ms;  /* the sink is disabled after failing for this long without a success; 0 = never */
  size_t max_payload;        /* bytes of the largest payload that the sink takes, as it is given in ob_event */
  int64_t longest_answer_ms; /* a peer that has not answered an event within this time counts as hanging */
} ob_common;

/* Options that are valid and yet a typical mistake, for outbox.doctor(). */
typedef struct ob_advice {
  char check[24];    /* one word: the row is named "advice NAME CHECK" */
  bool may_be_meant; /* the row's status is ok, and no warning */
  char detail[512];
  char hint[1024]; /* a statement, or a comment that begins with "-- " */
} ob_advice;

/* ---- messages --------------------------------------------------------------------------------------------- */

/* One part of what a sink would send: the topic, the key or a header of a record; the URL, a header or the body of a
 * request. `bytes` are sent as they are. If bytes.data is NULL, `text` is a number of the protocol, or an explanation
 * in parentheses: "(the time of each attempt)", "(in the user mapping)". If both are NULL, the part is null (no key,
 * a tombstone). */
typedef struct ob_part {
  const char *part; /* static string */
  ob_text name;     /* name of a header; data is NULL for other parts */
  ob_text bytes;
  ob_text text;
} ob_part;

/* ---- delivery --------------------------------------------------------------------------------------------- */

/* Bytes of the longest error of an event: of ob_completion.error, and of the table's column last_error. */
#define OB_ERROR_MAX 8192

/* Why a delivery or a connection failed. Few values, so that they can be labels of a metric. */
typedef enum ob_reason {
  OB_REASON_NONE, /* no failure, or a failure that another event caused */
  OB_REASON_TIMEOUT,
  OB_REASON_CONNECTION, /* refused, or lost */
  OB_REASON_DNS,
  OB_REASON_TLS,
  OB_REASON_AUTH,         /* credentials or permissions: SASL, HTTP 401, 403, 407 */
  OB_REASON_HTTP_3XX,     /* redirects are not followed */
  OB_REASON_HTTP_4XX,     /* except those of AUTH, TIMEOUT, RATE_LIMITED and TOO_LARGE */
  OB_REASON_HTTP_5XX,     /* and responses with an unknown class of status */
  OB_REASON_RATE_LIMITED, /* HTTP 429 */
  OB_REASON_TOO_LARGE,    /* refused by the broker or the endpoint for its size */
  OB_REASON_TOPIC,        /* the topic is missing, or writing to it is not allowed */
  OB_REASON_BROKER,       /* a broker responds, but cannot store */
  OB_REASON_BLOCKED,      /* the network guard refused the address */
  OB_REASON_INVALID,      /* this event cannot be sent with the sink's options */
  /* The peer dropped the event as a duplicate, although the sink had not sent it before. */
  OB_REASON_DUPLICATE,
  OB_REASON_OTHER,
  OB_REASONS
} ob_reason;

typedef enum ob_sink_state {
  OB_SINK_OK,           /* delivering or idle */
  OB_SINK_DEGRADED,     /* delivering, but not to all of its topics, or slowly; last_error has the reason */
  OB_SINK_CIRCUIT_OPEN, /* the whole sink is down; it takes only probes until one succeeds */
  OB_SINK_DISABLED      /* the sink stopped trying (HTTP 410); closing and opening it resets this */
} ob_sink_state;

typedef struct ob_sink_status {
  ob_sink_state state;
  uint32_t credit;       /* how many events the sink takes now; 0 while the circuit is open, 1 or more for probes */
  int64_t outage_ms;     /* time since the first failure of the outage; -1 while the circuit is closed */
  int64_t retry_in_ms;   /* with credit 0: the time until credit may rise; -1 = when a completion arrives */
  int64_t paused_ms;     /* the rest of a pause for which the peer has asked; 0 = there is none */
  uint64_t failed_tries; /* failed attempts and connections since the sink was opened */
  /* All failures by reason since the sink was opened, and their sum. n_failures changes whenever a count does. */
  uint64_t n_failures;
  uint64_t failures[OB_REASONS];
  /* Events of which a copy was sent and had no answer, when its connection broke, for example: each is sent again,
   * and may arrive twice. */
  uint64_t unanswered;
  char last_error[512]; /* last error of the whole sink; empty when it works */
} ob_sink_status;

/* The caller tells an open sink about a change. Members that are zero change nothing. */
typedef struct ob_sink_order {
  /* `of` processes send to the same peer, and this one is number `index`: each uses its part of the sink's limits.
   * `rate_clock` points to 8 bytes of shared memory, initially 0, by which all processes keep the sink's rate limit
   * together; it must outlive the sink. With NULL, each process uses its part of the rate limit, too. */
  int index, of;
  int64_t *rate_clock;
  /* Whether ob_completion.acknowledgement is wanted. At first it is not: it takes time. */
  bool keep_acknowledgements, drop_acknowledgements;
  /* Start with one request at a time and then double: after a stop, a large backlog must not overload the peer. */
  bool begin_slowly;
  /* End a pause for which the peer has asked (ob_sink_status.paused_ms). */
  bool end_pause;
} ob_sink_order;

typedef enum ob_outcome {
  OB_SENT,  /* acknowledged */
  OB_RETRY, /* this event failed: spend an attempt, wait, try again */
  /* Its target (a topic, subject or exchange) cannot be used now, or it failed again while the whole sink is down:
   * block its key as for OB_RETRY, try again after retry_after_ms, and spend no attempt. */
  OB_DEFERRED,
  OB_REJECTED, /* this event can never be sent: a dead letter */
  OB_RETURNED  /* not sent, or the whole sink is down: claim it again, and spend no attempt */
} ob_outcome;

/* Order. No later event of a key overtakes one that ended as OB_RETRY, OB_DEFERRED or OB_RETURNED: the later events
 * end as OB_RETURNED (or as OB_DEFERRED after an OB_DEFERRED one), and events of the key that the caller submits
 * before it has collected all of these completions are not sent. With on_dead_letter 'block' the same holds after
 * OB_REJECTED. */

typedef struct ob_completion {
  uint64_t ticket;
  ob_outcome outcome;
  int64_t retry_after_ms; /* the delay that the peer asked for; -1 = none */
  bool suspect;           /* OB_RETRY, but the sink may be to blame: if the circuit opens soon, spend no attempt */
  bool slow_retry;        /* OB_RETRY: wait at least a minute (`slow` of ob_retry_delay_ms()) */
  /* OB_RETRY: the peer refuses this event. After this number of refusals it is a dead letter, even if the sink allows
   * more attempts; other failures are not counted. 0 = no such limit. */
  int max_refusals;
  const char *acknowledgement; /* OB_SENT: what the peer has answered; NULL = not kept; otherwise as `error` */
  /* NULL for OB_SENT; NUL-terminated, at most OB_ERROR_MAX bytes, and marked if it was cut; valid until the engine's
   * next collect(). */
  const char *error;
} ob_completion;

/* The result of one step of a probe. An empty hint means that there is nothing to do. Never contains a secret. */
typedef struct ob_probe_step {
  char name[24];
  bool ok;
  double milliseconds;
  char message[512];
  char hint[384];
} ob_probe_step;

typedef enum ob_log_level {
  OB_LOG_DEBUG,
  OB_LOG_INFO,
  OB_LOG_WARNING,
  OB_LOG_FATAL /* out of memory: the process must end, and records nothing that it has not recorded yet */
} ob_log_level;
typedef struct ob_log_line {
  ob_log_level level;
  char sink[64];
  char text[1024];
} ob_log_line;

typedef enum ob_fitness {
  OB_FIT,
  OB_DEFECTIVE, /* sinks run, but the version has a defect that outbox cannot work around */
  OB_TOO_OLD    /* no sink opens */
} ob_fitness;
/* The client library that the kind has loaded. */
typedef struct ob_client_library {
  char versions[128]; /* "libcurl 7.88.1, OpenSSL 3.0.15"; empty: the kind does not tell */
  ob_fitness fitness;
  ob_error advice; /* describes the problem, or for a fit version a recommendation; its message may be empty */
} ob_client_library;

/* ---- handles ---------------------------------------------------------------------------------------------- */

/* The library allocates these, and they are passed only to its own functions. `release` frees a checker, a preview or
 * a probe; call it once. */
typedef struct ob_sink_kind ob_sink_kind;

/* Tests events against one sink's options: is the topic legal, are the headers legal, is the event small enough? It
 * has no thread and no connection. */
typedef struct ob_checker {
  const ob_sink_kind *kind;
  void (*release)(struct ob_checker *checker) OB_NOEXCEPT;
  /* The largest payload that can be sent, in bytes (SIZE_MAX = no limit), so that the caller need not render larger
   * ones. 0: the checks read the text of each payload. */
  size_t max_payload;
} ob_checker;

/* The message that the sink would send for an event. */
typedef struct ob_preview {
  void (*release)(struct ob_preview *preview) OB_NOEXCEPT;
  const ob_part *parts; /* in the order in which they are sent */
  size_t n;
} ob_preview;

/* The threads and connections of one library in a worker process. */
typedef struct ob_engine {
  int fd; /* readable whenever collect(), next_log() or probe_poll() may have something; only collect() reads it */
} ob_engine;

typedef struct ob_sink {
  const ob_sink_kind *kind;
} ob_sink;

typedef struct ob_probe {
  const ob_sink_kind *kind;
  /* A probe that still runs is cancelled; the engine owns it until it has ended. */
  void (*release)(struct ob_probe *probe) OB_NOEXCEPT;
} ob_probe;

/* ---- the functions ---------------------------------------------------------------------------------------- */

/* A function that fails fills *error, which may be NULL. Functions without `error` report a lack of memory otherwise:
 * option_names() and advise() return SIZE_MAX, and after those of an engine next_log() gives OB_LOG_FATAL. `kind` may
 * also be the name of a kind that is not available. */
struct ob_sink_kind {
  uint32_t magic; /* OB_KIND_MAGIC */
  uint32_t size;  /* sizeof(ob_sink_kind) */
  uint32_t interface;
  int pg_version;      /* PG_VERSION_NUM of the server's headers */
  const char *name;    /* "rabbitmq"; NULL for the kind in outbox itself */
  const char *version; /* of the kind's extension, for messages */
  /* No engine can be opened; check_options() and advise() are incomplete, and so is option_names() but for
   * OB_TARGET. */
  bool messages_only;

  /* The values of ${database} and ${timeline}: the database of this process, and the timeline of its server's WAL (0
   * = unknown). And the setting outbox.allow_networks: the networks that every sink may reach, in addition to those
   * of its own option; an invalid or empty list allows nothing. Called before options are parsed, and again when one
   * changes; the texts are copied. */
  void (*configure)(const char *database, uint32_t timeline, const char *networks) OB_NOEXCEPT;

  /* For outbox.doctor() and bug reports. */
  void (*client_library)(ob_client_library *out) OB_NOEXCEPT;

  /* ---- options: pure functions; any thread, any process, no state ---- */

  /* Are these options valid? OB_SERVER: all that the server will have after the DDL. OB_USER_MAPPING: those of the
   * mapping. `superuser`: the role that gives them is one. OB_BOTH: an owner who is no superuser can change the user
   * mapping at any time, so if the server has a superuser-only option, the mapping must not contain `url`, to which
   * that option would apply. */
  bool (*check_options)(const char *kind, ob_scope scope, const ob_sink_options *given, bool superuser,
                        ob_error *error) OB_NOEXCEPT;
  bool (*common_options)(const char *kind, const ob_option *options, size_t n, ob_common *out,
                         ob_error *error) OB_NOEXCEPT;
  /* The names of options, for a HINT. Writes at most `max` pointers to static strings and returns their number. */
  size_t (*option_names)(const char *kind, ob_scope scope, const char **names, size_t max) OB_NOEXCEPT;
  /* Writes at most `max` pieces of advice and returns their number: 0 if the options are not valid. `sink` is the
   * sink's name, quoted for SQL. No text contains a value of the mapping. */
  size_t (*advise)(const char *kind, const char *sink, const ob_sink_options *given, ob_advice *advice,
                   size_t max) OB_NOEXCEPT;

  /* NULL with *error filled when the options are invalid. Where the mapping is known, previews of this checker are
   * signed, and contain no secret. */
  ob_checker *(*checker_open)(const char *kind, const ob_sink_options *given, ob_error *error)OB_NOEXCEPT;
  /* With `is_new`, for an event that is being enqueued: false also for one that could be sent but is probably a
   * mistake, such as a NULL payload for a sink whose options do not allow tombstones. */
  bool (*checker_check)(const ob_checker *checker, const ob_event *event, bool is_new, ob_error *error) OB_NOEXCEPT;
  /* Makes the message that the sink would send for the event at `now` (Unix time in seconds), without secrets. NULL
   * with *error filled if checker_check() refuses the event. */
  ob_preview *(*preview_open)(const ob_checker *checker, const ob_event *event, int64_t now,
                              ob_error *error)OB_NOEXCEPT;

  /* ---- the engine: its functions are called by one thread ---- */

  /* Its threads block all signals. */
  ob_engine *(*engine_open)(ob_error *error)OB_NOEXCEPT;
  /* Stops all threads and connections within about `timeout_ms`. Outstanding tickets get no completion. Returns true
   * if all threads have ended: the process may run exit handlers. Returns false if a thread hangs (in a resolver or a
   * broker connection): the process must leave with _exit(). The engine is freed in both cases. */
  bool (*engine_close)(ob_engine *engine, int timeout_ms) OB_NOEXCEPT;
  /* Writes at most `max` completions to `out` and returns their number; never waits. */
  size_t (*collect)(ob_engine *engine, ob_completion *out, size_t max) OB_NOEXCEPT;
  /* Takes one queued log line; false when there is none. The queue holds at most 256 lines; when it is full, the
   * oldest line is dropped. Once an allocation has failed, each call gives OB_LOG_FATAL, and collect() gives no more
   * completions. */
  bool (*next_log)(ob_engine *engine, ob_log_line *line) OB_NOEXCEPT;

  /* Opens a sink. It connects in the background; the call never waits. `name` appears in logs and errors. */
  ob_sink *(*sink_open)(ob_engine *engine, const char *name, const char *kind, const ob_sink_options *given,
                        ob_error *error)OB_NOEXCEPT;
  void (*sink_tell)(ob_sink *sink, const ob_sink_order *order) OB_NOEXCEPT;
  void (*sink_get_status)(ob_sink *sink, ob_sink_status *status) OB_NOEXCEPT;
  /* Takes one error prefix from the list of causes that are over: events that ended as OB_DEFERRED with an error that
   * starts with this text need not wait any longer. Returns false when the list is empty. */
  bool (*sink_next_resumed)(ob_sink *sink, char *error, size_t size) OB_NOEXCEPT;
  /* Submits events in order; everything is copied. Returns how many were accepted, a prefix of `events`. The rest is
   * back-pressure, not an attempt. Every accepted event gets exactly one completion. */
  size_t (*submit)(ob_sink *sink, const ob_event *events, size_t n) OB_NOEXCEPT;
  /* Closes the sink. Queued events end as OB_RETURNED at once. Events on the wire get `grace_ms` to finish, then end
   * as OB_RETURNED too (they may have arrived: possible duplicates). Returns immediately; every ticket gets its
   * completion. */
  void (*sink_close)(ob_sink *sink, int grace_ms) OB_NOEXCEPT;
  /* Returns true when all tickets of a closing sink are collected, and then frees the sink. */
  bool (*sink_closed)(ob_sink *sink) OB_NOEXCEPT;

  /* Tries these options on a thread of its own, whether or not a sink with them is open: connects, authenticates,
   * reads metadata and permissions. With `send` it then sends a test event that is marked as one. `topics` are names,
   * separated by commas, that a Kafka cluster must have beside those of the options; empty = none. The probe ends
   * within `timeout_ms`; with each step, and then, it makes the engine's descriptor readable. Invalid options are
   * reported as a failed step; NULL with *error filled means that no probe could be started. */
  ob_probe *(*probe_start)(ob_engine *engine, const char *name, const char *kind, const ob_sink_options *given,
                           int timeout_ms, bool send, const char *topics, ob_error *error)OB_NOEXCEPT;
  /* Returns true when the probe has ended. `steps` has *n of its steps so far, at most `max`. Never waits. */
  bool (*probe_poll)(const ob_probe *probe, ob_probe_step *steps, size_t max, size_t *n) OB_NOEXCEPT;
};

/* Outbox looks up this function in a library. The function may return NULL: out of memory. */
#define OB_KIND_INIT "_PG_outbox_sink_kind_init"
typedef const ob_sink_kind *(*ob_kind_init)(void);

#ifdef __cplusplus
}
#endif
#endif
