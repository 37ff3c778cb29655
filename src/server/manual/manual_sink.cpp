/*
 * manual_sink.cpp: what the SQL of claim(), ack() and nack() (extension/manual/2_end.sql) asks about a sink of kind
 * outbox_manual: who may claim from it, its options, the size of an event, and the delay of a retry. The delivery
 * library knows the options and their defaults, and the catalog cache the sink: SQL would need a second copy of both.
 */
#include "server/base/delivery_error.h"
#include "server/base/origin.h"
#include "server/base/sql_function.h"
#include "server/catalog/route.h"
#include "server/catalog/sink_common.h"
#include "server/catalog/wrappers.h"
#include "server/event/event_size.h"

extern "C" {
#include "access/htup_details.h"
#include "catalog/pg_foreign_server.h"
#include "common/pg_prng.h"
#include "funcapi.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
}

static void require_manual(const RouteSink *sink, Oid role) {
  if (!sink->is_manual)
    ereport(ERROR,
            (errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("the events of sink \"%s\" cannot be claimed", sink->name),
             errdetail("It is of kind outbox_%s: the worker delivers them.", sink->kind),
             errhint("Events of a sink of the wrapper outbox_manual can be claimed.")));
  if (outbox_server_aclcheck(sink->server_oid, role) != ACLCHECK_OK)
    ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied for sink \"%s\"", sink->name),
                    errdetail("To claim its events, a role needs USAGE on the foreign server."),
                    errhint("GRANT USAGE ON FOREIGN SERVER %s TO %s;", quote_identifier(sink->name),
                            quote_identifier(GetUserNameFromId(role, false)))));
}

static void read_options(const RouteSink *sink, dispatch::SinkRules *rules, SinkCommon *common) {
  bool isnull;
  size_t n;

  HeapTuple tuple = SearchSysCache1(FOREIGNSERVEROID, ObjectIdGetDatum(sink->server_oid));
  if (!HeapTupleIsValid(tuple))
    elog(ERROR, "sink \"%s\" has just been dropped", sink->name);
  Datum datum = SysCacheGetAttr(FOREIGNSERVEROID, tuple, Anum_pg_foreign_server_srvoptions, &isnull);
  ob_option *options = wrapper_options(datum, isnull, &n);
  ReleaseSysCache(tuple);
  if (!sink_common("manual", options, n, rules, common))
    ereport(ERROR,
            (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("sink \"%s\" is misconfigured", sink->name),
             errdetail("Its options were accepted by another version of the library, and are not any more."),
             errhint("Correct them with ALTER SERVER %s.", quote_identifier(sink->name))));
}

/* outbox_internal.manual_sink(role, name): an error unless it is such a sink and the role has USAGE on it. */
SQL_FUNCTION(outbox_manual_sink) {
  const RouteSink *sink = route_must_find(text_to_cstring(PG_GETARG_TEXT_PP(1)));
  dispatch::SinkRules rules;
  SinkCommon common;
  TupleDesc desc;

  require_manual(sink, PG_GETARG_OID(0));
  const Oid server = sink->server_oid; /* reading the options may make the cache anew */
  read_options(sink, &rules, &common);
  if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
    elog(ERROR, "outbox_internal.manual_sink() must return a row");
  Datum values[] = {ObjectIdGetDatum(server),
                    BoolGetDatum(rules.ordered),
                    BoolGetDatum(rules.dead_letters_block),
                    Int32GetDatum(rules.max_attempts),
                    CStringGetTextDatum(common.retry),
                    BoolGetDatum(common.retention_ms > 0),
                    Int64GetDatum(origin_here()),
                    Int64GetDatum((int64)common.max_payload)};
  bool nulls[lengthof(values)] = {};
  PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

static const struct varlena *argument(FunctionCallInfo fcinfo, int n) {
  return PG_ARGISNULL(n) ? NULL : (const struct varlena *)PG_GETARG_POINTER(n);
}

/* outbox_internal.check_size(max_payload, payload, payload_bytes, headers, texts ...) */
SQL_FUNCTION(outbox_check_size) {
  const size_t max_payload = PG_ARGISNULL(0) ? OB_LARGEST_PAYLOAD : (size_t)PG_GETARG_INT64(0);
  SentColumns sent = {argument(fcinfo, 1), argument(fcinfo, 2), argument(fcinfo, 3), {}};
  EventSize size;
  ob_error error;

  for (size_t i = 0; i < lengthof(sent.texts); i++)
    sent.texts[i] = argument(fcinfo, 4 + (int)i);
  event_measure(&sent, max_payload, &size);
  if (size.fit != EVENT_FITS) {
    event_size_error(&size, max_payload, &error);
    delivery_error(&error);
  }
  PG_RETURN_BOOL(true);
}

/* outbox_internal.retry_delay(retry, attempt) */
SQL_FUNCTION(outbox_retry_delay) {
  Interval *delay = palloc0_object(Interval);

  delay->time = ob_retry_delay_ms(text_to_cstring(PG_GETARG_TEXT_PP(0)), PG_GETARG_INT32(1), false,
                                  pg_prng_uint64(&pg_global_prng_state)) *
                1000;
  PG_RETURN_INTERVAL_P(delay);
}
