/*
 * recording.h: when ended events are recorded, which of them by the next transaction, and what becomes of their rows.
 * They are gathered for 20 ms, or up to 2,000 of them, since no event waits for their recording. An event whose
 * row another session has locked is recorded later; it is never sent again. After a transaction that a row made fail,
 * such as by a user's trigger, each sink has transactions of its own, in turns. The row is found by halving the
 * batch, and then tried alone after ever longer pauses. After STUCK such rows without a success the sink's recording
 * is stuck: one row of the sink is tried after ever longer pauses, until one is recorded.
 */
#pragma once

#include <algorithm>

#include "dispatch/in_flight.h"
#include "dispatch/memory.h"
#include "dispatch/time.h"
#include "dispatch/types.h"

namespace dispatch {

/* The result of locking the row of an ended event. */
enum class FoundRow : uint8_t {
  OURS,   /* locked by this transaction */
  LOCKED, /* by another session, which may change it */
  GONE    /* deleted or moved by a user, or given to another sink or key */
};

/* Does the row of a delivered event stay in the table? */
enum class Retention : uint8_t {
  NONE,
  KEPT,
  UNDECIDED /* the partition that it moves to is about to be made */
};

/* The fate of the row of an ended event. */
enum class Disposition : uint8_t {
  DELETE,      /* delivered */
  KEEP,        /* delivered, and kept as SENT */
  RETRY,       /* it gets the time of its next attempt */
  DEAD_LETTER, /* it moves to FAILED */
  FORGET,      /* it is gone: there is nothing to record */
  LATER        /* a later transaction decides */
};

/* Has a user changed the key of the row while its event was in flight? Then a failure is not recorded, as if the row
 * was gone, and the row is read again: it may be marked for its new key, or be another worker's. A delivery is
 * recorded. `key_hash`: what the row says. */
bool has_other_key(const InFlightEvent *event, uint64_t key_hash, bool ordered) noexcept;

Disposition disposition_of(const InFlightEvent *event, FoundRow found, Retention retention) noexcept;

/* When a failed event is tried again. `delay_ms` is that of the sink's schedule, for an event whose destination asked
 * for no other. */
WallTime next_attempt(const InFlightEvent *event, int64_t delay_ms, WallTime now) noexcept;

class Recording {
public:
  static constexpr int BATCH_MAX = 20000;
  static constexpr int64_t LOCKED_ROW_PAUSE_MS = 200;
  static constexpr int STUCK = 8;

  /* Nothing of the sink can be recorded, as far as is known. It should send one event at a time, since a restart
   * sends all of that again. */
  static bool is_stuck(const SinkInFlight *sink) noexcept { return sink->recording.failures >= STUCK; }
  /* An earlier worker found the sink so. */
  static void begin_stuck(SinkInFlight *sink) noexcept { sink->recording.failures = STUCK; }

  /* One more has ended. */
  void ended(const InFlightEvent *event, Moment now) noexcept;
  /* One has failed, and that may be its sink's fault: it is recorded after a pause, unless that turns out meanwhile.
   */
  void suspect_ended(InFlightEvent *event, Moment now) noexcept;

  /* Suspects will not be recorded any more, and `in_flight` already lacks them. Without this the loop would find
   * their recording due, with nothing to record, and go round without a pause for as long as the sink is down. */
  void suspects_taken(const InFlight &in_flight) noexcept;

  /* Some are gathered: more of them are no reason to wake up at once. */
  bool is_gathering() const noexcept { return n_gathered_ > 0; }
  /* They should be recorded now; at the latest then (MOMENT_NEVER = nothing is to be recorded). */
  bool is_due(Moment now) const noexcept;
  Moment next_moment() const noexcept { return next_moment_; }

  /* In a transaction. At most so many events may be chosen. */
  int begin(const InFlight &in_flight, Moment now) noexcept;

  /* The events to be recorded, into `batch`, which has room for what begin() said; returns how many. Those that were
   * not delivered come first, and there are `*n_failed` of them: which keys are blocked is known once they are
   * recorded. */
  int choose(const InFlight &in_flight, InFlightEvent **batch, int *n_failed) noexcept;

  /* A chosen event whose row was found so: can it be recorded in this transaction? If not, it is put off for a pause,
   * which is longer the more such events there are. */
  bool is_ready(InFlightEvent *event, FoundRow found, Retention retention) noexcept;

  /* The running transaction records a failure of this event. */
  void failure_recorded(const InFlightEvent *event) noexcept;
  /* The first failure of the key that it has recorded; POSITION_NONE = there is none. Many draining keys ask, so the
   * failures are sorted once. */
  int64_t first_failure(const KeyId &key) noexcept;

  /* The transaction has committed, or was rolled back, and `in_flight` already shows it. */
  void committed(InFlight &in_flight) noexcept;
  void rolled_back(const InFlight &in_flight) noexcept;

  struct Failure {
    bool try_others;              /* at once: fewer rows, or those of another sink. False: none were chosen */
    const InFlightEvent *culprit; /* its row alone made the transaction fail; NULL when it is not known */
  };
  /* The transaction failed because of its rows. */
  Failure failed(InFlight &in_flight) noexcept;

  /* A row that makes transactions fail is looked for, or waits for its next try. */
  bool in_trouble() const noexcept { return apart_; }

private:
  struct RecordedFailure {
    KeyId key;
    int64_t position;
    auto operator<=>(const RecordedFailure &) const = default;
  };

  bool is_put_off(const InFlightEvent *event) const noexcept {
    return std::max(event->record_after, event->sink->recording.after) > began_;
  }
  const SinkInFlight *next_sink(const InFlight &in_flight) const noexcept;
  int choose_together(const InFlight &in_flight, InFlightEvent **batch) noexcept;
  void sink_recorded(InFlight &in_flight, SinkInFlight *sink) noexcept;
  bool any_trouble(const InFlight &in_flight) const noexcept;

  int n_gathered_ = 0;
  Moment next_moment_ = MOMENT_NEVER;
  Moment began_ = MOMENT_NONE;       /* the transaction */
  int n_ended_ = 0;                  /* when it began */
  bool apart_ = false;               /* each sink has transactions of its own */
  uint64_t turn_ = 0;                /* the number of these transactions */
  bool alone_ = false;               /* the last batch was a row that has failed alone before */
  int n_put_off_ = 0;                /* in this transaction */
  int n_chosen_ = 0;                 /* in this transaction, to be recorded */
  InFlightEvent *chosen_ = nullptr;  /* the first of them */
  SinkInFlight *sink_ = nullptr;     /* of all of them; NULL: of several */
  Vector<RecordedFailure> failures_; /* of this transaction */
  bool failures_are_sorted_ = true;
};

}  // namespace dispatch
