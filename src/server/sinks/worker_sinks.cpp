/*
 * worker_sinks.cpp: after ALTER SERVER a sink is closed, and opened anew when nothing of its former configuration is
 * in flight. Its cursor begins anew, since other rows may be delivered now. Before a sink is opened, the events that
 * waited for it are routed.
 */
#include "server/sinks/worker_sinks.h"

#include "server/base/error_text.h"
#include "server/base/fault_point.h"
#include "server/base/grow.h"
#include "server/base/is_worker.h"
#include "server/base/settings.h"
#include "server/catalog/route.h"
#include "server/sinks/careful.h"
#include "server/sinks/dispatcher.h"
#include "server/sinks/shard_handoff.h"
#include "server/sinks/sink_early_retry.h"
#include "server/sinks/sink_open.h"
#include "server/sinks/sink_signals.h"
#include "server/sinks/worker_stops.h"
#include "server/storage/sql.h"

#include <algorithm>

extern "C" {
#include "access/xact.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
}

static const int CLOSE_GRACE_MS = 1000;

typedef struct SinkEntry {
  WorkerSink sink; /* first: its name is the hash key */
  SinkOptions given;
} SinkEntry;

static ob_engines *engine = NULL;
static int worker_index = 0;
static HTAB *sinks = NULL;
static WorkerSink **list = NULL; /* all entries */
static int n_list = 0, max_list = 0;
static WorkerSink *last_found = NULL; /* most rows have the sink of the row before */
static bool stale = true;

static void catalog_changed(Datum, OUTBOX_SYSCACHE, uint32) {
  stale = true;
}

static void stops_changed(void) {
  stale = true;
}

