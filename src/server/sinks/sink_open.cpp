/*
 * sink_open.cpp: the code of a kind may crash, and each crash of a worker restarts the server. So a sink that was
 * found to crash it is not opened (careful.h).
 */
#include "server/sinks/sink_open.h"

#include "server/base/error_text.h"
#include "server/base/fault_point.h"
#include "server/catalog/kind_library.h"
#include "server/sinks/careful.h"
#include "server/sinks/dispatcher.h"

#include "delivery/block_signals.h"

#include <signal.h>

static const int REOPEN_PAUSE_MS = 10000;
static const int OPEN_LATER_PAUSE_MS = 200;

static bool owner_may(const WorkerSink *sink, const SinkOptions *given, ob_error *error) {
  return given->options.owner_is_superuser ||
         ob_kind(sink->kind)->check_options(sink->kind, OB_BOTH, &given->options, false, error);
}

/* Returns NULL with *error filled, or with *later set. */
static ob_sink *open_handle(ob_engines *engine, const WorkerSink *sink, const SinkOptions *given, Moment now,
                            bool *later, ob_error *error) {
  memset(error, 0, sizeof(*error));
  kind_library_retry(sink->kind);
  const CarefulOpen open = careful().before_open(sink, now);
  *later = open == OPEN_LATER;
  if (open == OPEN_NEVER)
    kind_crashed_error(error);
  if (open != OPEN_NOW)
    return NULL;
  ob_sink *handle = NULL;
  sigset_t before;
  outbox::block_signals(&before); /* a SIGQUIT meanwhile is no crash of the sink's */
  if (owner_may(sink, given, error))
    handle = ob_sink_open(engine, sink->name, sink->kind, &given->options, error);
  careful().opened(handle != NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return handle;
}

void sink_read_common_options(WorkerSink *sink, const SinkOptions *given) {
  const bool blocked_before = sink->rules.dead_letters_block;

  (void)sink_common(sink->kind, given->options.server, given->options.n_server, &sink->rules, &sink->common);
  sink->keeps_delivered = sink->common.retention_ms > 0;
  if (sink->handle) {
    ob_sink_order order = {};
    order.keep_acknowledgements = sink->keeps_delivered;
    order.drop_acknowledgements = !sink->keeps_delivered;
    sink_tell(sink, order);
  }
  if (sink->rules.dead_letters_block && !blocked_before)
    dispatcher().dead_letter_read.restart();
}

static void log_error(WorkerSink *sink, const ob_error *error) {
  char whole[sizeof(sink->open_error)];

  strlcpy(whole, error->message, sizeof(whole));
  if (error->detail[0]) {
    strlcat(whole, ": ", sizeof(whole));
    strlcat(whole, error->detail, sizeof(whole));
  }
  if (strcmp(sink->open_error, whole) == 0)
    return;
  strlcpy(sink->open_error, whole, sizeof(sink->open_error));
  ereport(WARNING,
          (errmsg("outbox sink \"%s\" cannot be opened: %s", sink->name, error->message),
           error->detail[0] ? errdetail("%s", error->detail) : 0, error->hint[0] ? errhint("%s", error->hint) : 0));
}

bool sink_open(ob_engines *engine, WorkerSink *sink, const SinkOptions *given, Moment now) {
  ob_error error;
  bool later;

  OUTBOX_FAULT_POINT("sink.before_open");
  sink->failed_tries = sink->n_failures = sink->unanswered = 0;
  memset(sink->failures, 0, sizeof(sink->failures));
  sink->handle = open_handle(engine, sink, given, now, &later, &error);
  if (sink->handle == NULL && later) {
    sink->open_at = moment_after(now, OPEN_LATER_PAUSE_MS);
    return false;
  }
  if (sink->handle == NULL) {
    if (sink->state != SINK_MISCONFIGURED)
      sink_change_state(sink, SINK_MISCONFIGURED);
    sink->reopen_at = moment_after(now, REOPEN_PAUSE_MS);
    library_error(&error);
    log_error(sink, &error);
    return false;
  }
  sink->open_error[0] = '\0';
  sink_read_common_options(sink, given);
  if (sink->state != SINK_NEW) { /* many events may be waiting */
    ob_sink_order order = {};
    order.begin_slowly = true;
    sink_tell(sink, order);
  }
  sink_change_state(sink, SINK_OPEN);
  OUTBOX_SIGNAL_POINT("sink.opened");
  return true;
}

ob_probe *sink_probe(ob_engines *engine, const WorkerSink *sink, const SinkOptions *given, int timeout_ms, bool send,
                     const char *topics, ob_error *error) {
  memset(error, 0, sizeof(*error));
  if (!owner_may(sink, given, error))
    return NULL;
  return ob_probe_start(engine, sink->name, sink->kind, &given->options, timeout_ms, send, topics, error);
}
