
#include "server/manual/manual_sink.h"

#include "server/catalog/route.h"
#include "server/catalog/wrappers.h"
#include "server/shmem/shared_state.h"

extern "C" {
#include "access/xact.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_type.h"
#include "foreign/foreign.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
}

/* ---- which sink -------------------------------------------------------------------------------------------- */

static void require_usage(const RouteSink *sink, Oid role) {
  if (outbox_server_aclcheck(sink->server_oid, role) != ACLCHECK_OK)
    ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied for sink \"%s\"", sink->name),
                    errdetail("To claim its events, a role needs USAGE on the foreign server."),
                    errhint("GRANT USAGE ON FOREIGN SERVER %s TO %s;", quote_identifier(sink->name),
                            quote_identifier(GetUserNameFromId(role, false)))));
}

static void read_sink(const RouteSink *route, ManualSink *sink) {
  bool isnull;
  size_t n;

  sink->server = route->server_oid;
  strlcpy(sink->name, route->name, NAMEDATALEN);
  HeapTuple tuple = SearchSysCache1(FOREIGNSERVEROID, ObjectIdGetDatum(sink->server));
  if (!HeapTupleIsValid(tuple))
    elog(ERROR, "sink \"%s\" has just been dropped", sink->name);
  Datum datum = SysCacheGetAttr(FOREIGNSERVEROID, tuple, Anum_pg_foreign_server_srvoptions, &isnull);
  ob_option *options = wrapper_options(datum, isnull, &n);
  ReleaseSysCache(tuple);
  if (!sink_common("manual", options, n, &sink->common))
    ereport(ERROR,
            (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("sink \"%s\" is misconfigured", sink->name),
             errdetail("Its options were accepted by another version of the library, and are not any more."),
             errhint("Correct them with ALTER SERVER %s.", quote_identifier(sink->name))));
}

void manual_sink_require(const char *name, Oid role, ManualSink *sink) {
  const RouteSink *route = route_must_find(name);

  if (!route->is_manual)
    ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("the events of sink \"%s\" cannot be claimed", name),
                    errdetail("It is of kind outbox_%s: the worker delivers them.", route->kind),
                    errhint("CREATE SERVER mine FOREIGN DATA WRAPPER outbox_manual makes a sink whose events you "
                            "claim.")));
  require_usage(route, role);
  read_sink(route, sink);
}

bool manual_sink_of(Oid server, Oid role, ManualSink *sink) {
  const ForeignServer *found = GetForeignServerExtended(server, FSV_MISSING_OK);
  const RouteSink *route = found ? route_find(found->servername) : NULL;

  if (route == NULL || route->server_oid != server || !route->is_manual)
    return false;
  require_usage(route, role);
  read_sink(route, sink);
  return true;
}

typedef struct Names {
  MemoryContext context;
  Datum *list;
  int n, max;
} Names;

static bool visit_name(TupleTableSlot *slot, void *context) {
  Names *names = (Names *)context;

  MemoryContext previous = MemoryContextSwitchTo(names->context);
  if (names->n == names->max)
    names->list = (Datum *)repalloc(names->list, sizeof(Datum) * (names->max *= 2));
  names->list[names->n++] = PointerGetDatum(DatumGetTextPCopy(slot->tts_values[0]));
  MemoryContextSwitchTo(previous);
  return true;
}

void manual_sink_read_names(ManualSink *sink) {
  static Statement read = {"SELECT r.old_name FROM outbox.renamed_sinks AS r WHERE r.new_name = $1 AND NOT EXISTS "
                           "(SELECT FROM pg_catalog.pg_foreign_server AS s WHERE s.srvname = r.old_name)",
                           1,
                           {TEXTOID},
                           NULL};
  Names names = {CurrentMemoryContext, (Datum *)palloc(sizeof(Datum) * 4), 1, 4};
  Datum values[] = {CStringGetTextDatum(sink->name)};

  names.list[0] = values[0];
  statement_read(&read, values, InvalidSnapshot, visit_name, &names);
  sink->names = text_array(names.list, names.n);
}

/* ---- counters ---------------------------------------------------------------------------------------------- */

/* What the running transaction has to count when it commits; few have more than one sink. */
typedef struct Pending {
  Oid server;
  SinkStats *stats;
  ManualCounts counts;
  Latency latency;
} Pending;
static Pending pending[4];
static int n_pending = 0;

static void add_counts(const Pending *one, Moment now) {
  SinkStats *stats = one->stats;

  if (stats->database != MyDatabaseId || stats->server != one->server)
    return;
  stats->delivered += one->counts.delivered;
  stats->retried += one->counts.retried;
  stats->failed += one->counts.failed;
  stats->redriven_late += one->counts.redriven_late;
  for (int i = 0; i < LATENCY_BUCKETS; i++)
    stats->latency.counts[i] += one->latency.counts[i];
  stats->latency.sum_us += one->latency.sum_us;
  shared_sink_rate(stats, one->counts.delivered, now);
}

static void at_end_of_transaction(XactEvent event, void *) {
  if (n_pending == 0 || (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE))
    return;
  if (event == XACT_EVENT_COMMIT) {
    Moment now = moment_now();
    LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
    for (int i = 0; i < n_pending; i++)
      add_counts(&pending[i], now);
    LWLockRelease(shared_state()->lock);
  }
  n_pending = 0;
}

static Pending *pending_of(Oid server) {
  static bool registered = false;

  for (int i = 0; i < n_pending; i++)
    if (pending[i].server == server)
      return &pending[i];
  if (shared_state() == NULL || n_pending == (int)lengthof(pending))
    return NULL;
  SinkStats *stats = shared_sink_stats(MyDatabaseId, server, true);
  if (stats == NULL)
    return NULL;
  if (!registered)
    RegisterXactCallback(at_end_of_transaction, NULL);
  registered = true;
  Pending *one = &pending[n_pending++];
  memset((void *)one, 0, sizeof(*one));
  one->server = server;
  one->stats = stats;
  return one;
}

void manual_count(Oid server, const ManualCounts *counts) {
  Pending *one = pending_of(server);

  if (one == NULL)
    return;
  one->counts.delivered += counts->delivered;
  one->counts.retried += counts->retried;
  one->counts.failed += counts->failed;
  one->counts.redriven_late += counts->redriven_late;
}

void manual_count_latency(Oid server, int64 microseconds) {
  if (Pending *one = pending_of(server))
    latency_add(&one->latency, microseconds);
}

void manual_count_error(Oid server, const char *error) {
  if (const Pending *one = pending_of(server))
    shared_sink_error(one->stats, error, GetCurrentTimestamp());
}
