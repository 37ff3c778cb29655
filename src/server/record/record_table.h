/*
 * record_table.h: the table outbox.events as the port of a round of recording (dispatch/round/record_port.h).
 * lock_ended.cpp locks rows, record_rows.cpp writes them, and overtaken_rows.cpp finds and marks earlier ones.
 */
#pragma once

#include "server/base/clock.h"
#include "server/sinks/failing_port.h"
#include "server/sinks/worker_sinks.h"

#include "dispatch/round/record_port.h"

class RecordTable final : public FailingPort<dispatch::RecordPort> {
public:
  void begin(Now now) { now_ = now; }

  dispatch::Retention retention_of(const dispatch::InFlightEvent &event) override;
  int64_t retry_delay_ms(const dispatch::InFlightEvent &event) override;
  void flush_recordings() override;

  size_t delete_unmodified(std::span<dispatch::InFlightEvent *> events) override;
  void
  lock_ended(std::span<dispatch::InFlightEvent *const> events,
             dispatch::FunctionRef<void, dispatch::InFlightEvent *, dispatch::FoundRow, const dispatch::RowHandle &>
                 visit) override;
  void write(dispatch::Disposition disposition, std::span<const dispatch::RowToWrite> rows) override;

  void find_earlier(std::span<const dispatch::SentKey> keys,
                    dispatch::FunctionRef<void, uint32_t, const dispatch::EarlierRow &> visit) override;
  void lock_earlier(std::span<dispatch::OvertakenRow> dead_letters,
                    std::span<dispatch::OvertakenRow> pending) override;
  void write_overtaken(dispatch::EarlierRowAction action, std::span<const dispatch::OvertakenRow> rows) override;

private:
  Now now_ = {}; /* of the transaction */
};
