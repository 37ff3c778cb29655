#include "maintenance.h"

extern "C" {
#include "access/xact.h"
#include "executor/spi.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
}

static const int MAINTAIN_EVERY_MS = 10 * 60 * 1000;
static const int RETRY_MS = 5000;

static bool routing_wanted = false;
static TimestampTz route_at = 0;
static TimestampTz maintain_at = 0;
static bool am_first = true;

void maintenance_routes_changed(void) {
  routing_wanted = true;
}

/* Runs one function of ours that returns bigint; -1 when it failed. */
static int64 call(const char *statement) {
  volatile int64 result = -1;
  MemoryContext context = CurrentMemoryContext;

  PG_TRY();
  {
    bool is_null;
    SetCurrentStatementStartTimestamp();
    StartTransactionCommand();
    PushActiveSnapshot(GetTransactionSnapshot());
    SPI_connect();
    if (SPI_execute(statement, false, 1) != SPI_OK_SELECT || SPI_processed != 1)
      elog(ERROR, "\"%s\" returned nothing", statement);
    result = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &is_null));
    SPI_finish();
    PopActiveSnapshot();
    CommitTransactionCommand();
  }
  PG_CATCH();
  {
    MemoryContextSwitchTo(context);
    HOLD_INTERRUPTS();
    EmitErrorReport();
    FlushErrorState();
    AbortCurrentTransaction();
    RESUME_INTERRUPTS();
  }
  PG_END_TRY();
  MemoryContextSwitchTo(context);
  return result;
}

void maintenance_run(TimestampTz now, bool first_worker) {
  am_first = first_worker;
  if (!first_worker)
    return;
  if (routing_wanted && now >= route_at) {
    int64 routed = call("SELECT outbox.route_waiting()");
    if (routed == 0)
      routing_wanted = false;
    route_at = routed < 0 ? TimestampTzPlusMilliseconds(now, RETRY_MS) : now;
  }
  if (now >= maintain_at) {
    int64 done = call("SELECT outbox.maintain()");
    maintain_at = TimestampTzPlusMilliseconds(now, done < 0 ? RETRY_MS : MAINTAIN_EVERY_MS);
  }
}

TimestampTz maintenance_next_moment(void) {
  if (!am_first)
    return DT_NOEND;
  return routing_wanted ? Min(route_at, maintain_at) : maintain_at;
}
