/*
 * completions.cpp: collects until the delivery library has nothing left, at most 4,096 at a time. A completion has 16
 * bytes and does not contain the message.
 */
#include "server/worker/completions.h"

#include "server/base/error_text.h"
#include "server/base/is_worker.h"
#include "server/inflight/events_in_flight.h"
#include "server/inflight/sink_log.h"
#include "server/process/worker_error.h"
#include "server/sinks/careful.h"
#include "server/worker/worker_port.h"

extern "C" {
#include "access/xact.h"
#include "mb/pg_wchar.h"
}

/* Completions per call of ob_collect(). */
static const int COLLECT_MAX = 4096;

static_assert((int)Outcome::SENT == OB_SENT && (int)Outcome::RETRY == OB_RETRY &&
              (int)Outcome::DEFERRED == OB_DEFERRED && (int)Outcome::REJECTED == OB_REJECTED &&
              (int)Outcome::RETURNED == OB_RETURNED);

static ob_engines *engine = NULL;

void completions_init(ob_engines *engine_) {
  engine = engine_;
}

static void take_completion(const ob_completion *completion, Now now) {
  const Outcome outcome = (Outcome)completion->outcome;
  const char *text = outcome == Outcome::SENT ? completion->acknowledgement : completion->error;
  char other_encoding[OB_ERROR_MAX + 1];

  if (text && GetDatabaseEncoding() != PG_UTF8) {
    strlcpy(other_encoding, text, sizeof(other_encoding));
    library_text(other_encoding);
    text = other_encoding;
  }
  careful().ended(completion->ticket);
  worker_loop().take(completion->ticket,
                     {outcome, completion->retry_after_ms, text, completion->max_refusals, completion->suspect,
                      completion->slow_retry},
                     now);
}

void completions_collect(Now now) {
  Assert(server_is_worker && !IsTransactionState() && engine != NULL);
  static ob_completion completions[COLLECT_MAX];
  size_t n;
  ob_log_line line;

  do {
    n = ob_collect(engine, completions, COLLECT_MAX);
    for (size_t i = 0; i < n; i++)
      take_completion(&completions[i], now);
  } while (n == COLLECT_MAX);
  while (ob_next_log(engine, &line)) {
    library_text(line.text);
    if (line.level == OB_LOG_FATAL)
      worker_out_of_memory("An allocation failed in the delivery library.");
    sink_log_line(&line, now);
  }
}
