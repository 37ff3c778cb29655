/*
 * claim_table.h: the table outbox.events as the port of a round of claiming (dispatch/round/claim_port.h).
 * claim_reads.cpp reads with SPI, claim_event.cpp makes the events, and lock_claimed.cpp locks rows and marks them.
 */
#pragma once

#include "server/sinks/failing_port.h"
#include "server/sinks/worker_sinks.h"

#include "dispatch/round/claim_port.h"

extern "C" {
#include "utils/snapshot.h"
}

class ClaimTable final : public FailingPort<dispatch::ClaimPort> {
public:
  /* Once: rows of this origin are delivered. */
  void set_origin(int64 origin) { origin_ = origin; }

  /* Connects SPI for a round, and disconnects it. */
  void begin();
  void end();

  int free_events() override;
  int64_t free_bytes() override;

  void take_snapshot() override;
  void check_sinks() override;
  dispatch::TransactionSnapshot transactions() override;
  uint64_t oldest_running() override;

  void read(const dispatch::Read &read, dispatch::RowVisitor visit) override;
  void find_late(std::span<const uint64_t> transactions, int64_t upto,
                 dispatch::FunctionRef<void, uint64_t, int64_t> visit) override;
  int read_queue(dispatch::RescanPlace after, std::span<dispatch::QueueEntry> entries) override;
  void delete_from_queue(std::span<const dispatch::RowHandle> entries) override;
  bool any_news(dispatch::RescanPlace rescanned, int64_t cursor, std::span<const uint64_t> ended) override;

  bool is_to_be_routed(const dispatch::ReadRow &row) override;
  bool routing_is_stuck(int64_t position) override;

  dispatch::InFlightEvent *claim(const dispatch::ReadRow &row, const char **reason) override;
  void close_ranks(dispatch::RoundSink &sink) override;
  void lock(std::span<const dispatch::Mark> marks,
            dispatch::FunctionRef<void, dispatch::InFlightEvent **, dispatch::RowLocked> visit_event,
            dispatch::FunctionRef<void, const dispatch::Mark &, dispatch::RowLocked, const dispatch::RowHandle &>
                visit_mark) override;
  void write_marks(std::span<const dispatch::MarkToWrite> marks) override;

  void row_decided(const dispatch::ReadRow &row, const dispatch::RowDecision &decision) override;
  void event_returned(const dispatch::InFlightEvent &event, const char *reason) override;
  void returned_event_blocked(const dispatch::Mark &mark, int64_t blocker) override;

private:
  int64 origin_ = 0;
  Snapshot snapshot_ = InvalidSnapshot; /* of the running round; invalid until it is taken */
};
