/* manual_sink.cpp: sinks of kind outbox_manual: who may claim from one, its options with what the settings say where
 * they are silent, and the delay of a retry. */
#include "server/manual/manual_sink.h"

#include "server/base/sql_function.h"
#include "server/catalog/route.h"
#include "server/catalog/wrappers.h"

extern "C" {
#include "access/htup_details.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "funcapi.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
}

static void require_manual(const RouteSink *sink, Oid role) {
  if (!sink->is_manual)
    ereport(ERROR,
            (errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("the events of sink \"%s\" cannot be claimed", sink->name),
             errdetail("It is of kind outbox_%s: the worker delivers them.", sink->kind),
             errhint("CREATE SERVER mine FOREIGN DATA WRAPPER outbox_manual makes a sink whose events you "
                     "claim.")));
  if (outbox_server_aclcheck(sink->server_oid, role) != ACLCHECK_OK)
    ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied for sink \"%s\"", sink->name),
                    errdetail("To claim its events, a role needs USAGE on the foreign server."),
                    errhint("GRANT USAGE ON FOREIGN SERVER %s TO %s;", quote_identifier(sink->name),
                            quote_identifier(GetUserNameFromId(role, false)))));
}

static void read_options(const RouteSink *sink, SinkCommon *common) {
  bool isnull;
  size_t n;

  HeapTuple tuple = SearchSysCache1(FOREIGNSERVEROID, ObjectIdGetDatum(sink->server_oid));
  if (!HeapTupleIsValid(tuple))
    elog(ERROR, "sink \"%s\" has just been dropped", sink->name);
  Datum datum = SysCacheGetAttr(FOREIGNSERVEROID, tuple, Anum_pg_foreign_server_srvoptions, &isnull);
  ob_option *options = wrapper_options(datum, isnull, &n);
  ReleaseSysCache(tuple);
  if (!sink_common("manual", options, n, common))
    ereport(ERROR,
            (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("sink \"%s\" is misconfigured", sink->name),
             errdetail("Its options were accepted by another version of the library, and are not any more."),
             errhint("Correct them with ALTER SERVER %s.", quote_identifier(sink->name))));
}

void manual_sink_require(const char *name, Oid role, ManualSink *sink) {
  const RouteSink *route = route_must_find(name);

  require_manual(route, role);
  sink->server = route->server_oid;
  strlcpy(sink->name, route->name, NAMEDATALEN);
  read_options(route, &sink->common);
}

typedef struct Names {
  MemoryContext context;
  Datum list;
} Names;

static bool visit_names(TupleTableSlot *slot, void *context) {
  Names *names = (Names *)context;
  MemoryContext previous = MemoryContextSwitchTo(names->context);

  names->list = datumCopy(slot->tts_values[0], false, -1);
  MemoryContextSwitchTo(previous);
  return true;
}

void manual_sink_read_names(ManualSink *sink) {
  static Statement read = {
      "SELECT $1 || ARRAY(SELECT r.old_name FROM outbox_internal.renamed_sinks AS r WHERE r.new_name = $1 "
      "AND NOT EXISTS (SELECT FROM pg_catalog.pg_foreign_server AS s "
      "WHERE s.srvname = r.old_name))",
      1,
      {TEXTOID},
      NULL};
  Names names = {CurrentMemoryContext, (Datum)0};
  Datum values[] = {CStringGetTextDatum(sink->name)};

  statement_read(&read, values, InvalidSnapshot, visit_names, &names);
  sink->names = names.list;
}

/* outbox_internal.manual_sink(role, name): an error unless it is such a sink and the role has USAGE on it. */
SQL_FUNCTION(outbox_manual_sink) {
  ManualSink sink;
  TupleDesc desc;

  manual_sink_require(text_to_cstring(PG_GETARG_TEXT_PP(1)), PG_GETARG_OID(0), &sink);
  if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
    elog(ERROR, "outbox_internal.manual_sink() must return a row");
  const SinkCommon *common = &sink.common;
  Datum values[] = {ObjectIdGetDatum(sink.server),      BoolGetDatum(common->ordered),
                    BoolGetDatum(common->hold),         Int32GetDatum(common->max_attempts),
                    CStringGetTextDatum(common->retry), BoolGetDatum(common->retention_ms > 0)};
  bool nulls[lengthof(values)] = {};
  PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

/* outbox_internal.retry_delay(retry, attempt) */
SQL_FUNCTION(outbox_retry_delay) {
  Interval *delay = (Interval *)palloc0(sizeof(Interval));

  delay->time = ob_retry_delay_ms(text_to_cstring(PG_GETARG_TEXT_PP(0)), PG_GETARG_INT32(1), false,
                                  pg_prng_uint64(&pg_global_prng_state)) *
                1000;
  PG_RETURN_INTERVAL_P(delay);
}
