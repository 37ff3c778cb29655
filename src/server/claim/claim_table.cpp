/* claim_table.cpp: the snapshot of a round, and what the worker logs of it. */
#include "server/claim/claim_table.h"

#include "server/claim/unrouted.h"
#include "server/event/unreadable.h"
#include "server/inflight/decision_log.h"
#include "server/inflight/events_in_flight.h"
#include "server/storage/sql.h"

extern "C" {
#include "access/transam.h"
#include "utils/inval.h"
#include "utils/snapmgr.h"
}

using dispatch::RowVerdict;

void ClaimTable::begin() {
  snapshot_ = InvalidSnapshot;
  SPI_connect();
}

void ClaimTable::end() {
  UnregisterSnapshot(snapshot_);
  snapshot_ = InvalidSnapshot;
  SPI_finish();
}

int ClaimTable::free_events() {
  return in_flight_free();
}

int64_t ClaimTable::free_bytes() {
  return in_flight_free_bytes();
}

/* ---- transactions ------------------------------------------------------------------------------------------- */

void ClaimTable::take_snapshot() {
  snapshot_ = RegisterSnapshot(GetLatestSnapshot());
}

void ClaimTable::check_sinks() {
  AcceptInvalidationMessages();
  if (worker_sinks_stale())
    ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
                    errmsg_internal("sinks were changed while the round began")));
}

static uint64 next_xid(void) {
  return U64FromFullTransactionId(ReadNextFullTransactionId());
}

/* With epochs; allocated in the current memory context. */
dispatch::TransactionSnapshot ClaimTable::transactions() {
  const uint64 next = next_xid();
  uint64_t *running = (uint64_t *)palloc(sizeof(uint64_t) * Max(snapshot_->xcnt, 1));

  for (uint32 i = 0; i < snapshot_->xcnt; i++)
    running[i] = dispatch::xid_with_epoch(snapshot_->xip[i], next);
  return {running, snapshot_->xcnt, dispatch::xid_with_epoch(snapshot_->xmax, next), next};
}

uint64_t ClaimTable::oldest_running() {
  return dispatch::xid_with_epoch(snapshot_->xmin, next_xid());
}

/* ---- sinks -------------------------------------------------------------------------------------------------- */

static const char *name_of(const dispatch::RoundSink *sink) {
  return sink ? static_cast<const WorkerSink *>(sink)->name : NULL;
}

bool ClaimTable::is_to_be_routed(const dispatch::ReadRow &row) {
  const EventRow *event = (const EventRow *)row.of_port;

  return unreadable_find(event->position, event->xmin) == NULL && unrouted_saw(event);
}

bool ClaimTable::routing_is_stuck(int64_t position) {
  return unrouted_is_stuck(position);
}

/* ---- log ---------------------------------------------------------------------------------------------------- */

static Decision logged(RowVerdict verdict) {
  return verdict == RowVerdict::CLAIM   ? EVENT_CLAIMED
         : verdict == RowVerdict::BLOCK ? EVENT_BLOCKED
         : verdict == RowVerdict::STOP  ? EVENT_STOPPED
                                        : EVENT_PASSED;
}

void ClaimTable::row_decided(const dispatch::ReadRow &row, const dispatch::RowDecision &decision) {
  decision_log(logged(decision.verdict), row.facts.position, name_of(row.sink), decision.reason, decision.blocker);
}

void ClaimTable::event_returned(const InFlightEvent &event, const char *reason) {
  decision_log(EVENT_RETURNED, event.position, sink_of(&event)->name, reason, 0);
}

void ClaimTable::returned_event_blocked(const dispatch::Mark &mark, int64_t blocker) {
  decision_log(EVENT_BLOCKED, mark.position, name_of(dispatcher().sinks.find(mark.sink)), "its key is blocked",
               blocker);
}
