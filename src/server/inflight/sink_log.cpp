/*
 * sink_log.cpp: three lines of a kind are written at once, then one a minute until a minute passes without one. Each
 * says for how many lines or events it stands. A sink has a kind for its failing events, one for its dead letters,
 * and one for each two words with which a line of the delivery library begins: failing events or librdkafka's lines
 * hide no "circuit opened".
 */
#include "server/inflight/sink_log.h"

#include "server/base/error_text.h"
#include "server/inflight/in_flight.h"
#include "server/sinks/worker_sinks.h"
#include "server/storage/sql.h"

extern "C" {
#include "access/xact.h"
#include "common/hashfn.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
}

static const int AT_ONCE = 3;
static const int PAUSE_MS = 60 * 1000;

enum class About : uint32 { SINK, RETRIED_EVENTS, DEAD_LETTERS };

typedef struct KindKey {
  char sink[sizeof(ob_log_line::sink)];
  About about;
  uint32 words; /* SINK: a hash of the first two */
} KindKey;

typedef struct LineKind {
  KindKey key;
  int written;       /* lines, since a minute without one */
  Moment written_at; /* the last of them */
  int counted;       /* lines or events that are not yet written */
  TimestampTz counted_since;
  int elevel; /* of the last one, and its text */
  char text[sizeof(ob_log_line::text)];
} LineKind;

static HTAB *kinds = NULL;
static Moment next_moment = MOMENT_NEVER;

static uint32 first_words_of(const char *text) {
  const char *end = strchr(text, ' ');

  end = end ? strchr(end + 1, ' ') : NULL;
  return hash_bytes((const unsigned char *)text, (int)(end ? end - text : strlen(text)));
}

/* NULL: out of memory. */
static LineKind *kind_of(About about, const char *sink, const char *text) {
  KindKey key;
  bool found;

  memset(&key, 0, sizeof(key));
  strlcpy(key.sink, sink, sizeof(key.sink));
  key.about = about;
  key.words = about == About::SINK ? first_words_of(text) : 0;
  if (kinds == NULL) {
    HASHCTL control;
    control.keysize = sizeof(KindKey);
    control.entrysize = sizeof(LineKind);
    control.hcxt = TopMemoryContext;
    kinds = hash_create("outbox log lines", 16, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
  }
  LineKind *kind = (LineKind *)hash_search(kinds, &key, HASH_ENTER_NULL, &found);
  if (kind && !found)
    memset((char *)kind + sizeof(key), 0, sizeof(*kind) - sizeof(key));
  return kind;
}

static Moment due(const LineKind *kind) {
  return kind->written < AT_ONCE ? MOMENT_NONE : moment_after(kind->written_at, PAUSE_MS);
}

static bool is_over(const LineKind *kind, Moment now) {
  return kind->counted == 0 && moment_is_past(kind->written_at, now, PAUSE_MS);
}

static void write_line(LineKind *kind, Moment now) {
  const char *sink = kind->key.sink;
  char times[64] = "";

  kind->written_at = now;
  kind->written++;
  if (kind->counted > 1)
    snprintf(times, sizeof(times), "%d times, the last: ", kind->counted);
  ereport(kind->elevel,
          (errmsg("outbox sink \"%s\": %s%s", sink, times, kind->text),
           kind->written < AT_ONCE ? 0
                                   : errdetail("Counted since %s. Further ones are counted, and told once a minute.",
                                               timestamptz_to_str(kind->counted_since)),
           kind->key.about != About::DEAD_LETTERS
               ? 0
               : errhint("When the cause is gone: SELECT outbox.redrive(id, sink) FROM outbox.events "
                         "WHERE status = 'FAILED' AND sink = %s;",
                         quote_literal_cstr(sink))));
  kind->counted = 0;
}

static void count(LineKind *kind, TimestampTz since, Moment now) {
  if (is_over(kind, now))
    kind->written = 0;
  if (kind->counted++ == 0)
    kind->counted_since = since;
  next_moment = Min(next_moment, due(kind));
}

void sink_log_line(const ob_log_line *line, Now now) {
  const int elevel = line->level == OB_LOG_WARNING ? WARNING : line->level == OB_LOG_INFO ? LOG : DEBUG1;
  LineKind *kind = elevel == DEBUG1 ? NULL : kind_of(About::SINK, line->sink, line->text);

  if (kind == NULL) {
    ereport(elevel, (errmsg("outbox sink \"%s\": %s", line->sink, line->text)));
    return;
  }
  kind->elevel = elevel;
  strlcpy(kind->text, line->text, sizeof(kind->text));
  count(kind, now.wall, now.moment);
  if (now.moment >= due(kind))
    write_line(kind, now.moment);
}

static LineKind *kind_of_event(const InFlightEvent *event) {
  return kind_of(event->outcome == Outcome::REJECTED ? About::DEAD_LETTERS : About::RETRIED_EVENTS,
                 sink_of(event)->name, event->error);
}

void sink_log_see_failing(const InFlightEvent *event, TupleTableSlot *row, TupleDesc desc) {
  static AttrNumber column = InvalidAttrNumber;
  LineKind *kind = event->error ? kind_of_event(event) : NULL;
  const int attempt = event->attempts + 1;
  char how[64] = "failed (no attempt is spent) and is tried again";
  bool is_null;

  if (kind == NULL)
    return;
  const Datum id = slot_getattr(row, column_number(desc, "id", &column), &is_null);
  if (is_null)
    return;
  if (event->outcome == Outcome::REJECTED)
    snprintf(how, sizeof(how), "is a dead letter after %d attempt%s", attempt, attempt == 1 ? "" : "s");
  else if (event->outcome != Outcome::DEFERRED)
    snprintf(how, sizeof(how), "failed (attempt %d) and is tried again", attempt);
  kind->elevel = event->outcome == Outcome::REJECTED ? WARNING : LOG;
  char *text = psprintf("event %s %s: %s", DatumGetCString(DirectFunctionCall1(uuid_out, id)), how, event->error);
  copy_error(kind->text, sizeof(kind->text), text);
  pfree(text); /* thousands may fail in one transaction */
}

void sink_log_count_failed(const InFlightEvent *event) {
  if (LineKind *kind = kind_of_event(event))
    count(kind, event->ended_at, moment_now());
}

void sink_log_flush(Moment now, bool all) {
  HASH_SEQ_STATUS all_kinds;

  Assert(!IsTransactionState());
  if (kinds == NULL || (now < next_moment && !all))
    return;
  next_moment = MOMENT_NEVER;
  hash_seq_init(&all_kinds, kinds);
  while (LineKind *kind = (LineKind *)hash_seq_search(&all_kinds)) {
    if (kind->counted > 0 && (all || now >= due(kind)))
      write_line(kind, now);
    if (kind->counted > 0)
      next_moment = Min(next_moment, due(kind));
    else if (is_over(kind, now))
      (void)hash_search(kinds, &kind->key, HASH_REMOVE, NULL);
  }
}

Moment sink_log_next_moment(void) {
  return next_moment;
}
