/*
 * stopped_sinks.cpp: a trigger on outbox.stopped_sinks invalidates the table's cache entry, so that workers learn
 * of a change as they learn of ALTER SERVER, without a query.
 */
#include "server/catalog/stopped_sinks.h"

#include "server/base/sql_function.h"
#include "server/shmem/wake.h"
#include "server/storage/owner_sql.h"

extern "C" {
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/rel.h"
}

/* Changed rows of an ordinary table send no invalidation, so the trigger invalidates the table's relation. */
SQL_FUNCTION(outbox_stopped_sinks_changed) {
  if (!CALLED_AS_TRIGGER(fcinfo))
    ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
                    errmsg("function \"stopped_sinks_changed\" must be called as a trigger")));
  CacheInvalidateRelcache(((TriggerData *)fcinfo->context)->tg_relation);
  wake_when_sinks_changed();
  return PointerGetDatum(NULL);
}

static void run(Statement *sql, size_t n, const char *sink, const char *new_name) {
  Datum names[] = {CStringGetTextDatum(sink), CStringGetTextDatum(new_name)};
  OwnerScope scope = owner_enter();

  for (size_t i = 0; i < n; i++)
    owner_execute(&sql[i], names, NULL);
  owner_leave(scope);
}

/* The statement on both tables. $1 is the sink's name, $2 its new one. */
#define ON_BOTH(before, after)                                                                                       \
  make_statement<TEXTOID, TEXTOID>(before "outbox.stopped_sinks" after),                                             \
      make_statement<TEXTOID, TEXTOID>(before "outbox_internal.failing_sinks" after)

void stopped_sinks_forget(const char *sink) {
  static Statement sql[] = {ON_BOTH("DELETE FROM ", " WHERE sink OPERATOR(pg_catalog.=) $1")};

  run(sql, lengthof(sql), sink, "");
}

void stopped_sinks_rename(const char *sink, const char *new_name) {
  static Statement sql[] = {ON_BOTH("UPDATE ", " SET sink = $2 WHERE sink OPERATOR(pg_catalog.=) $1")};

  stopped_sinks_forget(new_name); /* rows of a dropped sink */
  run(sql, lengthof(sql), sink, new_name);
}

/* A changed endpoint may accept what the former one refused. A pause that a user made is ended by a user. */
void stopped_sinks_enable(const char *sink) {
  static Statement sql = make_statement<TEXTOID, TEXTOID>(
      "DELETE FROM outbox.stopped_sinks WHERE sink OPERATOR(pg_catalog.=) $1 AND state "
      "OPERATOR(pg_catalog.=) 'disabled'");

  run(&sql, 1, sink, "");
}
