#include "server/inflight/sink_log.h"

#include "server/inflight/in_flight.h"
#include "server/sinks/worker_sinks.h"
#include "server/storage/sql.h"

extern "C" {
#include "access/xact.h"
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
static uint32 kind_of_text(uint32 hash, const char *text) {
  for (const char *c = text; *c != '\0' && *c != '('; c++)
    if (!(*c >= '0' && *c <= '9'))
      hash = hash_combine(hash, (uint32)*c);
  return hash;
}

static uint32 kind_of(const ob_log_line *line) {
  return kind_of_text(hash_bytes((const unsigned char *)line->sink, (int)strlen(line->sink)), line->text);
}

/* `counting_ms`: further lines of its kind are counted for so long; 0 = they are told. */
static void tell(const ob_log_line *line, int left_out, int counting_ms) {
  int minutes = counting_ms / FIRST_PAUSE_MS;

  ereport(line->level == OB_LOG_WARNING ? WARNING
          : line->level == OB_LOG_INFO  ? LOG
                                        : DEBUG1,
          (errmsg("outbox sink \"%s\": %s", line->sink, line->text),
           left_out > 1 ? errdetail("The last of %d such lines since the previous one. Further ones are counted, and "
                                    "the last is told after %d min.",
                                    left_out, minutes)
           : minutes > 0 ? errdetail("Further such lines are counted, and the last is told after %d min.", minutes)
                         : 0));
}

static void tell_kind(LineKind *kind, Moment now) {
  kind->pause_ms = longer(kind->pause_ms);
  tell(&kind->last, kind->left_out, kind->pause_ms);
  kind->left_out = 0;
  kind->told_at = now;
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
    tell(line, 0, 0);
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
    tell(line, 0, kind->told == AT_ONCE ? FIRST_PAUSE_MS : 0);
    return;
  }
  kind->last = *line;
  kind->left_out++;
  if (kind->pause_ms == 0)
    kind->pause_ms = FIRST_PAUSE_MS;
  next_moment = Min(next_moment, due(kind->told_at, kind->pause_ms));
}

/* ---- events that fail --------------------------------------------------------------------------------------- */

/* An HTTP status is a kind of its own; other numbers (of a customer, an order) are not. */
static uint32 kind_of_error(const char *error) {
  int status = 0;

  if (sscanf(error, "HTTP %d", &status) == 1)
    return hash_combine(kind_of_text(0, error), (uint32)status);
  return kind_of_text(0, error);
}

static bool is_free(const FailureTally *tally, Moment now) {
  return !tally->used || (tally->n == 0 && now >= due(tally->seen_at, 2 * Max(tally->pause_ms, FIRST_PAUSE_MS)));
}

/* The tally of this kind of error; else one that is free, or whose kind has not been seen for long; else the last
 * one. */
static FailureTally *tally_of(const InFlightEvent *event) {
  FailureTally *tallies = event->outcome == Outcome::REJECTED ? sink_of(event)->dead : sink_of(event)->failing;
  FailureTally *free_one = NULL;
  uint32 hash = kind_of_error(event->error);
  Moment now = moment_now();
  int i = 0;

  while (i < FAILURE_KINDS && !(tallies[i].used && tallies[i].hash == hash)) {
    if (free_one == NULL && is_free(&tallies[i], now))
      free_one = &tallies[i];
    i++;
  }
  FailureTally *tally = i < FAILURE_KINDS ? &tallies[i] : free_one ? free_one : &tallies[FAILURE_KINDS - 1];
  if (tally == free_one) {
    memset(tally, 0, sizeof(*tally));
    tally->used = true;
    tally->hash = hash;
  }
  tally->seen_at = now;
  return tally;
}

