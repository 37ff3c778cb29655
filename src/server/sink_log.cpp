#include "sink_log.h"

#include "flights.h"
#include "sql.h"
#include "worker_sinks.h"

extern "C" {
#include "common/hashfn.h"
#include "utils/builtins.h"
}

/* Lines of one kind: so many at once, then one a minute, every two, every four, … with what the last one said. */
static const int AT_ONCE = 3;
static const int FIRST_PAUSE_MS = 60 * 1000;
static const int LAST_PAUSE_MS = 60 * 60 * 1000;

typedef struct LineKind {
  uint32 hash; /* of sink and words */
  bool used;
  int told; /* since it has begun to repeat itself */
  int left_out;
  int pause_ms;
  Moment told_at;
  ob_log_line last;
} LineKind;

enum { KINDS = 64 };

static LineKind kinds[KINDS];
static Moment next_moment = MOMENT_NEVER;
static bool failures_to_tell = false;

static int longer(int pause_ms) {
  return Min(Max(pause_ms * 2, FIRST_PAUSE_MS), LAST_PAUSE_MS);
}

static Moment due(Moment told_at, int pause_ms) {
  return moment_after(told_at, pause_ms);
}

/* ---- lines of the delivery room ----------------------------------------------------------------------------- */

/* Numbers, and what librdkafka adds in brackets (durations, how many it has left out), make no other kind. */
static uint32 kind_of(const ob_log_line *line) {
  uint32 hash = hash_bytes((const unsigned char *)line->sink, (int)strlen(line->sink));

  for (const char *c = line->text; *c != '\0' && *c != '('; c++)
    if (!(*c >= '0' && *c <= '9'))
      hash = hash_combine(hash, (uint32)*c);
  return hash;
}

static void tell(const ob_log_line *line, int left_out) {
  ereport(line->level == OB_LOG_WARNING ? WARNING
          : line->level == OB_LOG_INFO  ? LOG
                                        : DEBUG1,
          (errmsg("outbox sink \"%s\": %s", line->sink, line->text),
           left_out > 1 ? errdetail("The last of %d such lines since the previous one.", left_out) : 0));
}

static void tell_kind(LineKind *kind, Moment now) {
  tell(&kind->last, kind->left_out);
  kind->left_out = 0;
  kind->told_at = now;
  kind->pause_ms = longer(kind->pause_ms);
}

/* Its own place, or that of the kind that was told longest ago. */
static LineKind *place_of(uint32 hash, Moment now) {
  LineKind *oldest = &kinds[0];

  for (int i = 0; i < KINDS; i++) {
    if (kinds[i].used && kinds[i].hash == hash)
      return &kinds[i];
    if (!kinds[i].used || (oldest->used && kinds[i].told_at < oldest->told_at))
      oldest = &kinds[i];
  }
  if (oldest->used && oldest->left_out > 0)
    tell_kind(oldest, now);
  memset(oldest, 0, sizeof(*oldest));
  oldest->used = true;
  oldest->hash = hash;
  return oldest;
}

void sink_log_line(const ob_log_line *line, Moment now) {
  if (line->level == OB_LOG_DEBUG) {
    tell(line, 0);
    return;
  }
  LineKind *kind = place_of(kind_of(line), now);
  /* After a time of silence it is news again. */
  if (kind->left_out == 0 && kind->told_at != MOMENT_NONE &&
      now >= due(kind->told_at, Max(kind->pause_ms, FIRST_PAUSE_MS)))
    kind->told = kind->pause_ms = 0;
  if (kind->told < AT_ONCE) {
    kind->told++;
    kind->told_at = now;
    tell(line, 0);
    return;
  }
  kind->last = *line;
  kind->left_out++;
  if (kind->pause_ms == 0)
    kind->pause_ms = FIRST_PAUSE_MS;
  next_moment = Min(next_moment, due(kind->told_at, kind->pause_ms));
}

/* ---- events that fail --------------------------------------------------------------------------------------- */

