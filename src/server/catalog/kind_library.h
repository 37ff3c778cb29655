/* kind_library.h: loads the library of a kind of sink. */
#pragma once

#include <sys/stat.h>

#include "server/base/server.h"

#include "delivery/delivery.h"

/* How much of a kind is needed. A session that checks or shows events loads a smaller library, if the kind has one
 * (ob_sink_kind.messages_only). A worker loads the whole one. */
typedef enum KindPart { KIND_MESSAGES, KIND_WHOLE } KindPart;

/* Loads the file and registers the kind in it, once per process. Never fails: when the library cannot be loaded,
 * does not fit, or crashes the worker (crash_record.h), each function of the delivery library that is given this kind
 * reports why. `file` is that of the validator in pg_proc: "$libdir/outbox_file". Main thread. */
void kind_library_load(const char *kind, Oid validator, const char *file, KindPart part);

/* Tries again what could not be loaded: the file may be there now. */
void kind_library_retry(const char *kind);

/* The file of the kind's library that this process has loaded, as it was then (st_ino = 0: it could not be read).
 * NULL: it has loaded none, because the kind is in outbox.so, or is not available. */
const struct stat *kind_library_file(const char *kind);

/* Has another file taken the place of a library that this process has loaded? The process keeps what it has loaded,
 * so only a new one has the new library. False while the new file is being written. */
bool kind_library_replaced(void);

/* The error of a kind, or of a sink of it, that crashes the worker. */
void kind_crashed_error(ob_error *error);
