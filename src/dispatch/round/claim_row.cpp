/*
 * claim_row.cpp: a row that a scan came across. First: is it this worker's? Then classify_row.h decides. The event is
 * made from the row last, because that costs most.
 */
#include "dispatch/round/claim_round.h"

namespace dispatch {

static RowDecision skip_row(const char *reason) {
  return {RowVerdict::SKIP, reason, 0};
}

RowDecision ClaimRound::pass_foreign(const ReadRow &row) {
  if (row.sink && !row.our_origin)
    row.sink->cursor->foreign_row_passed(row.facts.position);
  return skip_row(!row.routed           ? "no sink takes it"
                  : row.sink == nullptr ? "its sink is not open here"
                  : !row.our_origin     ? "another cluster or database enqueued it"
                                        : "another worker has its key");
}

RowDecision ClaimRound::decide(const ReadRow &row, RowScan scan) {
  /* An unrouted event that a sink takes: it was enqueued before the sink was made and committed after, or it was
   * locked when it was to be routed. The sinks that take it claim no later event until it is routed. */
  if (!row.routed && row.our_origin && port_.is_to_be_routed(row) && (scan == RowScan::MAIN || scan == RowScan::LATE))
    return {RowVerdict::STOP, "it is to be routed first", 0};
  if (!is_ours(row))
    return pass_foreign(row);
  RoundSink &sink = *row.sink;
  sink.cursor->lower_watermark(row.facts.position);
  if (row.facts.redriven && row.facts.key_hash != 0 && sink.rules.ordered)
    d_.redrive_order.know(d_.in_flight);
  RowDecision decision = classify_row(d_, row.facts, sink, scan);
  if (decision.verdict != RowVerdict::CLAIM)
    return decision;
  InFlightEvent *event = port_.claim(row, &decision.reason);
  if (event == nullptr)
    return skip_row(decision.reason);
  d_.event_claimed(event);
  return decision;
}

RowVerdict ClaimRound::classify(const ReadRow &row, RowScan scan) {
  const RowDecision decision = decide(row, scan);

  port_.row_decided(row, decision);
  return decision.verdict;
}

}  // namespace dispatch
