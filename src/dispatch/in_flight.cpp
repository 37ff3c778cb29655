/*
 * in_flight.cpp: events are found by position and by ticket, about five times per event in a drain. They are
 * allocated in blocks of 1,024 that are never freed, so a pointer is valid for the event's life and a claim rarely
 * allocates.
 * A round claims at most 4 MB, and outbox.max_in_flight_memory is 32 MB by default: with limits by number alone,
 * 3,000 events of 100 kB took 1 GB of the worker's memory while a broker hung; now 58 MB.
 */
#include "dispatch/in_flight.h"

#include "dispatch/fault_point.h"

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <cstring>

namespace dispatch {

/* An error has up to 8 kB, and recordings may wait for a lock: while the texts take ERRORS_MAX, new ones are
 * shortened to SHORT_ERROR. So those of 40,000 failed events take at most 24 MB, and not 320. 15,000 that waited took
 * 84 MB of a worker's memory, with all copies of a recording; with errors of 20 bytes, 37 MB. */
static constexpr size_t ERRORS_MAX = 4 * 1024 * 1024;
static constexpr size_t SHORT_ERROR = 512;
static constexpr char CUT_MARK[] = " [cut]";

/* The length of the longest prefix of at most `max` bytes that does not cut a UTF-8 character. */
static size_t whole_prefix(const char *text, size_t max) {
  while (max > 0 && (static_cast<unsigned char>(text[max]) & 0xC0) == 0x80)
    max--;
  return max;
}

InFlight::InFlight() {
  grow_table();
}

InFlight::~InFlight() {
  for (const InFlightEvent *event = next(nullptr); event; event = next(event))
    free(const_cast<char *>(event->error));
}

/* ---- states -------------------------------------------------------------------------------------------------- */

[[maybe_unused]] static bool may_follow(EventState state, EventState next) {
  switch (state) {
  case EventState::FREE:
    return next == EventState::CLAIMED;
  case EventState::CLAIMED:
    return next == EventState::IN_FLIGHT || next == EventState::ENDED || next == EventState::FREE;
  case EventState::IN_FLIGHT:
    return next == EventState::ENDED || next == EventState::FREE;
  case EventState::ENDED:
    return next == EventState::RECORDED || next == EventState::GONE || next == EventState::FREE;
  case EventState::RECORDED:
  case EventState::GONE:
    return next == EventState::FREE || next == EventState::ENDED;
  }
  return false;
}

static void change_state(InFlightEvent *event, EventState next) noexcept {
  assert(may_follow(event->state, next));
  OUTBOX_STATE_CHANGES("EventState", event->state, next);
  event->state = next;
}

void InFlight::submitted(InFlightEvent *event, Moment now) noexcept {
  change_state(event, EventState::IN_FLIGHT);
  event->submitted_at = now;
}

void InFlight::recorded(InFlightEvent *event) noexcept {
  change_state(event, EventState::RECORDED);
}

void InFlight::gone(InFlightEvent *event) noexcept {
  change_state(event, EventState::GONE);
}

/* ---- by position --------------------------------------------------------------------------------------------- */

/* Positions follow each other by POSITION_STEP: 16 neighbours share a cache line, and such blocks are spread by hash.
 */
InFlightEvent **InFlight::bucket_of(int64_t position) const noexcept {
  const uint64_t number =
      static_cast<uint64_t>(position) / POSITION_STEP + static_cast<uint64_t>(position) % POSITION_STEP;
  const uint64_t block = (number >> 4) * 0x9E3779B97F4A7C15U >> 32;
  return &buckets_[(block << 4 | (number & 15)) & (n_buckets_ - 1)];
}

void InFlight::enter_bucket(InFlightEvent *event) noexcept {
  InFlightEvent **bucket = bucket_of(event->position);
  event->next_in_bucket = *bucket;
  *bucket = event;
}

void InFlight::leave_bucket(const InFlightEvent *event) noexcept {
  InFlightEvent **link = bucket_of(event->position);
  while (*link != event)
    link = &(*link)->next_in_bucket;
  *link = event->next_in_bucket;
}

void InFlight::grow_table() noexcept {
  const uint32_t n = std::max(4 * CHUNK, n_buckets_ * 2);
  buckets_ = make_array<InFlightEvent *>(n);
  n_buckets_ = n;
  for (uint32_t i = 0; i < chunks_.size() * CHUNK; i++)
    if (at(i)->state != EventState::FREE)
      enter_bucket(at(i));
}

InFlightEvent *InFlight::find(int64_t position) const noexcept {
  InFlightEvent *event = *bucket_of(position);
  while (event && event->position != position)
    event = event->next_in_bucket;
  return event;
}

const InFlightEvent *InFlight::next(const InFlightEvent *event) const noexcept {
  for (uint32_t i = event ? event->index + 1 : 0; i < chunks_.size() * CHUNK; i++)
    if (at(i)->state != EventState::FREE)
      return at(i);
  return nullptr;
}

/* ---- claimed and given back ---------------------------------------------------------------------------------- */

int InFlight::free_events(int max_events, int64_t max_bytes) const noexcept {
  if (count_ > 0 && free_bytes(max_bytes) <= 0)
    return 0;
  return std::max(0, max_events - count_ - unflushed.events());
}

void InFlight::add_chunk() noexcept {
  if ((chunks_.size() + 1) * CHUNK > n_buckets_)
    grow_table();
  chunks_.push_back(make_array<InFlightEvent>(CHUNK));
  const auto first = static_cast<uint32_t>((chunks_.size() - 1) * CHUNK);
  for (uint32_t i = CHUNK; i-- > 0;) {
    InFlightEvent *event = at(first + i);
    event->index = first + i;
    event->next = first_free_;
    first_free_ = event;
  }
}

InFlightEvent *InFlight::claim(const Claimed &claimed) noexcept {
  assert(find(claimed.position) == nullptr);
  if (first_free_ == nullptr)
    add_chunk();
  InFlightEvent *event = first_free_;
  first_free_ = event->next;
  __builtin_prefetch(first_free_, 1); /* the next claim finds it in the cache */
  __builtin_prefetch(reinterpret_cast<char *>(first_free_) + 64, 1);
  change_state(event, EventState::CLAIMED);
  event->generation++;
  event->position = claimed.position;
  enter_bucket(event);
  event->key_hash = claimed.key_hash;
  event->sink = claimed.sink;
  event->row = claimed.row;
  event->attempts = claimed.attempts;
  event->bytes = claimed.bytes;
  event->shard = claimed.shard;
  event->record_failures = 0;
  event->failed = claimed.failed;
  event->late = claimed.late;
  event->early = event->slow_retry = event->suspect = false;
  event->next = nullptr;
  event->due_since = claimed.due_since;
  event->record_after = MOMENT_NONE;
  event->blocked_by = claimed.blocked_by;
  event->error = nullptr;
  event->given_to = 0;
  event->sink->of_shard[event->shard]++;
  count_++;
  bytes_ += event->bytes;
  return event;
}

void InFlight::give_back(InFlightEvent *event) noexcept {
  if (!has_ended(event))
    bytes_ -= event->bytes;
  change_state(event, EventState::FREE);
  leave_bucket(event);
  count_--;
  event->sink->of_shard[event->shard]--;
  drop_error(event);
  event->next = first_free_;
  first_free_ = event;
}

/* ---- ended --------------------------------------------------------------------------------------------------- */

InFlightEvent *InFlight::find_ticket(uint64_t ticket) const noexcept {
  const auto index = static_cast<uint32_t>(ticket);
  if (index >= chunks_.size() * CHUNK)
    return nullptr;
  InFlightEvent *event = at(index);
  return event->generation == ticket >> 32 && event->state == EventState::IN_FLIGHT ? event : nullptr;
}

void InFlight::keep_error(InFlightEvent *event, const char *error) noexcept {
  const size_t length = std::strlen(error);
  const bool cut = length > SHORT_ERROR && error_bytes_ + length > ERRORS_MAX;
  const size_t kept = cut ? whole_prefix(error, SHORT_ERROR - sizeof(CUT_MARK)) : length;
  auto *copy = static_cast<char *>(checked(malloc(kept + sizeof(CUT_MARK))));

  memcpy(copy, error, kept);
  std::strcpy(copy + kept, cut ? CUT_MARK : "");
  event->error = copy;
  error_bytes_ += std::strlen(copy);
}

void InFlight::drop_error(InFlightEvent *event) noexcept {
  if (event->error) {
    error_bytes_ -= std::strlen(event->error);
    free(const_cast<char *>(event->error));
  }
  event->error = nullptr;
}

void InFlight::end(InFlightEvent *event, Outcome outcome, int64_t retry_after_ms, const char *error,
                   Now now) noexcept {
  const int64_t us = event->state == EventState::IN_FLIGHT ? now.moment.us - event->submitted_at.us : 0;
  change_state(event, EventState::ENDED);
  event->record_after = MOMENT_NONE;
  event->took_ms = static_cast<int32_t>(std::clamp<int64_t>(us / 1000, 0, INT32_MAX));
  bytes_ -= event->bytes; /* the delivery library has freed them; recordings that fail must not use up the memory */
  event->outcome = outcome;
  event->retry_after_ms = static_cast<int32_t>(std::min<int64_t>(retry_after_ms, INT32_MAX));
  event->ended_at = now.wall;
  if (error)
    keep_error(event, error);
  ended_.push_back(event);
}

Moment InFlight::next_recording() const noexcept {
  Moment next = MOMENT_NEVER;
  for (const InFlightEvent *event : ended())
    next = std::min(next, std::max(event->record_after, event->sink->recording.after));
  return next;
}

void InFlight::record_failed(InFlightEvent *event) noexcept {
  if (event->record_failures < 7)
    event->record_failures++;
}

void InFlight::record_again(const SinkInFlight *sink) noexcept {
  for (InFlightEvent *event : ended())
    if (event->sink == sink && event->record_failures > 0)
      event->record_after = MOMENT_NONE;
}

void InFlight::aborted() noexcept {
  for (InFlightEvent *event : ended())
    if (event->state != EventState::ENDED)
      change_state(event, EventState::ENDED);
}

void InFlight::committed(uint64_t lsn) noexcept {
  size_t left = 0;
  for (InFlightEvent *event : ended())
    if (event->state == EventState::ENDED)
      ended_[left++] = event;
    else
      give_back(event);
  const size_t n = ended_.size() - left;
  ended_.resize(left);
  if (n > 0)
    unflushed.add(static_cast<int>(n), lsn);
}

InFlightEvent *InFlight::take_suspects(const SinkInFlight *sink) noexcept {
  InFlightEvent *first = nullptr, **end = &first;
  std::erase_if(ended_, [&](InFlightEvent *event) {
    if (!event->suspect || event->sink != sink)
      return false;
    event->next = nullptr;
    *end = event;
    end = &event->next;
    return true;
  });
  return first;
}

/* ---- recorded, and not yet safe ------------------------------------------------------------------------------ */

void Unflushed::add(int n, uint64_t lsn) noexcept {
  if (n_ == static_cast<int>(entries_.size())) { /* a standby lags: merge, these are then flushed together */
    entries_[n_ - 1].lsn = lsn;
    entries_[n_ - 1].n += n;
  } else {
    entries_[n_++] = {lsn, n};
  }
  events_ += n;
}

uint64_t Unflushed::flush_wanted(int max_events) const noexcept {
  const bool full = events_ > max_events / 2 || n_ == static_cast<int>(entries_.size());
  return n_ > 0 && full ? entries_[n_ - 1].lsn : 0;
}

void Unflushed::safe(uint64_t lsn) noexcept {
  int done = 0;
  while (done < n_ && entries_[done].lsn <= lsn)
    events_ -= entries_[done++].n;
  if (done == 0)
    return;
  n_ -= done;
  std::move(entries_.begin() + done, entries_.begin() + done + n_, entries_.begin());
}

}  // namespace dispatch
