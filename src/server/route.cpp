#include "route.h"

extern "C" {
#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_foreign_server.h"
#include "lib/stringinfo.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
}

#include <ctype.h>
#include <fnmatch.h>

#include "report.h"
#include "wrappers.h"

static RouteSink *cache;
static int cache_size;
static MemoryContext cache_context; /* NULL = nothing cached */
static bool cache_stale = true;

static void forget(Datum, int, uint32) {
  cache_stale = true;
}

/* "order.*, customer.*" as a NULL-terminated list. */
static char **split_globs(const char *globs) {
  char *text = pstrdup(globs);
  char **list = (char **)palloc0(sizeof(char *) * (strlen(globs) / 2 + 2));
  int n = 0;
  char *rest;

  for (char *glob = strtok_r(text, ",", &rest); glob; glob = strtok_r(NULL, ",", &rest)) {
    while (isspace((unsigned char)*glob))
      glob++;
    char *end = glob + strlen(glob);
    while (end > glob && isspace((unsigned char)end[-1]))
      *--end = '\0';
    if (*glob)
      list[n++] = glob;
  }
  return list;
}

static void read_server(HeapTuple tuple, TupleDesc desc, RouteSink *sink) {
  Form_pg_foreign_server form = (Form_pg_foreign_server)GETSTRUCT(tuple);
  bool isnull;
  Datum datum = heap_getattr(tuple, Anum_pg_foreign_server_srvoptions, desc, &isnull);
  size_t n;
  ob_option *options = wrapper_options(datum, isnull, &n);
  ob_common common;
  ob_error error;

  sink->server_oid = form->oid;
  strlcpy(sink->name, NameStr(form->srvname), NAMEDATALEN);
  sink->events = sink->aggregates = split_globs("");
  if (!ob_common_options(sink->kind, options, n, &common, &error))
    return;
  sink->events = split_globs(common.events);
  sink->aggregates = split_globs(common.aggregates);
  sink->checker = ob_checker_open(sink->kind, options, n, &error);
  sink->usable = sink->checker != NULL;
}

static int by_oid(const void *a, const void *b) {
  Oid left = ((const RouteSink *)a)->server_oid, right = ((const RouteSink *)b)->server_oid;
  return left < right ? -1 : left > right;
}

static void rebuild(void) {
  static bool registered = false;

  if (!registered) {
    CacheRegisterSyscacheCallback(FOREIGNSERVEROID, forget, (Datum)0);
    CacheRegisterSyscacheCallback(FOREIGNDATAWRAPPEROID, forget, (Datum)0);
    registered = true;
  }
  for (int i = 0; i < cache_size; i++)
    if (cache[i].checker)
      ob_checker_close(cache[i].checker);
  cache_size = 0;
  if (cache_context)
    MemoryContextDelete(cache_context);
  cache_context = AllocSetContextCreate(CacheMemoryContext, "outbox routes", ALLOCSET_SMALL_SIZES);
  MemoryContext caller = MemoryContextSwitchTo(cache_context);
  wrappers_name_database();

  /* What changes while we read makes the result stale again. */
  cache_stale = false;
  Relation relation = table_open(ForeignServerRelationId, AccessShareLock);
  SysScanDesc scan = systable_beginscan(relation, InvalidOid, false, NULL, 0, NULL);
  HeapTuple tuple;
  int room = 8;
  cache = (RouteSink *)palloc(sizeof(RouteSink) * room);
  while (HeapTupleIsValid(tuple = systable_getnext(scan))) {
    if (cache_size == room)
      cache = (RouteSink *)repalloc(cache, sizeof(RouteSink) * (room *= 2));
    RouteSink *sink = &cache[cache_size];
    memset(sink, 0, sizeof *sink);
    if (!wrapper_kind(((Form_pg_foreign_server)GETSTRUCT(tuple))->srvfdw, sink->kind))
      continue;
    read_server(tuple, RelationGetDescr(relation), sink);
    cache_size++;
  }
  systable_endscan(scan);
  table_close(relation, AccessShareLock);
  qsort(cache, cache_size, sizeof(RouteSink), by_oid);
  MemoryContextSwitchTo(caller);
}

RouteSink *route_sinks(int *n) {
  if (cache_stale) {
    /* An error on the way leaves a partial list: it must not count as read. */
    PG_TRY();
    { rebuild(); }
    PG_CATCH();
    {
      cache_stale = true;
      PG_RE_THROW();
    }
    PG_END_TRY();
  }
  *n = cache_size;
  return cache;
}

static bool any_matches(char *const *globs, const char *text) {
  for (; *globs; globs++)
    if (strcmp(*globs, "*") == 0 || fnmatch(*globs, text, 0) == 0)
      return true;
  return false;
}

bool route_matches(const RouteSink *sink, const char *aggregate_type, const char *event_type) {
  return any_matches(sink->events, event_type) && any_matches(sink->aggregates, aggregate_type);
}

RouteSink *route_find(const char *name) {
  int n;
  RouteSink *sinks = route_sinks(&n);

  for (int i = 0; i < n; i++)
    if (strcmp(sinks[i].name, name) == 0)
      return &sinks[i];
  return NULL;
}

static const char *hint_for_unknown(const char *name) {
  int n;
  RouteSink *sinks = route_sinks(&n);
  const char **names = (const char **)palloc(sizeof(char *) * (n + 1));
  StringInfoData list;

  if (n == 0)
    return "There is no sink yet: make one with CREATE SERVER ... FOREIGN DATA WRAPPER outbox_kafka or "
           "outbox_webhook.";
  initStringInfo(&list);
  for (int i = 0; i < n; i++) {
    names[i] = sinks[i].name;
    if (i < 10)
      appendStringInfo(&list, "%s\"%s\"", i > 0 ? ", " : "", names[i]);
  }
  const char *nearest = nearest_name(name, names, n);
  return nearest ? psprintf("Perhaps you meant the sink \"%s\".", nearest)
                 : psprintf("The sinks are %s%s.", list.data, n > 10 ? ", ..." : "");
}

RouteSink *route_must_find(const char *name) {
  RouteSink *sink = route_find(name);

  if (sink == NULL)
    ereport(ERROR,
            (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("sink \"%s\" does not exist", name),
             errdetail("A sink is a foreign server of a wrapper of outbox."), errhint("%s", hint_for_unknown(name))));
  return sink;
}

RouteSink *route_require(const char *name, Oid role) {
  RouteSink *sink = route_must_find(name);

  if (outbox_server_aclcheck(sink->server_oid, role) != ACLCHECK_OK)
    ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied for sink \"%s\"", name),
                    errdetail("To name a sink, a role needs USAGE on the foreign server; sinks that take an event by "
                              "their own options need no right."),
                    errhint("GRANT USAGE ON FOREIGN SERVER %s TO %s; or leave the sink out.", quote_identifier(name),
                            quote_identifier(GetUserNameFromId(role, false)))));
  return sink;
}
