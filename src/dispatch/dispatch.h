/*
 * dispatch.h: one object that owns all decision state of one worker. Each part is a class with a header and unit
 * tests of its own. The server creates the object when a worker starts, keeps a pointer for the life of the process
 * and calls the parts. Server code never constructs, copies or destroys such an object, since longjmp skips
 * destructors.
 */
#pragma once

#include "dispatch/blocked_keys.h"
#include "dispatch/blocker_check.h"
#include "dispatch/dead_letter_read.h"
#include "dispatch/idle_exit.h"
#include "dispatch/in_flight.h"
#include "dispatch/key_filter.h"
#include "dispatch/late_commits.h"
#include "dispatch/linger.h"
#include "dispatch/locked_rows.h"
#include "dispatch/main_scan.h"
#include "dispatch/marks.h"
#include "dispatch/out_of_order.h"
#include "dispatch/recording.h"
#include "dispatch/redrive_order.h"
#include "dispatch/refusals.h"
#include "dispatch/rescan_cursor.h"
#include "dispatch/round.h"
#include "dispatch/round_memory.h"
#include "dispatch/round_sink.h"
#include "dispatch/sent_day.h"
#include "dispatch/shards.h"

namespace dispatch {

/* How an event ended, as its destination says. */
struct Completion {
  Outcome outcome;
  int64_t retry_after_ms; /* -1 = by the schedule of its sink */
  const char *error;      /* NULL = none */
  int32_t max_refusals;   /* RETRY: the last of so many that say so is the last attempt; 0 = no limit of its own */
  bool suspect;           /* RETRY: it may be the sink's fault */
  bool slow_retry;        /* RETRY: not within seconds */
};

struct Dispatch {
  BlockedKeys blocked_keys;
  BlockerCheck blocker_check;
  KeyFilter dead_letter_keys; /* keys of dead letters and of redriven rows */
  DeadLetterRead dead_letter_read;
  IdleExit idle_exit;
  InFlight in_flight;
  LateCommits late_commits;
  Linger linger;
  LockedRows locked_rows;
  MainScan main_scan{sinks};
  Marks marks;
  OutOfOrder out_of_order;
  Recording recording;
  RedriveOrder redrive_order;
  Refusals refusals;
  RescanCursor rescan_cursor;
  Round round = {};
  SentDay sent_day;
  Shards shards;
  RoundSinks sinks;
  RoundMemory round_memory;
  bool places_exhausted = false; /* SinkShares::exhausted() of the last give_places() */

  /* The credits of the sinks are known: says how much each may claim. `max_events` and `max_bytes`: how much the
   * worker may hold in flight. */
  void give_places(int max_events, int64_t max_bytes) noexcept;

  /* The next claim may wait until then (linger.h). */
  Moment lingers_until() const noexcept { return linger.until(in_flight.running()); }

  /* Between rounds: computes the low watermark of each sink anew. */
  void raise_watermarks() noexcept;

  /* One round of claiming, of at most `free_events` events and `free_bytes` bytes. Call commit_round() when the
   * round's transaction has committed: its changes stay. roll_back_round() undoes them: the claimed events were given
   * back before, and each scan continues where the round began. */
  void begin_round(Now now, int free_events, int64_t free_bytes) noexcept;
  void commit_round() noexcept;
  void roll_back_round() noexcept;

  /* The event blocks its key, unless an earlier event does. A blocker that it replaces is put on the list of locked
   * rows, to be read again: its own row is not marked, but the rows behind it are. */
  void block_key(SinkId sink, uint64_t key_hash, int64_t position) noexcept;

  /* Call it first in a round. Marks the events that came back unsent and whose key is blocked. Events whose key is
   * free by now get group 0 and no mark: the caller must set their sinks' cursors back to them. */
  void mark_returned() noexcept;

  /* A row was claimed: counts its event against the round's limits. */
  void event_claimed(const InFlightEvent *event) noexcept;

  /* An event that was submitted is returned and not recorded: it was not tried, or it is deferred and an earlier
   * event blocks its key. Only that one gets a time for its next attempt: with one for each, the key would wait for
   * the latest. */
  bool is_returned(const InFlightEvent *event, Outcome outcome, bool ordered) const noexcept;
  /* It has ended, and is to be recorded. Its key is blocked or goes on from here, before anything more of it is
   * claimed. */
  void event_ended(InFlightEvent *event, const Completion &completion, const SinkRules &rules, Now now) noexcept;

  /* The sink was down: its suspects are not recorded, and are returned as a list. */
  InFlightEvent *take_suspects(const SinkInFlight *sink) noexcept;

  /* In a transaction that records: the row of a chosen event was found so. What becomes of it; unless that is LATER,
   * the event counts as recorded. The key of an event that is gone waits no more. */
  Disposition settle(InFlightEvent *event, FoundRow found, Retention retention) noexcept;

  /* Can a delivered event have overtaken an earlier row of its key? False for almost all. */
  bool may_be_out_of_order(const InFlightEvent *sent) const noexcept {
    return sent->key_hash != 0 && (dead_letter_keys.possible(sent->key_hash) || !dead_letter_read.all_known() ||
                                   blocked_keys.find(sent->sink->id, sent->key_hash) != nullptr);
  }

  /* An event becomes a dead letter, which blocks its key where its sink says so; else the key goes on. */
  void dead_letter(SinkId sink, uint64_t key_hash, int64_t position, bool blocks) noexcept;

  /* An unmarked redriven row stands in the table, as the worker reads it when it begins, or gains shards or a sink.
   * It blocks its key, whichever scan reads first. */
  void redriven_row(SinkId sink, uint64_t key_hash, int64_t position) noexcept;

  /* The group with which a failed event is marked, because an earlier one blocks its key; 0 = it is not. */
  int64_t group_behind_blocker(const InFlightEvent *event) const noexcept;

  /* That transaction has committed: what it recorded is over, and counts as unflushed until `lsn` is safe; or it was
   * rolled back, and nothing was recorded. */
  void commit_recording(uint64_t lsn) noexcept;
  void roll_back_recording() noexcept;

private:
  Outcome outcome_of(const InFlightEvent *event, const Completion &completion, const SinkRules &rules) noexcept;
};

Dispatch *create() noexcept;

}  // namespace dispatch
