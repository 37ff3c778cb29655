/*
 * recording.cpp: a batch that fails is halved, and not split into single rows: 20,000 rows with a bad one take 15 to
 * 28 failed transactions. The rows that are known to be bad and the others go in turns, so that neither wait for the
 * others for long.
 * Fewer transactions of the worker's also means that fewer of its asynchronous commits share a commit-log group with
 * applications' transactions, whose flush the worker would have to wait for.
 */
#include "dispatch/recording.h"

#include <algorithm>
#include <new>

namespace dispatch {

static constexpr int64_t GATHER_MS = 20;
static constexpr int GATHER_MAX = 2000;
static constexpr int64_t SUSPECT_PAUSE_MS = 250;
static constexpr int64_t FIRST_TROUBLE_PAUSE_MS = 1000; /* doubles with each failure, to a minute */
static constexpr int LAST_DOUBLING = 6;
static constexpr int PUT_OFF_PER_MS = 10; /* so many locked rows make the pause 1 ms longer */
static constexpr WallTime MILLISECOND = 1000;

bool has_other_key(const InFlightEvent *event, uint64_t key_hash, bool ordered) noexcept {
  return ordered && event->outcome != Outcome::SENT && event->key_hash != key_hash;
}

Disposition disposition_of(const InFlightEvent *event, FoundRow found, Retention retention) noexcept {
  if (found == FoundRow::LOCKED)
    return Disposition::LATER;
  if (found == FoundRow::GONE)
    return Disposition::FORGET;
  if (event->outcome == Outcome::REJECTED)
    return Disposition::DEAD_LETTER;
  if (event->outcome != Outcome::SENT)
    return Disposition::RETRY;
  return retention == Retention::NONE   ? Disposition::DELETE
         : retention == Retention::KEPT ? Disposition::KEEP
                                        : Disposition::LATER;
}

/* Not in this very round, in which the event is still in flight. */
WallTime next_attempt(const InFlightEvent *event, int64_t delay_ms, WallTime now) noexcept {
  const int64_t delay = event->retry_after_ms >= 0 ? event->retry_after_ms : delay_ms;
  return std::max(event->ended_at + delay * MILLISECOND, now + MILLISECOND);
}

void Recording::ended(Moment now) noexcept {
  n_gathered_++;
  next_moment_ = std::min(next_moment_, moment_after(now, GATHER_MS));
}

void Recording::suspect_ended(InFlightEvent *event, Moment now) noexcept {
  event->suspect = true;
  event->record_after = moment_after(now, SUSPECT_PAUSE_MS);
  next_moment_ = std::min(next_moment_, event->record_after);
}

/* The others may have been gathered until then. */
void Recording::suspects_taken(const InFlight &in_flight) noexcept {
  next_moment_ = in_flight.next_recording();
  if (in_flight.ended() == 0)
    n_gathered_ = 0;
}

bool Recording::is_due(Moment now) const noexcept {
  return n_gathered_ >= GATHER_MAX || next_moment_ <= now;
}

int Recording::begin(const InFlight &in_flight, Moment now) noexcept {
  began_ = now;
  n_put_off_ = n_chosen_ = 0;
  failures_.clear();
  const int max = std::min(in_flight.ended(), limit_);
  try {
    failures_.reserve(static_cast<size_t>(max));
  } catch (const std::bad_alloc &) {
    return -1;
  }
  return max;
}

void Recording::failure_recorded(const InFlightEvent *event) noexcept {
  failures_.push_back({{event->sink->id, event->key_hash}, event->position});
  failures_are_sorted_ = false;
}

int64_t Recording::first_failure(const KeyId &key) noexcept {
  if (!failures_are_sorted_)
    std::sort(failures_.begin(), failures_.end());
  failures_are_sorted_ = true;
  const auto found =
      std::lower_bound(failures_.begin(), failures_.end(), key,
                       [](const RecordedFailure &failure, const KeyId &of) { return failure.key < of; });
  return found != failures_.end() && found->key == key ? found->position : POSITION_NONE;
}

int Recording::choose(const InFlight &in_flight, InFlightEvent **batch, int *n_failed) noexcept {
  const int max = std::min(in_flight.ended(), limit_);
  InFlightEvent *troubled = nullptr;
  int n = 0;

  n_troubled_ = 0;
  for (InFlightEvent *event = in_flight.first_ended(); event; event = event->next) {
    const bool due = !is_put_off(event);
    if (event->record_failures > 0) {
      n_troubled_++;
      troubled = due ? event : troubled;
    } else if (due && n < max) {
      batch[n++] = event;
    }
  }
  alone_ = troubled && (n == 0 || !alone_);
  if (alone_) {
    n = 0;
    batch[n++] = troubled;
  }
  *n_failed = static_cast<int>(
      std::partition(batch, batch + n, [](const InFlightEvent *event) { return event->outcome != Outcome::SENT; }) -
      batch);
  n_chosen_ = n;
  chosen_ = n > 0 ? batch[0] : nullptr;
  return n;
}

bool Recording::is_ready(InFlightEvent *event, FoundRow found, Retention retention) noexcept {
  if (is_put_off(event))
    return false;
  if (disposition_of(event, found, retention) != Disposition::LATER)
    return true;
  event->record_after = moment_after(began_, LOCKED_ROW_PAUSE_MS + n_put_off_++ / PUT_OFF_PER_MS);
  return false;
}

void Recording::committed(const InFlight &in_flight) noexcept {
  failures_.clear();
  n_gathered_ = 0;
  next_moment_ = in_flight.next_recording();
  limit_ = std::min(limit_ * 2, BATCH_MAX);
  if (n_troubled_ == 0)
    return;
  n_troubled_ = 0;
  for (const InFlightEvent *event = in_flight.first_ended(); event; event = event->next)
    n_troubled_ += event->record_failures > 0;
}

void Recording::rolled_back(const InFlight &in_flight) noexcept {
  failures_.clear();
  next_moment_ = in_flight.next_recording();
}

Recording::Failure Recording::failed(InFlight &in_flight) noexcept {
  if (n_chosen_ > 1) {
    limit_ = n_chosen_ / 2;
    return {true, nullptr};
  }
  if (n_chosen_ == 0)
    return {false, nullptr};
  chosen_->record_after =
      moment_after(began_, FIRST_TROUBLE_PAUSE_MS << std::min<int>(chosen_->record_failures, LAST_DOUBLING));
  const bool first_time = in_flight.record_failed(chosen_);
  n_troubled_ += first_time;
  /* When there are others, it may be all of them. */
  return {first_time && n_troubled_ == 1, chosen_};
}

}  // namespace dispatch
