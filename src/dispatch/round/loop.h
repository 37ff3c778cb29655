/*
 * loop.h: the loop of a worker: when it records and when it claims, in which transactions, what becomes of claimed
 * events before and after they are sent, and how long it sleeps. The worker and the simulator run this code, each
 * with its port.
 *
 *   collect completions -> one short transaction: record + claim -> commit -> submit -> sleep
 *
 * No transaction is open and no row is locked while events are sent.
 */
#pragma once

#include "dispatch/round/loop_port.h"

namespace dispatch {

class Loop {
public:
  Loop(Dispatch &decisions, LoopPort &port) : d_(decisions), port_(port) {}

  /* ---- for the worker, outside a transaction ---- */
  /* Once per wake-up. */
  void turn(Now now);
  /* One transaction. True when more can be claimed at once. */
  bool round_trip(Now now, bool record, bool claim);
  /* How long the worker may sleep if nothing wakes it. */
  int64_t sleep_ms(Now now);
  /* After each turn: the worker was idle for so long that it must exit. */
  bool exits_idle(Now now);
  /* Returns the events that are held for a standby. */
  void return_held();

  bool claims_wanted() const { return claims_wanted_; }
  bool rescan_wanted() const { return rescan_wanted_; }
  bool waits_for_standbys() const { return awaited_ != 0; }
  /* It does, and has returned the held events. */
  bool is_stalled() const { return waits_for_standbys() && !holds_events_; }
  /* The last recording failed because of its rows, and others are tried at once. */
  bool records_others() const { return record_others_; }

  /* ---- for the port ---- */
  void want_claims() { claims_wanted_ = true; }
  void want_rescan() { rescan_wanted_ = true; }
  /* An event ended so. One that is not in flight is passed. */
  void take(uint64_t ticket, const Completion &completion, Now now);
  /* Is the event the blocker of its key, for which the others wait in the table? That it has failed does not prove
   * it: it may have failed while its sink was unordered, or may drain with others after its former blocker has ended.
   */
  bool is_blocker(const InFlightEvent *event) const;

private:
  /* loop.cpp */
  void transact(Now now, bool record, bool claim);
  bool claim_was_full(bool claim) const;
  void discard_suspects();

  /* loop_submit.cpp */
  int submit_claimed();
  bool must_return(const InFlightEvent *event) const;
  void hand_over(RoundSink &sink, bool was_held);
  bool check_standbys(Moment now);
  void end_wait();

  /* loop_sleep.cpp */
  WallTime next_due();
  Idleness idleness(bool quiet);
  bool is_quiet();

  Dispatch &d_;
  LoopPort &port_;
  bool claims_wanted_ = true, rescan_wanted_ = true;
  bool polls_only_ = false; /* this turn claims only because of the poll */
  bool record_others_ = false;
  bool more_ = false; /* the running transaction found that more can be claimed at once */
  Task task_ = Task::CLAIM;
  Moment polled_at_ = MOMENT_NONE;

  /* The wait for synchronous standbys. */
  uint64_t awaited_ = 0; /* this WAL; 0 = there is no wait */
  Moment waits_since_ = MOMENT_NONE;
  bool holds_events_ = false, told_ = false;
  int64_t hold_ms_ = HOLD_MS;

  /* How long events are held. The time doubles when it was too short, so that a slow standby cannot stop delivery for
   * good. */
  static constexpr int64_t HOLD_MS = 1000, HOLD_MAX_MS = 60000;
};
static_assert(std::is_trivially_destructible_v<Loop>);

}  // namespace dispatch
