/*
 * sink_log.cpp: lines that differ only in numbers are of one kind. The first of a kind are written at once. Further
 * ones are counted, and written as one line after a pause, which doubles while they continue.
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
}

static const int FIRST_PAUSE_MS = 60 * 1000;
static const int LAST_PAUSE_MS = 60 * 60 * 1000;

enum class About { SINK, RETRIED_EVENTS, DEAD_LETTERS };

typedef struct LineKind {
  About about;
  uint32 hash;                            /* of sink, About and text */
  int counted;                            /* lines not yet written */
  int written;                            /* lines written since the kind was made */
  int pause_ms;                           /* between the last line and the next */
  Moment seen_at, counted_at, written_at; /* the last occurrence; the first counted one; the last written line */
  TimestampTz counted_since;              /* counted_at by the wall clock */
  char id[40];                            /* the id of one of the events */
  int attempts;                           /* of that event; 0 = its failure spends none */
  ob_log_line line;
} LineKind;

/* ERRORS_OF_A_SINK: kinds of event errors per sink; further errors count as the last kind. KINDS: of all sinks. */
enum { ERRORS_OF_A_SINK = 4, KINDS = 1024 };

static LineKind kinds[KINDS];
static int n_kinds = 0;
static Moment next_moment = MOMENT_NEVER;

/* The HTTP status is part of the kind. Other numbers are not, nor is text that librdkafka adds in parentheses:
 * durations and the number of suppressed lines. */
static uint32 hash_of(About about, const char *sink, const char *text) {
  uint32 hash = hash_combine(hash_bytes((const unsigned char *)sink, (int)strlen(sink)), (uint32)about);
  int status = 0;

  if (about != About::SINK && sscanf(text, "HTTP %d", &status) == 1)
    hash = hash_combine(hash, (uint32)status);
  for (const char *c = text; *c != '\0' && *c != '('; c++)
    if (!(*c >= '0' && *c <= '9'))
      hash = hash_combine(hash, (uint32)*c);
  return hash;
}

static int at_once(const LineKind *kind) {
  return kind->about == About::SINK ? 3 : 1;
}

static Moment due(const LineKind *kind) {
  return kind->written < at_once(kind) ? MOMENT_NONE : moment_after(kind->written_at, kind->pause_ms);
}

/* After two pauses without a line, the kind starts anew. */
static bool is_over(const LineKind *kind, Moment now) {
  return kind->counted == 0 && moment_is_past(kind->seen_at, now, 2 * Max(kind->pause_ms, FIRST_PAUSE_MS));
}

static void write_about_sink(const LineKind *kind, int minutes) {
  ereport(kind->line.level == OB_LOG_WARNING ? WARNING
          : kind->line.level == OB_LOG_INFO  ? LOG
                                             : DEBUG1,
          (errmsg("outbox sink \"%s\": %s", kind->line.sink, kind->line.text),
           kind->counted > 1
               ? errdetail("The last of %d such lines since the previous one. Further ones are counted, and "
                           "the last one is logged after %d min.",
                           kind->counted, minutes)
           : minutes > 0
               ? errdetail("Further such lines are counted, and the last one is logged after %d min.", minutes)
               : 0));
}

static int detail_of_events(const LineKind *kind, int minutes, bool was_delayed) {
  if (was_delayed)
    return errdetail("Counted since %s. Further ones with such an error are counted, and told after %d min.",
                     timestamptz_to_str(kind->counted_since), minutes);
  return errdetail("Further ones with such an error are counted, and told after %d min.", minutes);
}

static void write_about_events(const LineKind *kind, int minutes, bool was_delayed) {
  const char *sink = kind->line.sink, *error = kind->line.text;

  if (kind->about == About::RETRIED_EVENTS) {
    char attempt[32] = "no attempt is spent";
    if (kind->attempts > 0)
      snprintf(attempt, sizeof(attempt), "attempt %d", kind->attempts);
    ereport(LOG, (kind->counted == 1
                      ? errmsg("outbox sink \"%s\": event %s failed (%s) and is tried again: %s", sink, kind->id,
                               attempt, error)
                      : errmsg("outbox sink \"%s\": %d deliveries failed and are tried again, such as event "
                               "%s (%s): %s",
                               sink, kind->counted, kind->id, attempt, error),
                  detail_of_events(kind, minutes, was_delayed)));
    return;
  }
  const char *attempts = kind->attempts == 1 ? "attempt" : "attempts";
  ereport(WARNING,
          (kind->counted == 1 ? errmsg("outbox sink \"%s\": event %s is a dead letter after %d %s: %s", sink,
                                       kind->id, kind->attempts, attempts, error)
                              : errmsg("outbox sink \"%s\": %d events are dead letters, such as %s after %d %s: %s",
                                       sink, kind->counted, kind->id, kind->attempts, attempts, error),
           detail_of_events(kind, minutes, was_delayed),
           errhint("When the cause is gone: SELECT outbox.redrive(id, sink) FROM outbox.events "
                   "WHERE status = 'FAILED' AND sink = %s;",
                   quote_literal_cstr(sink))));
}