void sink_log_see_failing(const InFlightEvent *event, TupleTableSlot *row, TupleDesc desc) {
  static AttrNumber column = InvalidAttrNumber;
  bool is_null;

  if (event->error == NULL)
    return;
  FailureTally *tally = tally_of(event);
  if (tally->n > 0)
    return;
  Datum id = slot_getattr(row, column_number(desc, "id", &column), &is_null);
  if (is_null)
    return;
  strlcpy(tally->id, DatumGetCString(DirectFunctionCall1(uuid_out, id)), sizeof(tally->id));
  tally->attempts = event->attempts + 1;
  strlcpy(tally->error, event->error, sizeof(tally->error));
}

void sink_log_count_failed(const InFlightEvent *event) {
  FailureTally *tally = tally_of(event);

  if (tally->n++ == 0) {
    tally->since = event->ended_at;
    tally->began_at = tally->seen_at;
  }
  failures_to_tell = true;
}

/* What was told at once says that more of its kind will be counted; what was counted, since when. */
static int detail_of(const FailureTally *tally, bool counted) {
  int minutes = tally->pause_ms / FIRST_PAUSE_MS;

  if (counted)
    return errdetail("Counted since %s. Further ones with such an error are counted, and told after %d min.",
                     timestamptz_to_str(tally->since), minutes);
  return errdetail("Further ones with such an error are counted, and told after %d min.", minutes);
}

static void tell_dead(const WorkerSink *sink, const FailureTally *tally, bool counted) {
  const char *attempts = tally->attempts == 1 ? "attempt" : "attempts";

  ereport(WARNING,
          (tally->n == 1 ? errmsg("outbox sink \"%s\": event %s is a dead letter after %d %s: %s", sink->name,
                                  tally->id, tally->attempts, attempts, tally->error)
                         : errmsg("outbox sink \"%s\": %d events are dead letters, such as %s after %d %s: %s",
                                  sink->name, tally->n, tally->id, tally->attempts, attempts, tally->error),
           detail_of(tally, counted),
           errhint("When the cause is gone: SELECT outbox.redrive(id, sink) FROM outbox.events "
                   "WHERE status = 'FAILED' AND sink = %s;",
                   quote_literal_cstr(sink->name))));
}

static void tell_failing(const WorkerSink *sink, const FailureTally *tally, bool counted) {
  ereport(LOG, (tally->n == 1 ? errmsg("outbox sink \"%s\": event %s failed (attempt %d) and is tried again: %s",
                                       sink->name, tally->id, tally->attempts, tally->error)
                              : errmsg("outbox sink \"%s\": %d deliveries failed and are tried again, such as event "
                                       "%s (attempt %d): %s",
                                       sink->name, tally->n, tally->id, tally->attempts, tally->error),
                detail_of(tally, counted)));
}

/* The first one at once, and then ever more seldom as long as they come. */
static void flush_tally(const WorkerSink *sink, FailureTally *tally, Moment now, bool all,
                        void (*tell_it)(const WorkerSink *, const FailureTally *, bool)) {
  if (tally->n == 0)
    return;
  if (tally->told_at != MOMENT_NONE && !all && now < due(tally->told_at, tally->pause_ms)) {
    next_moment = Min(next_moment, due(tally->told_at, tally->pause_ms));
    failures_to_tell = true;
    return;
  }
  bool counted = tally->told_at != MOMENT_NONE && tally->began_at < due(tally->told_at, tally->pause_ms);
  bool goes_on = tally->told_at != MOMENT_NONE && now < due(tally->told_at, 2 * tally->pause_ms);
  tally->pause_ms = goes_on ? longer(tally->pause_ms) : FIRST_PAUSE_MS;
  tell_it(sink, tally, counted);
  tally->n = 0;
  tally->told_at = now;
}

void sink_log_flush(Moment now, bool all) {
  Assert(!IsTransactionState());
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
    for (int kind = 0; kind < FAILURE_KINDS; kind++) {
      flush_tally(sinks[i], &sinks[i]->dead[kind], now, all, tell_dead);
      flush_tally(sinks[i], &sinks[i]->failing[kind], now, all, tell_failing);
    }
  }
}

Moment sink_log_next_moment(void) {
  return next_moment;
}
