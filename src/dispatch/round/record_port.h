/*
 * record_port.h: what a round of recording needs of the world in which the table is (see claim_port.h): locks of the
 * rows of ended events, and writes. The order in which it asks stands in record_round.h.
 */
#pragma once

#include "dispatch/dispatch.h"
#include "dispatch/fault_point.h"
#include "dispatch/round/function_ref.h"

namespace dispatch {

class RecordPort {
public:
  /* A place at which tests let the round fail (OUTBOX_ROUND_POINT), by its name. A release does not call it. */
  virtual void at(const char *place) = 0;

  virtual Retention retention_of(const InFlightEvent &event) = 0;
  /* The delay before the next attempt, by the schedule of the event's sink. */
  virtual int64_t retry_delay_ms(const InFlightEvent &event) = 0;

  /* Deletes the rows that nobody has changed or locked since they were claimed. Moves their events to the front, and
   * returns their number. */
  virtual size_t delete_unmodified(std::span<InFlightEvent *> events) = 0;
  /* Locks the rows of these events, which may have been changed or moved, and visits each, in any order: `handle` is
   * its present place. A row counts as gone unless still_its_row(). Nothing waits for a lock. */
  virtual void lock_ended(std::span<InFlightEvent *const> events,
                          FunctionRef<void, InFlightEvent *, FoundRow, const RowHandle &> visit) = 0;
  /* Writes what becomes of these rows: DELETE, KEEP, DEAD_LETTER or RETRY. */
  virtual void write(Disposition disposition, std::span<const RowToWrite> rows) = 0;

  /* Finds, with one snapshot of all tables, the earlier rows of these keys: dead letters, failing and redriven rows
   * below the last delivered event that are not yet marked as overtaken. */
  virtual void find_earlier(std::span<const SentKey> keys, FunctionRef<void, uint32_t, const EarlierRow &> visit) = 0;
  /* Sets `locked` and `handle` of each. Nothing waits for a lock. */
  virtual void lock_earlier(std::span<OvertakenRow> dead_letters, std::span<OvertakenRow> pending) = 0;
  /* Marks those that are locked. */
  virtual void write_overtaken(EarlierRowAction action, std::span<const OvertakenRow> rows) = 0;

  /* The list of recordings whose WAL is not yet flushed is full: flushes it, and says so to InFlight::unflushed. */
  virtual void flush_recordings() = 0;

protected:
  ~RecordPort() = default;
};

/* The row of an ended event was locked: is it still the one that was sent? A user may have given the event to another
 * sink or key while it was in flight: then it is still to be sent there. `key_hash`: of the row; any for a delivered
 * event. */
bool still_its_row(InFlightEvent *event, const RoundSink *sink, uint64_t key_hash) noexcept;

}  // namespace dispatch
