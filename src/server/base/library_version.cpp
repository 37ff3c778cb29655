/*
 * library_version.cpp: library and extension can be of different versions while an upgrade is under way. Functions
 * that return rows therefore check how many columns the SQL declaration has. GRANTs of the install script run through
 * outbox_grant_privilege(): see there.
 */
#include "server/base/library_version.h"

#include "server/base/sql_function.h"

extern "C" {
#include "access/genam.h"
#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_extension.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
}

const char *library_version(void) {
  return OUTBOX_VERSION;
}

SQL_FUNCTION(outbox_library_version) {
  PG_RETURN_TEXT_P(cstring_to_text(OUTBOX_VERSION));
}

bool extension_version(Oid extension, char *version, size_t size) {
  Assert(IsTransactionState());
  ScanKeyData key;
  bool found = false;

  ScanKeyInit(&key, Anum_pg_extension_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(extension));
  Relation relation = table_open(ExtensionRelationId, AccessShareLock);
  SysScanDesc scan = systable_beginscan(relation, ExtensionOidIndexId, true, NULL, 1, &key);
  HeapTuple tuple = systable_getnext(scan);
  if (HeapTupleIsValid(tuple)) {
    Datum values[Natts_pg_extension];
    bool is_null[Natts_pg_extension];
    heap_deform_tuple(tuple, RelationGetDescr(relation), values, is_null);
    found = !is_null[Anum_pg_extension_extversion - 1];
    if (found)
      strlcpy(version, TextDatumGetCString(values[Anum_pg_extension_extversion - 1]), size);
  }
  systable_endscan(scan);
  table_close(relation, AccessShareLock);
  return found;
}

static void require_columns(FunctionCallInfo fcinfo, const TupleDescData *desc, int columns) {
  if (desc && desc->natts <= columns)
    return;
  ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                  errmsg("the library of outbox is older than the extension in this database"),
                  errdetail("The library is version %s and does not know the declared result type of function %u.",
                            OUTBOX_VERSION, fcinfo->flinfo->fn_oid),
                  errhint("Install the package of the extension's version, and restart the server.")));
}

TupleDesc row_type_of(FunctionCallInfo fcinfo, int columns) {
  TupleDesc desc = NULL;
  bool is_row = get_call_result_type(fcinfo, NULL, &desc) == TYPEFUNC_COMPOSITE;

  require_columns(fcinfo, is_row ? desc : NULL, columns);
  return BlessTupleDesc(desc);
}

ReturnSetInfo *rows_of(FunctionCallInfo fcinfo, int columns) {
  ReturnSetInfo *result = (ReturnSetInfo *)fcinfo->resultinfo;

  InitMaterializedSRF(fcinfo, 0);
  require_columns(fcinfo, result->setDesc, columns);
  return result;
}

/* A plain GRANT in an extension's script marks all privileges of its object as the extension's own (pg_init_privs),
 * including those that users granted, and pg_dump omits them. A GRANT through this function counts as a user's. */
SQL_FUNCTION(outbox_grant_privilege) {
  const char *statement = text_to_cstring(PG_GETARG_TEXT_PP(0));
  const bool was_creating = creating_extension;

  SPI_connect();
  PG_TRY();
  {
    creating_extension = false;
    if (SPI_execute(statement, false, 0) != SPI_OK_UTILITY)
      elog(ERROR, "\"%s\" is no GRANT", statement);
  }
  PG_FINALLY();
  { creating_extension = was_creating; }
  PG_END_TRY();
  SPI_finish();
  PG_RETURN_VOID();
}
