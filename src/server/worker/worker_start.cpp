#include "server/worker/worker_start.h"

#include "server/base/library_version.h"
#include "server/base/settings.h"
#include "server/enqueue/enqueue.h"
#include "server/process/worker_error.h"
#include "server/process/worker_slot.h"
#include "server/storage/standby.h"

#include <unistd.h>

extern "C" {
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_extension.h"
#include "commands/dbcommands.h"
#include "commands/extension.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
}

static ob_engine *engine = NULL;
static bool engine_hangs = false; /* it was closed in vain */
static Oid extension_oid = InvalidOid;
static bool check_extension = true;

static void relation_changed(Datum, Oid) {
  check_extension = true; /* DROP EXTENSION invalidates its tables; so does much else, and a look is cheap */
}

void worker_stop(void) {
  if (engine == NULL || engine_hangs)
    return;
  if (ob_engine_close(engine, setting_shutdown_timeout))
    engine = NULL;
  else
    engine_hangs = true;
}

/* However the process ends, its slot goes after its threads: while they send, no other worker may have its lanes.
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
      /* A person's lock on a table must not keep us from our signals. DDL locks the table and then its partitions, we
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
  };

  for (size_t i = 0; i < lengthof(session); i++)
    if (GetConfigOption(session[i][0], true, false))
      SetConfigOption(session[i][0], session[i][1], PGC_SUSET, PGC_S_OVERRIDE);
  /* What a crash loses of the recordings is sent again; what an application committed is another matter.
   * As a SET, so that the server's own value stays known: standby.h. */
  SetConfigOption("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION);
}

/* What this database has, and in `version` which. */
static DatabaseState installed_extension(Oid *oid, char *version, size_t size) {
  *oid = get_extension_oid("outbox", true);
  /* CREATE EXTENSION may be under way: its tables are there when the extension is visible. */
  if (!OidIsValid(*oid) || !OidIsValid(get_namespace_oid("outbox", true)))
    return DATABASE_HAS_NONE;
  if (!extension_version(*oid, version, size))
    return DATABASE_HAS_NONE; /* just dropped */
  return strcmp(version, library_version()) == 0 ? DATABASE_HAS_OUTBOX : DATABASE_HAS_OTHER_VERSION;
}

/* Leaves: the launcher starts nobody here until CREATE or ALTER EXTENSION says so. Our word comes before our last
 * look, so that it cannot overrule one that commits in between. */
static void leave(DatabaseState found) {
  char version[64] = "";
  Oid oid;

  bool news = worker_slot_tell_launcher(found);
  StartTransactionCommand();
  (void)GetTransactionSnapshot();
  found = installed_extension(&oid, version, sizeof version);
  if (found == DATABASE_HAS_OTHER_VERSION && news)
    ereport(WARNING,
            (errmsg("outbox does not deliver in database \"%s\": its extension is version %s, and the library %s",
                    get_database_name(MyDatabaseId), version, library_version()),
             errdetail("Events are enqueued, and wait."),
             errhint("In that database: ALTER EXTENSION outbox UPDATE; if the library is the older one, restart the "
                     "server first.")));
  CommitTransactionCommand();
  if (found == DATABASE_HAS_OUTBOX)
    (void)worker_slot_tell_launcher(found);
  proc_exit(found == DATABASE_HAS_OUTBOX ? 1 : 0);
}

void worker_stay_with_extension(void) {
  char version[64];
  Oid oid;

  LockDatabaseObject(ExtensionRelationId, extension_oid, 0, AccessShareLock);
  if (!check_extension)
    return;
  check_extension = false;
  DatabaseState found = installed_extension(&oid, version, sizeof version);
  if (found == DATABASE_HAS_OUTBOX && oid == extension_oid)
    return;
  AbortCurrentTransaction();
  leave(found == DATABASE_HAS_OUTBOX ? DATABASE_HAS_NONE : found); /* or, when it was made again, start anew */
}

ob_engine *worker_start(const WorkerArguments *arguments) {
  char version[64];

  pqsignal(SIGHUP, SignalHandlerForConfigReload);
  pqsignal(SIGTERM, worker_end_handler);
  BackgroundWorkerUnblockSignals();
  BackgroundWorkerInitializeConnectionByOid(arguments->database, InvalidOid, 0);
  settings_reread();
  if (!worker_slot_take(arguments))
    proc_exit(1);
  set_session();
  standby_reread();

  StartTransactionCommand();
  (void)GetTransactionSnapshot();
  DatabaseState found = installed_extension(&extension_oid, version, sizeof version);
  CommitTransactionCommand();
  if (found != DATABASE_HAS_OUTBOX)
    leave(found);
  (void)worker_slot_tell_launcher(found);

  server_is_worker = true;
  CacheRegisterRelcacheCallback(relation_changed, (Datum)0);
  ob_error error;
  memset(&error, 0, sizeof(error));
  engine = ob_engine_open(&error);
  if (engine == NULL)
    ereport(FATAL, (errmsg("outbox could not start its delivery engine: %s", error.message)));
  before_shmem_exit(stop_before_slot_goes, 0);
  on_proc_exit(leave_hanging_threads, 0);
  return engine;
}
