/* kind_library.h: loads the library of a kind of sink that is an extension of its own. */
#pragma once

#include "server/base/server.h"

/* Loads the file and registers the kind in it, once per process. Never fails: when the library cannot be loaded or
 * does not fit, each function of the delivery library that is given this kind reports why. `file` is as in pg_proc:
 * "$libdir/outbox_file". Main thread. */
void kind_library_load(const char *kind, const char *file);

/* Tries again what could not be loaded: the file may be there now. */
void kind_library_retry(const char *kind);
