/*
 * recording.cpp: a batch that fails is halved, and not split into single rows: 20,000 rows with a bad one take 15 to
 * 28 failed transactions. The rows that are known to be bad and the others go in turns, and so do the sinks, so that
 * none wait for the others for long.
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

void Recording::ended(const InFlightEvent *event, Moment now) noexcept {
  apart_ = apart_ || event->sink->recording.failures > 0;
  n_gathered_++;
  next_moment_ = std::min(next_moment_, moment_after(now, GATHER_MS));
}

void Recording::suspect_ended(InFlightEvent *event, Moment now) noexcept {
  apart_ = apart_ || event->sink->recording.failures > 0;
  event->suspect = true;
  event->record_after = moment_after(now, SUSPECT_PAUSE_MS);
  next_moment_ = std::min(next_moment_, event->record_after);
}

/* The others may have been gathered until then. */
void Recording::suspects_taken(const InFlight &in_flight) noexcept {
  next_moment_ = in_flight.next_recording();
  if (in_flight.n_ended() == 0)
    n_gathered_ = 0;
}

bool Recording::is_due(Moment now) const noexcept {
  return n_gathered_ >= GATHER_MAX || next_moment_ <= now;
}

int Recording::begin(const InFlight &in_flight, Moment now) noexcept {
  began_ = now;
  n_put_off_ = n_chosen_ = 0;
  n_ended_ = in_flight.n_ended();
  failures_.clear();
  return std::min(in_flight.n_ended(), BATCH_MAX);
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

/* Of the sinks that have events to be recorded, the one whose last turn was longest ago. */
const SinkInFlight *Recording::next_sink(const InFlight &in_flight) const noexcept {
  const SinkInFlight *next = nullptr;
  for (const InFlightEvent *event : in_flight.ended())
    if (event->record_failures == 0 && (!next || event->sink->recording.turn < next->recording.turn) &&
        !is_put_off(event))
      next = event->sink;
  return next;
}

int Recording::choose_together(const InFlight &in_flight, InFlightEvent **batch) noexcept {
  const SinkInFlight *sink = apart_ ? next_sink(in_flight) : nullptr;
  const int limit = sink && sink->recording.limit > 0 ? sink->recording.limit : BATCH_MAX;
  const int max = std::min(in_flight.n_ended(), limit);
  int n = 0;

  if (apart_ && !sink)
    return 0;
  for (InFlightEvent *event : in_flight.ended()) {
    if (n == max)
      break;
    if (event->record_failures == 0 && (!sink || event->sink == sink) && !is_put_off(event))
      batch[n++] = event;
  }
  return n;
}

int Recording::choose(const InFlight &in_flight, InFlightEvent **batch, int *n_failed) noexcept {
  InFlightEvent *troubled = nullptr;
  int n = choose_together(in_flight, batch);

  if (apart_)
    for (InFlightEvent *event : in_flight.ended())
      if (event->record_failures > 0 && !is_put_off(event))
        troubled = event;
  /* Of a stuck sink other rows go first: if only the earlier ones are bad, one of these ends that. */
  alone_ = troubled && (n == 0 || (!alone_ && !is_stuck(batch[0]->sink)));
  if (alone_) {
    n = 0;
    batch[n++] = troubled;
  }
  *n_failed = static_cast<int>(
      std::partition(batch, batch + n, [](const InFlightEvent *event) { return event->outcome != Outcome::SENT; }) -
      batch);
  n_chosen_ = n;
  chosen_ = n > 0 ? batch[0] : nullptr;
  const bool one_sink =
      std::all_of(batch, batch + n, [this](const InFlightEvent *event) { return event->sink == chosen_->sink; });
  sink_ = n > 0 && one_sink ? chosen_->sink : nullptr;
  if (apart_ && sink_ && !alone_)
    sink_->recording.turn = ++turn_;
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

/* Something of the sink was recorded. */
void Recording::sink_recorded(InFlight &in_flight, SinkInFlight *sink) noexcept {
  SinkRecording &recording = sink->recording;

  if (alone_ || is_stuck(sink)) /* the cause may be gone */
    in_flight.record_again(sink);
  recording.failures = 0;
  recording.after = MOMENT_NONE;
  if (!alone_)
    recording.limit = recording.limit * 2 < BATCH_MAX ? recording.limit * 2 : 0;
}

bool Recording::any_trouble(const InFlight &in_flight) const noexcept {
  for (const InFlightEvent *event : in_flight.ended())
    if (event->record_failures > 0 || event->sink->recording.limit > 0 || event->sink->recording.failures > 0)
      return true;
  return false;
}

void Recording::committed(InFlight &in_flight) noexcept {
  failures_.clear();
  n_gathered_ = 0;
  if (apart_) {
    if (sink_ && in_flight.n_ended() < n_ended_)
      sink_recorded(in_flight, sink_);
    apart_ = any_trouble(in_flight);
  }
  next_moment_ = in_flight.next_recording();
}

void Recording::rolled_back(const InFlight &in_flight) noexcept {
  failures_.clear();
  next_moment_ = in_flight.next_recording();
}

Recording::Failure Recording::failed(InFlight &in_flight) noexcept {
  if (n_chosen_ == 0)
    return {false, nullptr};
  apart_ = true;
  if (!sink_)
    return {true, nullptr};
  SinkRecording &recording = sink_->recording;
  if (n_chosen_ > 1) {
    recording.limit = n_chosen_ / 2;
    return {true, nullptr};
  }
  chosen_->record_after =
      moment_after(began_, FIRST_TROUBLE_PAUSE_MS << std::min<int>(chosen_->record_failures, LAST_DOUBLING));
  in_flight.record_failed(chosen_);
  recording.limit = 1;
  recording.failures++;
  if (is_stuck(sink_))
    recording.after =
        moment_after(began_, FIRST_TROUBLE_PAUSE_MS << std::min(recording.failures - STUCK, LAST_DOUBLING));
  return {true, chosen_};
}

}  // namespace dispatch
