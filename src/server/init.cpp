/* init.cpp: what happens when the library is loaded, with and without shared_preload_libraries. */
#include "database_ddl.h"
#include "launcher.h"
#include "prepared.h"
#include "settings.h"
#include "shared_state.h"
#include "wake.h"
#include "wrappers.h"

extern "C" {
PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

void _PG_init(void) {
  /* pg_upgrade loads us only to look: no settings to reject, no worker to start. */
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