static void write_line(LineKind *kind, Moment now) {
  bool was_delayed = kind->counted_at < due(kind);

  kind->written_at = now;
  if (++kind->written >= at_once(kind))
    kind->pause_ms = Min(Max(kind->pause_ms * 2, FIRST_PAUSE_MS), LAST_PAUSE_MS);
  if (kind->about == About::SINK)
    write_about_sink(kind, kind->pause_ms / FIRST_PAUSE_MS);
  else
    write_about_events(kind, kind->pause_ms / FIRST_PAUSE_MS, was_delayed);
  kind->counted = 0;
}

/* Returns a free kind, or reuses the one that was written longest ago. */
static LineKind *take_kind(Moment now) {
  if (n_kinds < KINDS)
    return &kinds[n_kinds++];
  LineKind *oldest = &kinds[0];
  for (int i = 1; i < KINDS; i++)
    if (kinds[i].written_at < oldest->written_at)
      oldest = &kinds[i];
  if (oldest->counted > 0)
    write_line(oldest, now);
  return oldest;
}

static LineKind *kind_of(About about, const char *sink, const char *text, Moment now) {
  uint32 hash = hash_of(about, sink, text);
  LineKind *kind = NULL, *other = NULL;
  int n_others = 0;

  for (int i = 0; i < n_kinds; i++) {
    LineKind *each = &kinds[i];
    bool over = is_over(each, now);
    if (each->hash == hash && !over) {
      each->seen_at = now;
      return each;
    }
    if (over) {
      kind = each;
    } else if (about != About::SINK && each->about == about && strcmp(each->line.sink, sink) == 0) {
      other = each;
      n_others++;
    }
  }
  if (n_others >= ERRORS_OF_A_SINK)
    return other;
  if (kind == NULL)
    kind = take_kind(now);
  memset(kind, 0, sizeof(*kind));
  kind->about = about;
  kind->hash = hash;
  kind->seen_at = now;
  strlcpy(kind->line.sink, sink, sizeof(kind->line.sink));
  return kind;
}

static void count(LineKind *kind, TimestampTz since, Moment now) {
  if (kind->counted++ == 0) {
    kind->counted_since = since;
    kind->counted_at = now;
  }
  next_moment = Min(next_moment, due(kind));
}

void sink_log_line(const ob_log_line *line, Moment now) {
  if (line->level == OB_LOG_DEBUG) {
    ereport(DEBUG1, (errmsg("outbox sink \"%s\": %s", line->sink, line->text)));
    return;
  }
  LineKind *kind = kind_of(About::SINK, line->sink, line->text, now);
  kind->line = *line;
  count(kind, 0, now);
  if (now >= due(kind))
    write_line(kind, now);
}

static LineKind *kind_of_event(const InFlightEvent *event, Moment now) {
  return kind_of(event->outcome == Outcome::REJECTED ? About::DEAD_LETTERS : About::RETRIED_EVENTS,
                 sink_of(event)->name, event->error, now);
}

void sink_log_see_failing(const InFlightEvent *event, TupleTableSlot *row, TupleDesc desc) {
  static AttrNumber column = InvalidAttrNumber;
  bool is_null;

  if (event->error == NULL)
    return;
  LineKind *kind = kind_of_event(event, moment_now());
  if (kind->counted > 0)
    return;
  Datum id = slot_getattr(row, column_number(desc, "id", &column), &is_null);
  if (is_null)
    return;
  strlcpy(kind->id, DatumGetCString(DirectFunctionCall1(uuid_out, id)), sizeof(kind->id));
  kind->attempts = event->outcome == Outcome::DEFERRED ? 0 : event->attempts + 1;
  copy_error(kind->line.text, sizeof(kind->line.text), event->error);
}

void sink_log_count_failed(const InFlightEvent *event) {
  Moment now = moment_now();

  count(kind_of_event(event, now), event->ended_at, now);
}

void sink_log_flush(Moment now, bool all) {
  Assert(!IsTransactionState());
  if (now < next_moment && !all)
    return;
  next_moment = MOMENT_NEVER;
  for (int i = 0; i < n_kinds; i++) {
    if (kinds[i].counted == 0)
      continue;
    if (all || now >= due(&kinds[i]))
      write_line(&kinds[i], now);
    else
      next_moment = Min(next_moment, due(&kinds[i]));
  }
}

Moment sink_log_next_moment(void) {
  return next_moment;
}
