/*
 * worker_start.cpp: the worker sets its own search_path, timeouts and other settings, because those of ALTER DATABASE
 * and ALTER ROLE are meant for users' sessions.
 */
#include "server/worker/worker_start.h"

#include "server/base/fault_point.h"
#include "server/base/is_worker.h"
#include "server/base/own_change.h"
#include "server/base/settings.h"
#include "server/process/worker_error.h"
#include "server/process/worker_extension.h"
#include "server/process/worker_slot.h"
#include "server/storage/crash_record.h"
#include "server/storage/plan_settings.h"
#include "server/storage/standby.h"

#include <unistd.h>

extern "C" {
#include "access/xact.h"
#include "commands/dbcommands.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
}

static ob_engines *engine = NULL;
static bool engine_hangs = false; /* its threads did not end in time */
static char database_name[NAMEDATALEN] = "";

const char *worker_database(void) {
  return database_name;
}

static void read_database_name(void) {
  StartTransactionCommand();
  if (const char *name = get_database_name(MyDatabaseId))
    strlcpy(database_name, name, sizeof(database_name));
  CommitTransactionCommand();
}

void worker_stop(void) {
  if (engine == NULL || engine_hangs)
    return;
  if (ob_engines_close(engine, setting_shutdown_timeout))
    engine = NULL;
  else
    engine_hangs = true;
}

/* Stops the threads before the slot is freed, however the process exits: while they send, no other worker may take
 * its shards. Aborts the transaction first, so that no session waits for its locks meanwhile. */
static void stop_before_slot_is_freed(int, Datum) {
  if (engine && !engine_hangs)
    AbortOutOfAnyTransaction();
  OUTBOX_SIGNAL_POINT("exit.before_stop");
  worker_stop();
  OUTBOX_SIGNAL_POINT("exit.stopped");
}

/* A thread that hangs in a resolver would crash in OpenSSL's exit handler, and a crashed worker restarts the whole
 * cluster. So the process exits here without the remaining exit handlers. Runs after the process has detached from
 * shared memory. */
static void exit_despite_hanging_threads(int code, Datum) {
  if (engine_hangs) {
    crash_record_end(); /* its own exit handler would run later */
    _exit(code);
  }
}

static void set_session(void) {
  static const char *const session[][2] = {
      {"application_name", "outbox worker"},
      {"search_path", "pg_catalog, pg_temp"},
      /* A user's lock on a table must not keep the worker from handling signals. DDL locks the table and then its
         partitions, the worker often the other way round: with these timeouts the worker is the victim, before other
         sessions check for a deadlock (after 1 s). */
      {"lock_timeout", "900ms"},
      {"deadlock_timeout", "10ms"},
      {"statement_timeout", "0"},
      {"transaction_timeout", "0"}, /* from 17 on; a timeout would end the process */
      {"idle_in_transaction_session_timeout", "0"},
      {"default_transaction_isolation", "read committed"},
      {"default_transaction_read_only", "off"},
      {"session_replication_role", "origin"},
  /* Each statement has one right plan, also before the first ANALYZE of the table. */
#define PLAN_SETTING(setting, variable, value, c_value) {#setting, #value},
      OUTBOX_PLAN_SETTINGS(PLAN_SETTING)
#undef PLAN_SETTING
      /* No parallel workers: no statement needs them, and they start with the settings of the database, where a
         transaction_timeout would end them before they read this worker's settings. */
      {"max_parallel_maintenance_workers", "0"},
  };

  for (const auto &[name, value] : session)
    if (GetConfigOption(name, true, false))
      SetConfigOption(name, value, PGC_SUSET, PGC_S_OVERRIDE);
  /* Recordings that a crash loses are sent again, so their commits need not wait. Set at session level, so that the
   * server's own value remains the reset value: standby.h. */
  SetConfigOption("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION);
}

ob_engines *worker_start(const WorkerArguments *arguments) {
  pqsignal(SIGHUP, SignalHandlerForConfigReload);
  pqsignal(SIGTERM, worker_sigterm_handler);
  pqsignal(SIGINT, worker_sigint_handler);
  crash_record_begin(arguments->database, arguments->index);
  BackgroundWorkerUnblockSignals();
  BackgroundWorkerInitializeConnectionByOid(arguments->database, InvalidOid, 0);
  settings_reread();
  OUTBOX_FAULT_POINT("worker.before_slot");
  if (!worker_slot_take(arguments))
    proc_exit(1);
  OUTBOX_FAULT_POINT("worker.slot_taken");
  set_session();
  read_database_name();
  standby_reread();

  worker_find_extension();
  server_is_worker = true;
  (void)own_changes_begin();
  ob_error error;
  memset(&error, 0, sizeof(error));
  engine = ob_engines_open(&error);
  OUTBOX_FAULT_POINT("worker.engine_open");
  if (engine == NULL)
    ereport(FATAL, (errmsg("outbox could not start its delivery engine: %s", error.message)));
  before_shmem_exit(stop_before_slot_is_freed, 0);
  on_proc_exit(exit_despite_hanging_threads, 0);
  return engine;
}
