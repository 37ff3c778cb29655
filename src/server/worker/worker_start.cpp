/*
 * worker_start.cpp: the worker's settings (search_path, timeouts and others) are set here, whatever ALTER DATABASE
 * or ALTER ROLE say: those are for sessions.
 */
#include "server/worker/worker_start.h"

#include "server/base/is_worker.h"
#include "server/base/settings.h"
#include "server/process/worker_error.h"
#include "server/process/worker_extension.h"
#include "server/process/worker_slot.h"
#include "server/storage/standby.h"

#include <unistd.h>

extern "C" {
#include "access/xact.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "utils/guc.h"
}

static ob_engine *engine = NULL;
static bool engine_hangs = false; /* it was closed in vain */

void worker_stop(void) {
  if (engine == NULL || engine_hangs)
    return;
  if (ob_engine_close(engine, setting_shutdown_timeout))
    engine = NULL;
  else
    engine_hangs = true;
}

/* However the process ends, its slot goes after its threads: while they send, no other worker may have its shards.
 * Nobody waits for locks of ours meanwhile. */
static void stop_before_slot_goes(int, Datum) {
  if (engine && !engine_hangs)
    AbortOutOfAnyTransaction();
  worker_stop();
}

/* A thread that hangs in a resolver would crash in OpenSSL's exit handler, and a crashed worker restarts the whole
 * cluster: so leave without the server's exit handlers then. Runs after shared memory is let go. */
static void leave_hanging_threads(int code, Datum) {
  if (engine_hangs)
    _exit(code);
}

static void set_session(void) {
  static const char *const session[][2] = {
      {"application_name", "outbox worker"},
      {"search_path", "pg_catalog, pg_temp"},
      /* A user's lock on a table must not keep us from our signals. DDL locks the table and then its partitions, we
       * often the other way round: we are the one to give way, before others look for a deadlock (after 1 s). */
      {"lock_timeout", "900ms"},
      {"deadlock_timeout", "10ms"},
      {"statement_timeout", "0"},
      {"transaction_timeout", "0"}, /* from 17 on; it ends the process */
      {"idle_in_transaction_session_timeout", "0"},
      {"default_transaction_isolation", "read committed"},
      {"default_transaction_read_only", "off"},
      {"session_replication_role", "origin"},
      /* Every statement has one right plan, also while the table has never been analysed. */
      {"plan_cache_mode", "force_generic_plan"},
      {"enable_seqscan", "off"},
      {"enable_indexscan", "on"},
      {"enable_nestloop", "on"},
      {"enable_bitmapscan", "off"},
      {"enable_sort", "off"},
      {"jit", "off"},
      /* No parallel workers: they start with the settings of the database, and a transaction_timeout among those ends
       * them before ours reach them. Nothing here would gain from them. */
      {"max_parallel_workers_per_gather", "0"},
      {"max_parallel_maintenance_workers", "0"},
  };

  for (size_t i = 0; i < lengthof(session); i++)
    if (GetConfigOption(session[i][0], true, false))
      SetConfigOption(session[i][0], session[i][1], PGC_SUSET, PGC_S_OVERRIDE);
  /* What a crash loses of the recordings is sent again; what an application committed is another matter.
   * As a SET, so that the server's own value stays known: standby.h. */
  SetConfigOption("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION);
}

ob_engine *worker_start(const WorkerArguments *arguments) {
  pqsignal(SIGHUP, SignalHandlerForConfigReload);
  pqsignal(SIGTERM, worker_sigterm_handler);
  BackgroundWorkerUnblockSignals();
  BackgroundWorkerInitializeConnectionByOid(arguments->database, InvalidOid, 0);
  settings_reread();
  if (!worker_slot_take(arguments))
    proc_exit(1);
  set_session();
  standby_reread();

  worker_find_extension();
  server_is_worker = true;
  ob_error error;
  memset(&error, 0, sizeof(error));
  engine = ob_engine_open(&error);
  if (engine == NULL)
    ereport(FATAL, (errmsg("outbox could not start its delivery engine: %s", error.message)));
  before_shmem_exit(stop_before_slot_goes, 0);
  on_proc_exit(leave_hanging_threads, 0);
  return engine;
}
