/*
 * worker.cpp: one event loop (dispatch/round/loop.h) that serves all sinks of one database, its tasks besides, and
 * its end. Requests run on the engine's threads; this thread only waits on the latch and runs SQL, so it handles
 * signals at once.
 */
#include "server/base/fault_point.h"
#include "server/base/origin.h"
#include "server/base/settings.h"
#include "server/claim/batches.h"
#include "server/claim/low_watermark.h"
#include "server/inflight/decision_log.h"
#include "server/inflight/events_in_flight.h"
#include "server/inflight/sink_log.h"
#include "server/process/worker_error.h"
#include "server/process/worker_health.h"
#include "server/process/worker_slot.h"
#include "server/sinks/dispatcher.h"
#include "server/sinks/shard_handoff.h"
#include "server/sinks/worker_sinks.h"
#include "server/sinks/worker_stops.h"
#include "server/storage/durable.h"
#include "server/storage/standby.h"
#include "server/worker/completions.h"
#include "server/worker/maintenance.h"
#include "server/worker/probe_worker.h"
#include "server/worker/worker_port.h"
#include "server/worker/worker_start.h"
#include "server/worker/worker_wait.h"

extern "C" {
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "utils/guc.h"
}

static const int START_PAUSE_MS = 200;
/* On exit, recordable rows are looked for among those that cannot be recorded for this time at most. */
static const int LAST_RECORDING_MS = 2000;

extern "C" PGDLLEXPORT void outbox_worker_main(Datum argument);

/* For the log. A string literal. */
static const char *why_told_to_end = "stops on request (SIGTERM)";

static void reload_settings(void) {
  if (!ConfigReloadPending)
    return;
  ConfigReloadPending = false;
  const int64 origin = origin_here();
  ProcessConfigFile(PGC_SIGHUP);
  standby_reread();
  if (origin_here() != origin) { /* a new worker starts with the new origin */
    ShutdownRequestPending = true;
    why_told_to_end = "restarts because outbox.cluster_name has changed";
  }
  worker_sinks_settings_changed();
  worker_loop().want_claims();
}

static void report_activity(void) {
  worker_slot_report_activity(worker_waits_for_lock()      ? "waiting for a lock"
                              : worker_loop().is_stalled() ? "waiting for a synchronous standby"
                              : shards_draining()          ? "handing shards over"
                              : in_flight().count() > 0    ? "delivering"
                              : worker_sinks_all().empty() ? "no sink"
                                                           : "waiting for events");
}

/* Outside a transaction, where it is known which events of a shard are claimed when it is handed over. */
static void update_shards(Moment now) {
  if (!shards_follow(now))
    return;
  worker_loop().want_claims();
  worker_loop().want_rescan();
}

/* A probe uses the sink's committed options, so the catalog is read before it begins. */
static void serve_probes(void) {
  probe_poll();
  if (!probe_wanted())
    return;
  if (worker_read_catalog(false))
    probe_begin();
}

static void one_loop(void) {
  WorkerSlot *slot = worker_slot();
  const Now clock = now_read();
  const Moment now = clock.moment;

  decision_log_begin();
  worker_health_clear();
  worker_slot_refresh(clock);
  worker_loop().turn(clock);
  if (dispatcher().sent_day.take_missing())
    maintenance_day_missing();
  if (now >= worker_pause_end(TASK_CLAIM))
    maintenance_run(now, slot->index == 0);
  if (!worker_stops_write(now))
    worker_loop().want_claims();
  if (slot->index == 0)
    serve_probes();
  OUTBOX_FAULT_POINT("shards.before_update");
  update_shards(now);
  low_watermark_publish(now, worker_loop().rescan_wanted());
  OUTBOX_FAULT_POINT("loop.end");
  sink_log_flush(now, false);
  if (maintenance_library_replaced(now)) {
    ShutdownRequestPending = true;
    why_told_to_end = "restarts because the library of a kind of sink was replaced";
  }
  batches_release_large();
  report_activity();
}

/* For the log line of a round. A string literal. */
static const char *waits_for(Moment now) {
  return now < worker_pause_end(TASK_CLAIM)   ? "the end of the pause after an error"
         : worker_loop().waits_for_standbys() ? "a synchronous standby"
         : now < dispatcher().lingers_until() ? "more commits, or more room"
         : worker_loop().claims_wanted()      ? "nothing"
         : in_flight().count() == 0           ? "a commit"
         : dispatcher().sinks.any_starved()   ? "room in a sink"
                                              : "outcomes";
}

