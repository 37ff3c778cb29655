/*
 * sink_log.cpp: three lines of a kind are written at once, then one a minute until a minute passes without one. Each
 * says for how many lines or events it stands. A sink has a kind for its failing events, one for its dead letters,
 * and one for each thing that the delivery library says: lines that differ only in names and numbers are of one kind,
 * so failing events or the errors of librdkafka hide no "circuit opened".
 */
#include "server/inflight/sink_log.h"

#include "server/base/error_text.h"
#include "server/inflight/events_in_flight.h"
#include "server/sinks/worker_sinks.h"
#include "server/storage/sql.h"

extern "C" {
#include "access/xact.h"
#include "common/hashfn.h"
#include "utils/builtins.h"
}

static const int AT_ONCE = 3;
static const int PAUSE_MS = 60 * 1000;

enum class About : uint32 { SINK, RETRIED_EVENTS, DEAD_LETTERS };

typedef struct LineKind {
  uint32 hash; /* of sink, About, and text as words_of() reads it */
  About about;
  Moment used_at;    /* MOMENT_NONE: never */
  int written;       /* lines, since a minute without one */
  Moment written_at; /* the last of them */
  int counted;       /* lines or events that are not yet written */
  TimestampTz counted_since, counted_until;
  int elevel; /* of the text that stands for them: the last line, or the first event */
  char sink[sizeof(ob_log_line::sink)];
  char text[sizeof(ob_log_line::text)];
} LineKind;

/* A fixed number: what is written about an outage needs no memory. Further kinds replace the one that was used
 * longest ago. */
static LineKind kinds[256];
static Moment next_moment = MOMENT_NEVER;

/* Leaves out what stands between double quotes, digits, and all from the first ':', ';' or '(' on. */
static uint32 words_of(const char *text, uint32 hash) {
  bool quoted = false;

  for (const char *c = text; *c != '\0' && (quoted || strchr(":;(", *c) == NULL); c++) {
    if (*c == '"')
      quoted = !quoted;
    else if (!quoted && !(*c >= '0' && *c <= '9'))
      hash = hash_combine(hash, (uint32)*c);
  }
  return hash;
}

static Moment due(const LineKind *kind) {
  return kind->written < AT_ONCE ? MOMENT_NONE : moment_after(kind->written_at, PAUSE_MS);
}

static bool is_over(const LineKind *kind, Moment now) {
  return kind->counted == 0 && moment_is_past(kind->written_at, now, PAUSE_MS);
}

static void write_line(LineKind *kind, Moment now) {
  const bool last = kind->about == About::SINK;
  char times[64] = "", since[128];

  kind->written_at = now;
  kind->written++;
  if (kind->counted > 1)
    snprintf(times, sizeof(times), "%d times, %s ", kind->counted, last ? "the last:" : "such as:");
  strlcpy(since, timestamptz_to_str(kind->counted_since), sizeof(since)); /* it returns a static buffer */
  ereport(kind->elevel, (errmsg("outbox sink \"%s\": %s%s", kind->sink, times, kind->text),
                         kind->written < AT_ONCE
                             ? 0
                             : errdetail("Counted from %s to %s. Further ones are counted, and told once a minute.",
                                         since, timestamptz_to_str(kind->counted_until)),
                         kind->about != About::DEAD_LETTERS
                             ? 0
                             : errhint("When the cause is gone: SELECT outbox.redrive(id, sink) FROM outbox.events "
                                       "WHERE status = 'FAILED' AND sink = %s;",
                                       quote_literal_cstr(kind->sink))));
  kind->counted = 0;
}

static LineKind *kind_of(About about, const char *sink, const char *text, Moment now) {
  uint32 hash = hash_combine(hash_bytes((const unsigned char *)sink, (int)strlen(sink)), (uint32)about);
  LineKind *oldest = &kinds[0];

  if (about == About::SINK)
    hash = words_of(text, hash);
  for (LineKind &kind : kinds) {
    if (kind.hash == hash && strcmp(kind.sink, sink) == 0) {
      kind.used_at = now;
      return &kind;
    }
    if (kind.used_at < oldest->used_at)
      oldest = &kind;
    if (kind.used_at == MOMENT_NONE)
      break; /* and so are all that follow */
  }
  if (oldest->counted > 0)
    write_line(oldest, now);
  memset(oldest, 0, sizeof(*oldest));
  oldest->hash = hash;
  oldest->about = about;
  oldest->used_at = now;
  strlcpy(oldest->sink, sink, sizeof(oldest->sink));
  return oldest;
}

static void count(LineKind *kind, TimestampTz at, Moment now) {
  if (is_over(kind, now))
    kind->written = 0;
  if (kind->counted++ == 0)
    kind->counted_since = at;
  kind->counted_until = at;
  next_moment = Min(next_moment, due(kind));
}

void sink_log_line(const ob_log_line *line, Now now) {
  if (line->level == OB_LOG_DEBUG) {
    ereport(DEBUG1, (errmsg("outbox sink \"%s\": %s", line->sink, line->text)));
    return;
  }
  LineKind *kind = kind_of(About::SINK, line->sink, line->text, now.moment);
  kind->elevel = line->level == OB_LOG_WARNING ? WARNING : LOG;
  strlcpy(kind->text, line->text, sizeof(kind->text));
  count(kind, now.wall, now.moment);
  if (now.moment >= due(kind))
    write_line(kind, now.moment);
}

static LineKind *kind_of_event(const InFlightEvent *event, Moment now) {
  return kind_of(event->outcome == Outcome::REJECTED ? About::DEAD_LETTERS : About::RETRIED_EVENTS,
                 sink_of(event)->name, event->error, now);
}

void sink_log_see_failing(const InFlightEvent *event, TupleTableSlot *row, TupleDesc desc) {
  static AttrNumber column = InvalidAttrNumber;
  LineKind *kind = event->error ? kind_of_event(event, moment_now()) : NULL;
  const int attempt = event->attempts + 1;
  char how[64] = "failed (no attempt is spent) and is tried again";
  bool is_null;

  /* The transaction may still roll back: an event that was counted before keeps its place. */
  if (kind == NULL || kind->counted > 0)
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
  const Moment now = moment_now();

  count(kind_of_event(event, now), event->ended_at, now);
}

void sink_log_flush(Moment now, bool all) {
  Assert(!IsTransactionState());
  if (now < next_moment && !all)
    return;
  next_moment = MOMENT_NEVER;
  for (LineKind &kind : kinds) {
    if (kind.counted > 0 && (all || now >= due(&kind)))
      write_line(&kind, now);
    if (kind.counted > 0)
      next_moment = Min(next_moment, due(&kind));
  }
}

Moment sink_log_next_moment(void) {
  return next_moment;
}
