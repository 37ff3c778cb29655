/* claim.cpp: runs rounds of claiming (dispatch/round/claim_round.h) with this server as their port. A round claims at
 * most 4 MB of events. */
#include "server/claim/claim.h"

#include "server/base/fault_point.h"
#include "server/base/is_worker.h"
#include "server/base/settings.h"
#include "server/claim/batches.h"
#include "server/claim/claim_table.h"
#include "server/enqueue/position.h"
#include "server/sinks/worker_sinks.h"

#include "dispatch/round/claim_round.h"

extern "C" {
#include "access/xact.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
}

static ClaimTable &port(void) {
  static ClaimTable the_port;

  return the_port;
}

dispatch::ClaimRound claim_round(void) {
  return {dispatcher(), port(), {.bytes = ROUND_BYTES, .poll_ms = setting_poll_interval}};
}

bool claim_has_news(void) {
  Assert(server_is_worker && IsTransactionState());
  port().begin();
  const bool news = claim_round().has_news();
  port().end();
  return news;
}

bool claim_events(Now now, bool *rescan) {
  Assert(server_is_worker && IsTransactionState());
  batches_begin();
  port().begin();
  const bool more = claim_round().run(now, rescan);
  port().end();
  return more;
}

void claim_init(int64 origin) {
  port().set_origin(origin);
  position_learn();
}

void claim_tell_error(const char *error) {
  for (const WorkerSink *sink : worker_sinks_all())
    if (sink->stats)
      shared_sink_error(sink->stats, error, GetCurrentTimestamp());
}
