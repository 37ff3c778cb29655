/* init.cpp: what happens when the library is loaded, with and without shared_preload_libraries. */
#include "server/base/server.h"
#include "server/base/settings.h"
#include "server/catalog/wrappers.h"
#include "server/hooks/database_ddl.h"
#include "server/hooks/prepared.h"
#include "server/process/launcher.h"
#include "server/shmem/shared_state.h"
#include "server/shmem/wake.h"

extern "C" {
PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void); /* NOLINT(bugprone-reserved-identifier): PostgreSQL looks it up by this name */

void _PG_init(void) {
  /* pg_upgrade only loads the library: it needs no settings, hooks and workers. */
  if (IsBinaryUpgrade)
    return;
  settings_define();
  wake_init();
  wrappers_init();
  if (!process_shared_preload_libraries_in_progress)
    return;
  shared_state_request();
  database_ddl_init();
  prepared_init();
  launcher_register();
}
}
