/*
 * worker_extension.cpp: each transaction of the worker locks the extension before it reads the catalog, so that the
 * extension that it finds there cannot be dropped before the transaction ends.
 */
#include "server/process/worker_extension.h"

#include "server/base/fault_point.h"
#include "server/base/is_worker.h"
#include "server/base/library_version.h"
#include "server/process/worker_slot.h"

extern "C" {
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_extension.h"
#include "commands/dbcommands.h"
#include "commands/extension.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
}

static Oid extension_oid = InvalidOid;
static uint64 changes = 1; /* of the catalog that may concern the extension … */
static uint64 checked = 0; /* … and those after which the extension was found unchanged */

static void relation_changed(Datum, Oid) {
  changes++; /* DROP EXTENSION invalidates its tables; other changes do as well, but a check is cheap */
}

/* Returns what this database has; sets the extension's OID and version. */
static DatabaseState installed_extension(Oid *oid, char *version, size_t size) {
  *oid = get_extension_oid("outbox", true);
  /* Without the schema the extension is not usable: it is being created or dropped. */
  if (!OidIsValid(*oid) || !OidIsValid(get_namespace_oid("outbox", true)))
    return DATABASE_NO_OUTBOX;
  if (!extension_version(*oid, version, size))
    return DATABASE_NO_OUTBOX; /* just dropped */
  return strcmp(version, library_version()) == 0 ? DATABASE_ACTIVE : DATABASE_OTHER_VERSION;
}

/* After an error the state is not known. The next worker finds it. */
static void report_unsure(int, Datum) {
  (void)worker_slot_report_state(DATABASE_ACTIVE);
}

static DatabaseState read_again(bool has_changed) {
  char version[64] = "";
  Oid oid;

  StartTransactionCommand();
  OUTBOX_FAULT_POINT("extension.reported");
  (void)GetTransactionSnapshot();
  const DatabaseState found = installed_extension(&oid, version, sizeof version);
  if (found == DATABASE_OTHER_VERSION && has_changed)
    ereport(WARNING,
            (errmsg("outbox does not deliver in database \"%s\": its extension is version %s, and the library %s",
                    get_database_name(MyDatabaseId), version, library_version()),
             errdetail("Events are enqueued but not delivered."),
             errhint("In that database: ALTER EXTENSION outbox UPDATE; if the library is the older one, restart the "
                     "server first.")));
  CommitTransactionCommand();
  return found;
}

/* Exits the process; the launcher starts no worker here until CREATE or ALTER EXTENSION. The state is reported before
 * the catalog is read again, so that a CREATE or ALTER EXTENSION that commits in between is not overwritten. */
static void exit_without_extension(DatabaseState reported) {
  const bool has_changed = worker_slot_report_state(reported);
  volatile DatabaseState found = reported;

  PG_ENSURE_ERROR_CLEANUP(report_unsure, (Datum)0);
  { found = read_again(has_changed); }
  PG_END_ENSURE_ERROR_CLEANUP(report_unsure, (Datum)0);
  if (found == DATABASE_ACTIVE)
    (void)worker_slot_report_state(found);
  proc_exit(found == DATABASE_ACTIVE ? 1 : 0);
}

void worker_lock_extension(void) {
  Assert(server_is_worker && IsTransactionState());
  char version[64];
  Oid oid;

  LockDatabaseObject(ExtensionRelationId, extension_oid, 0, AccessShareLock);
  const uint64 now = changes; /* an error leaves the check to the next transaction */
  if (checked == now)
    return;
  OUTBOX_FAULT_POINT("extension.before_check");
  DatabaseState found = installed_extension(&oid, version, sizeof version);
  if (found == DATABASE_ACTIVE && oid == extension_oid) {
    checked = now;
    return;
  }
  AbortCurrentTransaction();
  /* An extension that was created again needs a new worker, which exit_without_extension() gets. */
  exit_without_extension(found == DATABASE_ACTIVE ? DATABASE_NO_OUTBOX : found);
}

void worker_find_extension(void) {
  Assert(!IsTransactionState());
  char version[64];

  StartTransactionCommand();
  (void)GetTransactionSnapshot();
  DatabaseState found = installed_extension(&extension_oid, version, sizeof version);
  CommitTransactionCommand();
  if (found != DATABASE_ACTIVE)
    exit_without_extension(found);
  (void)worker_slot_report_state(found);
  CacheRegisterRelcacheCallback(relation_changed, (Datum)0);
}
