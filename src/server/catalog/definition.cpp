/*
 * definition.cpp: statements of the worker and the functions name these columns, and rely on their types and indexes.
 * Two use the list: the guard against changes (definition_guard.cpp), and outbox.doctor(), which names the changes
 * that were made where the guard was not there. sql/definition.sql compares it with the install script.
 */
#include "server/catalog/definition.h"

#include "server/base/sql_function.h"

extern "C" {
#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"
}

typedef struct DefinedTable {
  const char *schema, *name;
  const char *columns; /* NULL: those of its parent, or a sequence */
} DefinedTable;

static const DefinedTable TABLES[] = {
    {"outbox", "events",
     "id uuid, aggregate_type text, aggregate_id text, event_type text, payload jsonb, payload_bytes bytea, "
     "content_type text, headers jsonb, partition_key text \"C\", dedup_key text \"C\", seq bigint, "
     "created_at timestamp with time zone, available_at timestamp with time zone, attempts integer, status text, "
     "last_error text, sent_at timestamp with time zone, last_attempt_at timestamp with time zone, position bigint, "
     "sink text \"C\", blocked_by bigint, xact xid8, origin bigint, overtaken_by bigint, redrive_late boolean, "
     "application text, acknowledgement text"},
    {"outbox", "events_pending", NULL},
    {"outbox", "events_failed", NULL},
    {"outbox", "events_sent", NULL},
    {"outbox", "events_position", NULL},
    {"outbox", "stopped_sinks",
     "sink text \"C\", state text, reason text, error text, since timestamp with time zone, stopped_by text"},
    {"outbox", "leases",
     "server oid, ordered boolean, key_hash bigint, single bigint, token uuid, lease_until timestamp with time zone, "
     "overtaken_by bigint, ids uuid[], positions bigint[]"},
    {"outbox_internal", "dedup", "dedup_key text \"C\", event_id uuid, created_at timestamp with time zone"},
    {"outbox_internal", "rescan_queue", "position bigint, xact xid8"},
    {"outbox_internal", "failing_sinks",
     "sink text \"C\", failed_for interval, last_failed_at timestamp with time zone"},
    {"outbox_internal", "failed_attempts",
     "day smallint, event_id uuid, position bigint, sink text \"C\", attempt integer, "
     "started_at timestamp with time zone, ended_at timestamp with time zone, worker integer, error text, "
     "redriven_by text, key_hash bigint, blocks_until timestamp with time zone"},
    {"outbox_internal", "failed_attempts_0", NULL},
    {"outbox_internal", "failed_attempts_1", NULL},
    {"outbox_internal", "failed_attempts_2", NULL},
    {"outbox_internal", "failed_attempts_3", NULL},
    {"outbox_internal", "failed_attempts_4", NULL},
    {"outbox_internal", "failed_attempts_5", NULL},
    {"outbox_internal", "failed_attempts_6", NULL},
    {"outbox_internal", "failed_attempts_7", NULL},
    {"outbox_internal", "conditions",
     "sink text \"C\", what text \"C\", since timestamp with time zone, told_at timestamp with time zone, n bigint, "
     "event bigint, delivered bigint"},
    {"outbox_internal", "dropped_sinks",
     "name text \"C\", kind text, options text[], dropped_at timestamp with time zone, dropped_by text"},
};

static const char *const INDEXES[] = {
    "events_pending_pkey",
    "events_pending_id_sink_key",
    "events_pending_xact",
    "events_pending_due",
    "events_pending_blocked",
    "events_pending_sink",
    "events_pending_unrouted",
    "events_pending_troubled",
    "events_failed_pkey",
    "events_failed_key",
    "events_failed_id",
    "events_failed_at",
    "dedup_pkey",
    "rescan_queue_xact",
    "stopped_sinks_pkey",
    "failing_sinks_pkey",
    "dropped_sinks_pkey",
    "leases_pkey",
    "leases_token",
    "failed_attempts_event",
    "failed_attempts_key",
    "conditions_pkey",
};

static const DefinedTable *find_table(const char *schema, const char *name) {
  for (const DefinedTable &table : TABLES)
    if (strcmp(table.schema, schema) == 0 && strcmp(table.name, name) == 0)
      return &table;
  return NULL;
}

bool defined_relation(const char *schema, const char *name) {
  return find_table(schema, name) != NULL;
}

bool defined_column(const char *schema, const char *table, const char *column) {
  const DefinedTable *defined = find_table(schema, table);
  const size_t length = strlen(column);

  for (const char *c = defined ? defined->columns : NULL; c != NULL;) {
    if (strncmp(c, column, length) == 0 && (c[length] == ',' || c[length] == '\0'))
      return true;
    c = strstr(c, ", ");
    c = c ? c + 2 : NULL;
  }
  return false;
}

bool defined_index(const char *name) {
  for (const char *index : INDEXES)
    if (strcmp(index, name) == 0)
      return true;
  return false;
}

SQL_FUNCTION(outbox_defined_tables) {
  Datum tables[lengthof(TABLES)];
  int n = 0;

  for (const DefinedTable &table : TABLES)
    tables[n++] =
        CStringGetTextDatum(psprintf("%s.%s: %s", table.schema, table.name, table.columns ? table.columns : ""));
  PG_RETURN_ARRAYTYPE_P(construct_array(tables, n, TEXTOID, -1, false, TYPALIGN_INT));
}

SQL_FUNCTION(outbox_defined_indexes) {
  Datum indexes[lengthof(INDEXES)];
  int n = 0;

  for (const char *index : INDEXES)
    indexes[n++] = CStringGetTextDatum(index);
  PG_RETURN_ARRAYTYPE_P(construct_array(indexes, n, TEXTOID, -1, false, TYPALIGN_INT));
}