static void wait_for_something(void) {
  const Now clock = now_read();
  const Moment now = clock.moment;
  const long ms = (long)worker_loop().sleep_ms(clock);

  decision_log_round(in_flight().count(), ms, waits_for(now));
  worker_wait(ms, !dispatcher().recording.is_gathering(), in_flight().count() > 0);
  reload_settings();
}

/* Stops the delivery library, whose threads end before the slot is freed, so that no worker takes the shards while
 * requests are still sent. */
[[noreturn]] static void end_worker(void) {
  OUTBOX_FAULT_POINT("end.before_stop");
  sink_log_flush(moment_now(), true);
  worker_stop();
  OUTBOX_FAULT_POINT("end.stopped");
  proc_exit(0); /* the launcher decides whether to start another worker */
}

/* A planned exit should cause no duplicates: waits for events in flight, at most outbox.shutdown_timeout, and records
 * the outcomes. */
[[noreturn]] static void drain_and_end(void) {
  Moment until = moment_after(moment_now(), setting_shutdown_timeout);

  worker_slot_leave();
  OUTBOX_FAULT_POINT("drain.begin");
  worker_slot_report_activity("shutting down");
  worker_loop().return_held();
  /* Sessions may wait for this worker's exit, so it waits at most 200 ms for locks of others. */
  SetConfigOption("lock_timeout", "200ms", PGC_SUSET, PGC_S_OVERRIDE);
  for (;;) {
    Now now = now_read();
    completions_collect(now);
    if (in_flight().running() == 0 || now.moment >= until)
      break;
    worker_wait(milliseconds_until(now.moment, until), true, true);
  }
  until = moment_after(moment_now(), LAST_RECORDING_MS);
  int before;
  do {
    before = in_flight().n_ended();
    if (before > 0)
      (void)worker_loop().round_trip(now_read(), true, false);
  } while (in_flight().n_ended() < before || (worker_loop().records_others() && moment_now() < until));
  worker_sinks_leave();
  end_worker();
}

/* Gives the slot to another database. Events that are being sent end normally, because an endpoint that is slower
 * than slot sharing would get the same events from each worker. No new event is sent. */
[[noreturn]] static void give_slot_away(void) {
  worker_slot_leave();
  OUTBOX_FAULT_POINT("slot.given");
  worker_slot_report_activity("giving its slot to another database");
  worker_loop().return_held();
  worker_sinks_close();
  while (!ShutdownRequestPending && in_flight().running() > 0) {
    worker_wait(1000, true, true);
    Now now = now_read();
    completions_collect(now);
    if (dispatcher().recording.is_due(now.moment))
      (void)worker_loop().round_trip(now, true, false);
  }
  drain_and_end();
}

static void init_worker(const WorkerArguments *arguments) {
  ob_engines *engine = worker_start(arguments);
  dispatcher_init();
  worker_port_init();
  dispatcher().shards.init(arguments->index);
  completions_init(engine);
  worker_wait_init(ob_engines_fd(engine));
  worker_sinks_init(engine, arguments->index);
  probe_worker_init(engine);
  durable_init();
}

/* log_line_prefix names no database for a background worker. */
static void name_database(void *) {
  if (worker_database()[0] != '\0')
    errcontext("outbox worker of database \"%s\"", worker_database());
}

void outbox_worker_main(Datum) {
  WorkerArguments arguments;
  ErrorContextCallback context = {error_context_stack, name_database, NULL};

  error_context_stack = &context;
  memcpy(&arguments, MyBgworkerEntry->bgw_extra, sizeof(arguments));
  worker_health_init(arguments.database);
  init_worker(&arguments);

  while (!ShutdownRequestPending && !worker_read_catalog(true))
    worker_wait(START_PAUSE_MS, false, false);
  worker_slot_run();
  OUTBOX_FAULT_POINT("worker.running");
  update_shards(moment_now());
  while (!ShutdownRequestPending) {
    one_loop();
    if (dispatcher().shards.superfluous() && in_flight().count() == 0 && worker_slot_resign())
      end_worker();
    if (worker_loop().exits_idle(now_read()))
      end_worker();
    if (worker_slot_is_revoked())
      give_slot_away();
    if (!ShutdownRequestPending)
      wait_for_something();
  }
  ereport(LOG,
          (errmsg("outbox worker of database \"%s\" %s", worker_database(), why_told_to_end), errhidecontext(true)));
  drain_and_end();
}
