/*
 * dedup.cpp: the primary key of outbox_internal.dedup decides between concurrent writers: the second one waits for
 * the first. The window of a key begins when the key is claimed and not at the start of the transaction, because a
 * transaction older than the window would leave an expired key.
 */
#include "server/enqueue/dedup.h"

extern "C" {
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
}

#include "server/base/settings.h"
#include "server/storage/owner_sql.h"
#include "server/storage/sql.h"

bool dedup_claim(Datum key, Datum event_id, pg_uuid_t *first) {
  Assert(in_spi() && GetUserId() == outbox_owner_oid());
  static Statement claim = make_statement<TEXTOID, UUIDOID, TIMESTAMPTZOID, TIMESTAMPTZOID>(
      "INSERT INTO outbox_internal.dedup AS known (dedup_key, event_id, created_at) VALUES ($1, $2, $3) "
      "ON CONFLICT (dedup_key) DO UPDATE SET event_id = EXCLUDED.event_id, "
      "created_at = EXCLUDED.created_at WHERE known.created_at OPERATOR(pg_catalog.<=) $4");
  static Statement read =
      make_statement<TEXTOID>("SELECT event_id FROM outbox_internal.dedup WHERE dedup_key OPERATOR(pg_catalog.=) $1");
  TimestampTz now = GetCurrentTimestamp(); /* not the transaction's start, which may be before the window */
  TimestampTz expired = now - (TimestampTz)setting_dedup_window * USECS_PER_SEC;
  Datum values[] = {key, event_id, TimestampTzGetDatum(now), TimestampTzGetDatum(expired)};

  if (owner_execute(&claim, values, NULL) > 0)
    return true;
  /* The claim that failed has locked the row, so the row exists and is committed. */
  if (owner_execute(&read, values, NULL) != 1)
    ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
                    errmsg("could not read the event of a dedup key due to a concurrent change"),
                    errhint("The transaction might succeed if retried.")));
  bool isnull;
  Datum id = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
  memcpy(first, DatumGetUUIDP(id), sizeof *first);
  return false;
}

void dedup_release(Datum key, Datum event_id, int64 position) {
  /* A row that has another status now has kept its position. */
  static Statement release = make_statement<TEXTOID, UUIDOID, INT8OID>(
      "DELETE FROM outbox_internal.dedup WHERE dedup_key OPERATOR(pg_catalog.=) $1 AND "
      "event_id OPERATOR(pg_catalog.=) $2 "
      "AND NOT EXISTS (SELECT FROM outbox.events_pending WHERE id OPERATOR(pg_catalog.=) $2) "
      "AND NOT EXISTS (SELECT FROM outbox.events WHERE position OPERATOR(pg_catalog.=) $3)");
  Datum values[] = {key, event_id, Int64GetDatum(position)};

  OwnerScope scope = owner_enter();
  owner_execute(&release, values, NULL);
  owner_leave(scope);
}

void dedup_report_duplicate(Datum key) {
  ereport(ERROR, (errcode(ERRCODE_UNIQUE_VIOLATION),
                  errmsg("duplicate key value violates unique constraint \"%s\"", "dedup_pkey"),
                  errdetail("Key (dedup_key)=(%s) already exists.", TextDatumGetCString(key)),
                  errhint("outbox.enqueue() returns the first event's id instead."),
                  err_generic_string(PG_DIAG_SCHEMA_NAME, "outbox_internal"),
                  err_generic_string(PG_DIAG_TABLE_NAME, "dedup"),
                  err_generic_string(PG_DIAG_CONSTRAINT_NAME, "dedup_pkey")));
  pg_unreachable();
}
