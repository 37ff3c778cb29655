/* events_in_flight.cpp: flushes the WAL of recordings before they fill half of outbox.max_in_flight. */
#include "server/inflight/events_in_flight.h"

#include "server/base/settings.h"
#include "server/storage/standby.h"

#include <limits.h>

extern "C" {
#include "access/xlog.h"
}

/* Forgets recordings whose WAL is flushed and confirmed by the synchronous standbys. */
static void settle_unflushed(int max_events) {
  dispatch::Unflushed &unflushed = in_flight().unflushed;

  if (unflushed.events() == 0)
    return;
  const XLogRecPtr lsn = unflushed.flush_wanted(max_events);
  if (lsn != InvalidXLogRecPtr)
    XLogFlush(lsn);
  unflushed.safe(standby_safe());
}

int64 in_flight_free_bytes(void) {
  return in_flight().free_bytes((int64)setting_max_in_flight_memory * 1024);
}

static int free_events(void) {
  return in_flight().free_events(setting_max_in_flight, (int64)setting_max_in_flight_memory * 1024);
}

int in_flight_free(void) {
  settle_unflushed(setting_max_in_flight);
  return free_events();
}

bool in_flight_is_full(void) {
  return free_events() == 0;
}

void in_flight_flush_recordings(void) {
  settle_unflushed(INT_MAX);
}