void worker_sinks_init(ob_engines *engine_, int worker_index_) {
  HASHCTL control;

  engine = engine_;
  worker_index = worker_index_;
  control.keysize = NAMEDATALEN;
  control.entrysize = sizeof(SinkEntry);
  control.hcxt = TopMemoryContext;
  sinks = hash_create("outbox sinks", 64, &control, HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
  CacheRegisterSyscacheCallback(FOREIGNSERVEROID, catalog_changed, (Datum)0);
  CacheRegisterSyscacheCallback(USERMAPPINGOID, catalog_changed, (Datum)0);
  CacheRegisterSyscacheCallback(FOREIGNDATAWRAPPEROID, catalog_changed, (Datum)0);
  worker_stops_init(stops_changed);
  CacheRegisterSyscacheCallback(AUTHOID, catalog_changed, (Datum)0); /* whether an owner is a superuser */
}

void worker_sinks_settings_changed(void) {
  stale = true;
}

bool worker_sinks_stale(void) {
  return stale;
}

/* The name is not yet that of a sink. */
static SinkEntry *add_sink(const char *name) {
  make_room(list, n_list, max_list);
  SinkEntry *entry = (SinkEntry *)hash_search(sinks, name, HASH_ENTER, NULL);
  memset((char *)entry + NAMEDATALEN, 0, sizeof(SinkEntry) - NAMEDATALEN);
  dispatcher().sinks.add(&entry->sink);
  list[n_list++] = &entry->sink;
  return entry;
}

/* The routes are ordered by OID. */
static const RouteSink *route_of(Oid server, const RouteSink *routes, int n) {
  const RouteSink *route = std::lower_bound(routes, routes + n, server,
                                            [](const RouteSink &one, Oid oid) { return one.server_oid < oid; });

  return route < routes + n && route->server_oid == server ? route : NULL;
}

/* No sink has this name: names have no control characters. */
static void take_name_away(WorkerSink *sink) {
  char none[NAMEDATALEN] = {0};

  snprintf(none, sizeof(none), "\001%u", sink->id());
  hash_update_hash_key(sinks, sink, none);
}

/* A renamed server keeps what it has in flight, its blocked keys and its counters. The names are taken away first,
 * because two servers may have swapped them. */
static void follow_renames(const RouteSink *routes, int n) {
  for (int i = 0; i < n_list; i++) {
    const RouteSink *route = route_of(list[i]->id(), routes, n);
    if (route && strcmp(route->name, list[i]->name) != 0)
      take_name_away(list[i]);
  }
  for (int i = 0; i < n_list; i++) {
    const RouteSink *route = route_of(list[i]->id(), routes, n);
    if (route == NULL || strcmp(route->name, list[i]->name) == 0)
      continue;
    char name[NAMEDATALEN] = {0};
    strlcpy(name, route->name, sizeof(name));
    if (WorkerSink *dropped = (WorkerSink *)hash_search(sinks, name, HASH_FIND, NULL))
      take_name_away(dropped);
    hash_update_hash_key(sinks, list[i], name);
  }
  last_found = NULL;
}

static void say_not_counted(const WorkerSink *sink) {
  static bool said = false;

  if (!said)
    ereport(WARNING, (errmsg("outbox sink \"%s\" is not counted", sink->name),
                      errdetail("There is room for the counters of %d sinks in all databases.", OUTBOX_MAX_SINKS),
                      errhint("It delivers all the same. Counters of dropped sinks become free at once.")));
  said = true;
}

static SinkState closing_before(SinkState closed) {
  return closed == SINK_STOPPED ? SINK_STOPPING : closed == SINK_DROPPED ? SINK_DROPPING : SINK_CLOSING;
}

static SinkState closed_after(SinkState closing) {
  return closing == SINK_STOPPING ? SINK_STOPPED : closing == SINK_DROPPING ? SINK_DROPPED : SINK_CLOSED;
}

void worker_sink_close(WorkerSink *sink, SinkState closed, int grace_ms) {
  const SinkState next = sink->handle ? closing_before(closed) : closed;

  if (sink->state == next || (closed == SINK_CLOSED && sink->state != SINK_OPEN))
    return;
  if (sink->state == SINK_OPEN)
    sink->handle->kind->sink_close(sink->handle, grace_ms);
  sink_change_state(sink, next);
}

void worker_sink_reopen(WorkerSink *sink) {
  sink_change_state(sink, sink->handle ? SINK_CLOSING : SINK_CLOSED);
}

static void reload_one(const RouteSink *route, uint64 reload) {
  uint64 fingerprint;
  SinkOptions given = sink_options_read(route->server_oid, route->name, &fingerprint);

  SinkEntry *entry = (SinkEntry *)hash_search(sinks, route->name, HASH_FIND, NULL);
  if (entry == NULL)
    entry = add_sink(route->name);
  WorkerSink *sink = &entry->sink;
  if (sink->id() != route->server_oid) {
    if (OidIsValid(sink->id()))
      dispatcher().blocked_keys.forget_sink(sink->id()); /* another server of the same name */
    sink->events.id = route->server_oid;
    sink->stats = shared_sink_stats(MyDatabaseId, sink->id(), true);
    if (sink->stats == NULL)
      say_not_counted(sink);
    else if (sink->stats->unrecorded_since != 0)
      dispatch::Recording::begin_stuck(&sink->events);
    if (sink->stats)
      sink->pauses_ended = sink->stats->pauses_ended;
    shards_add_sink(sink);
  }
  sink->reload = reload;
  if (sink_is_dropped(sink->state))
    worker_sink_reopen(sink);
  if (entry->given.context)
    MemoryContextDelete(entry->given.context);
  entry->given = given;
  strlcpy(sink->kind, route->kind, sizeof(sink->kind));
  sink_read_common_options(sink, &given);
  if (sink->fingerprint != fingerprint) {
    /* All rows are read anew: events that were blocked or skipped before may be sent now. */
    sink->cursor->restart(GetCurrentTimestamp());
    if (!sink->rules.ordered)
      dispatcher().blocked_keys.forget_sink(sink->id());
    if (sink->rules.dead_letters_block)
      dispatcher().dead_letter_read.restart();
    if (sink->fingerprint != 0)
      worker_stops_altered(sink);
    sink->fingerprint = fingerprint;
    sink->open_error[0] = '\0';
    if (sink->state == SINK_MISCONFIGURED)
      worker_sink_reopen(sink);
    worker_sink_close(sink, SINK_CLOSED, CLOSE_GRACE_MS);
  }
}

bool worker_sinks_reload(void) {
  Assert(server_is_worker && IsTransactionState());
  static uint64 reload = 0;
  int n;

  if (!stale)
    return false;
  stale = false;
  reload++;
  ob_set_networks(setting_allow_networks);
  OUTBOX_FAULT_POINT("sinks.before_reload");
  RouteSink *routes = route_sinks(&n);
  follow_renames(routes, n);
  for (int i = 0; i < n; i++)
    if (!routes[i].is_manual) /* its events are claimed in SQL */
      reload_one(&routes[i], reload);
  for (int i = 0; i < n_list; i++)
    if (list[i]->reload != reload)
      worker_sink_close(list[i], SINK_DROPPED, CLOSE_GRACE_MS);
  OUTBOX_FAULT_POINT("sinks.reloaded");
  worker_stops_reload();
  return true;
}

/* The other workers of the database send to the same endpoint. */
static void share_sink(WorkerSink *sink) {
  ob_sink_order order = {};

  order.index = worker_index;
  order.of = Max(dispatcher().shards.workers(), 1);
  order.rate_clock = sink->stats ? &sink->stats->turns : NULL;
  sink_tell(sink, order);
}

/* The number of workers may have changed. */
static void share_sinks(void) {
  static int told = 0;

  if (told == dispatcher().shards.workers())
    return;
  told = dispatcher().shards.workers();
  for (int i = 0; i < n_list; i++)
    if (list[i]->state == SINK_OPEN)
      share_sink(list[i]);
}

static void open_sink(SinkEntry *entry, Moment now) {
  if (!sink_open(engine, &entry->sink, &entry->given, now))
    return;
  share_sink(&entry->sink);
  entry->sink.cursor->early_retry.end_pause(); /* the sink that is opened anew knows of no pause */
}

ob_probe *worker_sink_probe(const WorkerSink *sink, int timeout_ms, bool send, const char *topics, ob_error *error) {
  return sink_probe(engine, sink, &((const SinkEntry *)sink)->given, timeout_ms, send, topics, error);
}

static void drop_entry(int i) {
  SinkEntry *entry = (SinkEntry *)list[i];

  OUTBOX_SIGNAL_POINT("sink.forgotten");
  dispatcher().blocked_keys.forget_sink(entry->sink.id());
  if (entry->sink.stats)
    shared_sink_worker_left(entry->sink.stats, worker_index, true);
  if (worker_index == 0) {
    shared_sink_forget(MyDatabaseId, entry->sink.id());
    (void)crash_forget(entry->sink.id());
  }
  if (entry->given.context)
    MemoryContextDelete(entry->given.context);
  dispatcher().sinks.remove(&entry->sink);
  last_found = NULL;
  hash_search(sinks, entry->sink.name, HASH_REMOVE, NULL);
  list[i] = list[--n_list];
}

/* When the worker gives its slot up: what is on its way may still be answered. */
void worker_sinks_close(void) {
  for (int i = 0; i < n_list; i++)
    worker_sink_close(list[i], SINK_CLOSED, (int)list[i]->common.longest_answer_ms);
}

static Moment open_at(const WorkerSink *sink) {
  return sink->state == SINK_MISCONFIGURED ? Max(sink->reopen_at, sink->open_at) : sink->open_at;
}

void worker_sinks_refresh(Now now, bool may_open, bool waits_for_standby) {
  careful().read(); /* if an error has ended the last round */
  share_sinks();
  for (int i = n_list - 1; i >= 0; i--) {
    WorkerSink *sink = list[i];
    if (sink_is_closing(sink->state)) { /* it may give up events in flight */
      sink->handle->kind->sink_get_status(sink->handle, &sink->status);
      sink_signals_count(sink);
    }
    if (sink_is_closing(sink->state) && sink->handle->kind->sink_closed(sink->handle)) {
      OUTBOX_SIGNAL_POINT("sink.closed");
      sink->handle = NULL;
      sink_change_state(sink, closed_after(sink->state));
    }
    if (sink->state == SINK_DROPPED) {
      if (sink->in_flight == 0 && sink->unrecorded == 0)
        drop_entry(i);
      continue;
    }
    if (sink_is_to_open(sink->state) && sink->in_flight == 0 && now.moment >= open_at(sink) && may_open)
      open_sink((SinkEntry *)sink, now.moment);
    sink->credit = 0;
    if (sink->state == SINK_OPEN) {
      sink->handle->kind->sink_get_status(sink->handle, &sink->status);
      library_text(sink->status.last_error);
      sink->credit = careful().credit((int)Min(sink->status.credit, (uint32)INT_MAX), now.moment);
      sink_signals_count(sink);
      early_retry_look(sink, now.wall);
      worker_stops_look(sink, now);
    }
    sink_signals_publish(sink, worker_index, now.wall, waits_for_standby);
  }
  dispatcher().give_places(setting_max_in_flight, (int64)setting_max_in_flight_memory * 1024);
}

void worker_sinks_leave(void) {
  for (int i = 0; i < n_list; i++)
    if (list[i]->stats)
      list[i]->stats->in_flight[worker_index % OUTBOX_COUNTED_WORKERS] = list[i]->in_flight;
}

WorkerSink *worker_sink_find(const char *name, int length) {
  char key[NAMEDATALEN];

  if (length >= NAMEDATALEN)
    return NULL;
  if (last_found && strncmp(last_found->name, name, length) == 0 && last_found->name[length] == '\0')
    return last_found;
  memcpy(key, name, length);
  key[length] = '\0';
  WorkerSink *sink = (WorkerSink *)hash_search(sinks, key, HASH_FIND, NULL);
  if (sink)
    last_found = sink;
  return sink;
}

WorkerSink *worker_sink_of(Oid oid) {
  return static_cast<WorkerSink *>(dispatcher().sinks.find(oid));
}

std::span<WorkerSink *> worker_sinks_all(void) {
  return {list, (size_t)n_list};
}

static bool waits_for_credit(const WorkerSink *sink) {
  return sink->state == SINK_OPEN && sink->status.credit == 0 && sink->status.retry_in_ms >= 0;
}

Moment worker_sinks_next_moment(Moment now) {
  Moment moment = careful().next_moment(now);

  for (int i = 0; i < n_list; i++) {
    WorkerSink *sink = list[i];
    if (sink_is_to_open(sink->state))
      moment = Min(moment, open_at(sink));
    if (waits_for_credit(sink))
      moment = Min(moment, moment_after(now, sink->status.retry_in_ms + 1));
  }
  return moment;
}

bool worker_sink_is_ready(const WorkerSink *sink) {
  return sink->state == SINK_OPEN && !waits_for_credit(sink);
}