static FailureTally *tally_of(const Flight *flight) {
  return flight->outcome == OB_REJECTED ? &flight->sink->dead : &flight->sink->failing;
}

void sink_log_see_failing(const Flight *flight, TupleTableSlot *row, TupleDesc desc) {
  static AttrNumber column = InvalidAttrNumber;
  FailureTally *tally = tally_of(flight);
  bool is_null;

  if (tally->n > 0 || flight->error == NULL)
    return;
  if (column == InvalidAttrNumber)
    column = SPI_fnumber(desc, "id");
  Datum id = slot_getattr(row, column, &is_null);
  if (is_null)
    return;
  strlcpy(tally->id, DatumGetCString(DirectFunctionCall1(uuid_out, id)), sizeof(tally->id));
  tally->attempts = flight->attempts + 1;
  strlcpy(tally->error, flight->error, sizeof(tally->error));
}

void sink_log_count_failed(const Flight *flight) {
  FailureTally *tally = tally_of(flight);

  tally->n++;
  failures_to_tell = true;
}

static void tell_dead(const WorkerSink *sink, const FailureTally *tally) {
  ereport(WARNING,
          (tally->n == 1 ? errmsg("outbox sink \"%s\": event %s is a dead letter after %d attempts: %s", sink->name,
                                  tally->id, tally->attempts, tally->error)
                         : errmsg("outbox sink \"%s\": %d events are dead letters, such as %s after %d attempts: %s",
                                  sink->name, tally->n, tally->id, tally->attempts, tally->error),
           errhint("When the cause is gone: SELECT outbox.redrive(id, sink) FROM outbox.events "
                   "WHERE status = 'FAILED' AND sink = %s;",
                   quote_literal_cstr(sink->name))));
}

static void tell_failing(const WorkerSink *sink, const FailureTally *tally) {
  ereport(LOG, (tally->n == 1 ? errmsg("outbox sink \"%s\": event %s failed (attempt %d) and is tried again: %s",
                                       sink->name, tally->id, tally->attempts, tally->error)
                              : errmsg("outbox sink \"%s\": %d deliveries failed and are tried again, such as event "
                                       "%s (attempt %d): %s",
                                       sink->name, tally->n, tally->id, tally->attempts, tally->error)));
}

/* The first one at once, and then ever more seldom as long as they come. */
static void flush_tally(const WorkerSink *sink, FailureTally *tally, Moment now, bool all,
                        void (*tell_it)(const WorkerSink *, const FailureTally *)) {
  if (tally->n == 0)
    return;
  if (tally->told_at != MOMENT_NONE && !all && now < due(tally->told_at, tally->pause_ms)) {
    next_moment = Min(next_moment, due(tally->told_at, tally->pause_ms));
    failures_to_tell = true;
    return;
  }
  bool goes_on = tally->told_at != MOMENT_NONE && now < due(tally->told_at, 2 * tally->pause_ms);
  tally->pause_ms = goes_on ? longer(tally->pause_ms) : FIRST_PAUSE_MS;
  tell_it(sink, tally);
  tally->n = 0;
  tally->told_at = now;
}

void sink_log_flush(Moment now, bool all) {
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);

  if (!failures_to_tell && now < next_moment && !all)
    return;
  failures_to_tell = false;
  next_moment = MOMENT_NEVER;
  for (int i = 0; i < KINDS; i++) {
    if (kinds[i].left_out == 0)
      continue;
    if (all || now >= due(kinds[i].told_at, kinds[i].pause_ms))
      tell_kind(&kinds[i], now);
    else
      next_moment = Min(next_moment, due(kinds[i].told_at, kinds[i].pause_ms));
  }
  for (int i = 0; i < n; i++) {
    flush_tally(sinks[i], &sinks[i]->dead, now, all, tell_dead);
    flush_tally(sinks[i], &sinks[i]->failing, now, all, tell_failing);
  }
}

Moment sink_log_next_moment(void) {
  return next_moment;
}
