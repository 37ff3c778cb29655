/*
 * session_events.cpp: a ring of ids, each with the transaction or subtransaction that wrote the row. PostgreSQL knows
 * how that ended, so no callback at its end is needed.
 */
#include "server/enqueue/session_events.h"

extern "C" {
#include "access/xact.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/xid8.h"
}

#define MAX_EVENTS 1024

typedef struct Known {
  pg_uuid_t id;
  FullTransactionId xact; /* invalid: committed */
} Known;

static Known *ring = NULL; /* of the session; NULL until it enqueues */
static uint32 added = 0;

static void add(const pg_uuid_t *id, FullTransactionId xact) {
  if (ring == NULL)
    ring = (Known *)MemoryContextAlloc(TopMemoryContext, sizeof(Known) * MAX_EVENTS);
  Known *event = &ring[added++ % MAX_EVENTS];
  event->id = *id;
  event->xact = xact;
}

void session_events_add(const pg_uuid_t *id) {
  add(id, GetCurrentFullTransactionId());
}

void session_events_add_committed(const pg_uuid_t *id) {
  const SessionEvent known = session_events_find(id);

  if (known == SESSION_EVENT_UNKNOWN || known == SESSION_EVENT_ROLLED_BACK)
    add(id, InvalidFullTransactionId);
}

static SessionEvent outcome(FullTransactionId xact) {
  LOCAL_FCINFO(call, 1);

  if (!FullTransactionIdIsValid(xact))
    return SESSION_EVENT_COMMITTED;
  InitFunctionCallInfoData(*call, NULL, 1, InvalidOid, NULL, NULL);
  call->args[0].value = FullTransactionIdGetDatum(xact);
  call->args[0].isnull = false;
  Datum said = pg_xact_status(call);
  if (call->isnull) /* so long ago that PostgreSQL has forgotten it */
    return SESSION_EVENT_UNKNOWN;
  const char *status = TextDatumGetCString(said);
  return strcmp(status, "committed") == 0     ? SESSION_EVENT_COMMITTED
         : strcmp(status, "in progress") == 0 ? SESSION_EVENT_OPEN
                                              : SESSION_EVENT_ROLLED_BACK;
}

/* An INSERT of the same id that was rolled back says nothing about an earlier one that was committed. */
SessionEvent session_events_find(const pg_uuid_t *id) {
  SessionEvent found = SESSION_EVENT_UNKNOWN;

  for (uint32 i = 0; i < Min(added, (uint32)MAX_EVENTS); i++) {
    const Known *event = &ring[(added - 1 - i) % MAX_EVENTS];
    if (memcmp(&event->id, id, sizeof *id) != 0)
      continue;
    const SessionEvent one = outcome(event->xact);
    if (one == SESSION_EVENT_COMMITTED || one == SESSION_EVENT_OPEN)
      return one;
    if (found == SESSION_EVENT_UNKNOWN)
      found = one;
  }
  return found;
}
