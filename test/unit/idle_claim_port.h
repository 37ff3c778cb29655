/* idle_claim_port.h: the port of a round of claiming that finds nothing and writes nothing. A test overrides what it
 * is about. */
#pragma once

#include "dispatch/round/claim_round.h"

namespace dispatch {

class IdleClaimPort : public ClaimPort {
public:
  void at(const char *) override {}
  int free_events() override { return 1000; }
  int64_t free_bytes() override { return 100'000; }
  void take_snapshot() override {}
  void check_sinks() override {}
  TransactionSnapshot transactions() override { return {nullptr, 0, 10, 10}; }
  uint64_t oldest_running() override { return 10; }
  void read(const Read &, RowVisitor) override {}
  void find_late(std::span<const uint64_t>, int64_t, FunctionRef<void, uint64_t, int64_t>) override {}
  int read_queue(RescanPlace, std::span<QueueEntry>) override { return 0; }
  void delete_from_queue(std::span<const RowHandle>) override {}
  bool any_news(RescanPlace, int64_t, std::span<const uint64_t>) override { return false; }
  bool is_to_be_routed(const ReadRow &) override { return false; }
  bool routing_is_stuck(int64_t) override { return false; }
  InFlightEvent *claim(const ReadRow &, const char **) override { return nullptr; }
  void close_ranks(RoundSink &) override {}
  void lock(std::span<const Mark>, FunctionRef<void, InFlightEvent **, RowLocked>,
            FunctionRef<void, const Mark &, RowLocked, const RowHandle &>) override {}
  void write_marks(std::span<const MarkToWrite>) override {}
  void row_decided(const ReadRow &, const RowDecision &) override {}
  void event_returned(const InFlightEvent &, const char *) override {}
  void returned_event_blocked(const Mark &, int64_t) override {}
};

}  // namespace dispatch
