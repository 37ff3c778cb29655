/*
 * in_flight.h: the events in flight: claimed by the worker and not yet recorded. A ticket identifies an event to
 * the delivery library and back. It contains a generation number, so that a late report cannot end another event.
 */
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "dispatch/memory.h"
#include "dispatch/shard_set.h"
#include "dispatch/time.h"
#include "dispatch/types.h"

namespace dispatch {

enum class EventState : uint8_t {
  FREE,      /* next: CLAIMED */
  CLAIMED,   /* claimed in the running round; next: IN_FLIGHT, ENDED (it cannot be sent), FREE (given back) */
  IN_FLIGHT, /* submitted; next: ENDED, FREE (returned unsent) */
  ENDED,     /* to be recorded; next: RECORDED, GONE, FREE (the failure was the sink's) */
  RECORDED,  /* recorded in the running transaction; next: FREE (committed), ENDED (aborted) */
  GONE       /* its row was deleted or moved, nothing to record; next: FREE (committed), ENDED (aborted) */
};

/* How an event ended. The values are those of ob_outcome in delivery.h. */
enum class Outcome : uint8_t {
  SENT,
  RETRY,    /* failed: one attempt is spent, and it is sent again */
  DEFERRED, /* its destination (a Kafka topic) cannot be used now: sent again later, no attempt is spent */
  REJECTED, /* can never succeed: a dead letter */
  RETURNED  /* not sent, or the whole sink is down: claimed again */
};

/* How the recording of a sink's events goes (recording.h). Zeroed memory is a sink without trouble. */
struct SinkRecording {
  int32_t limit;    /* of events in one transaction, while rows that make it fail are looked for; 0 = none */
  int32_t failures; /* transactions with a single row that have failed since the last success */
  uint64_t turn;    /* its last transaction of its own */
  Moment after;     /* none of its events is recorded before */
};

/* The events of a sink in flight. The server embeds it in its sink object, which outlives the sink's events. The
 * pointer identifies the sink. */
struct SinkInFlight {
  SinkId id;
  uint32_t of_shard[SHARDS]; /* claimed and not yet recorded */
  SinkRecording recording;
};

/* Two cache lines, since there are tens of thousands of them; the first holds what most steps read. */
struct alignas(128) InFlightEvent {
  int64_t position;
  uint64_t key_hash; /* 0 = no key, or its sink is unordered */
  SinkInFlight *sink;
  InFlightEvent *next_in_bucket; /* chain of the hash table by position */
  RowHandle row;                 /* the row version that was claimed */
  uint32_t generation;
  int32_t attempts; /* those that were spent before this one */
  uint32_t bytes;
  EventState state;
  Outcome outcome; /* valid in ENDED and later states */
  uint8_t shard;
  uint8_t record_failures : 3; /* how often recording this row alone failed the transaction, at most 7 */
  bool late : 1;               /* redriven with force after later events of its key were sent */
  bool early : 1;              /* claimed before available_at, because the cause of its delay is over */
  bool failed : 1;             /* its last delivery had failed, and it blocked its key */
  bool slow_retry : 1;         /* not to be retried within seconds (ob_retry_delay_ms) */
  bool suspect : 1; /* the sink may be to blame: if the circuit opens before it is recorded, nothing is recorded */

  InFlightEvent *next; /* in the free list, or of a sink's suspects */
  WallTime due_since;  /* its creation time, or the later time for which it was scheduled */
  WallTime ended_at;
  union {
    Moment submitted_at; /* IN_FLIGHT */
    Moment record_after; /* later: another session had locked the row: record it after this moment */
  };
  int64_t blocked_by; /* the row's blocked_by when it was claimed */
  int32_t retry_after_ms;
  int32_t took_ms;   /* from its submission to its end */
  const char *error; /* of a delivered event: the peer's acknowledgement; NULL: there is none */
  /* The sink that must still send this event: its row was moved there, and skipped, while it was in flight; 0 = none.
   */
  SinkId given_to;
  uint32_t index;
};
static_assert(sizeof(InFlightEvent) == 128 && offsetof(InFlightEvent, next) == 64);

inline bool has_ended(const InFlightEvent *event) {
  return event->state >= EventState::ENDED;
}

/* Recorded or gone in the running transaction. */
inline bool is_recorded(const InFlightEvent *event) {
  return event->state >= EventState::RECORDED;
}

/* Recordings whose WAL is not yet flushed. A crash would lose them, and their events would be sent again. */
class Unflushed {
public:
  int events() const noexcept { return events_; }

  void add(int n, uint64_t lsn) noexcept;
  /* The position up to which WAL should be flushed now, because these recordings fill half of `max_events`; 0 = none.
   */
  uint64_t flush_wanted(int max_events) const noexcept;
  /* WAL is flushed up to `lsn`. */
  void safe(uint64_t lsn) noexcept;

private:
  struct Entry {
    uint64_t lsn;
    int n;
  };
  std::array<Entry, 256> entries_;
  int n_ = 0, events_ = 0;
};

/* Events that have ended, in that order. They lie scattered in memory, and a drain goes through them some five times
 * an event: so those that come next are fetched into the cache while one is looked at. */
class EndedEvents {
public:
  explicit EndedEvents(std::span<InFlightEvent *const> all) noexcept : all_(all) {}

  class Iterator {
  public:
    Iterator(InFlightEvent *const *at, InFlightEvent *const *end) noexcept : at_(at), end_(end) {}
    InFlightEvent *operator*() const noexcept {
      if (end_ - at_ > AHEAD) {
        __builtin_prefetch(at_[AHEAD], 1);
        __builtin_prefetch(reinterpret_cast<char *>(at_[AHEAD]) + sizeof(InFlightEvent) / 2, 1);
      }
      return *at_;
    }
    Iterator &operator++() noexcept {
      ++at_;
      return *this;
    }
    bool operator!=(const Iterator &other) const noexcept { return at_ != other.at_; }

  private:
    static constexpr std::ptrdiff_t AHEAD = 8;
    InFlightEvent *const *at_, *const *end_;
  };
  Iterator begin() const noexcept { return {all_.data(), all_.data() + all_.size()}; }
  Iterator end() const noexcept { return {all_.data() + all_.size(), all_.data() + all_.size()}; }

private:
  std::span<InFlightEvent *const> all_;
};

class InFlight {
public:
  InFlight();
  InFlight(const InFlight &) = delete;
  InFlight &operator=(const InFlight &) = delete;
  ~InFlight();

  int count() const noexcept { return count_; }
  int n_ended() const noexcept { return static_cast<int>(ended_.size()); }
  /* Claimed, and not ended. */
  int running() const noexcept { return count_ - n_ended(); }

  /* How many more events may be claimed, by number and by memory. One event always fits, whatever its size. */
  int free_events(int max_events, int64_t max_bytes) const noexcept;
  int64_t free_bytes(int64_t max_bytes) const noexcept { return max_bytes - bytes_; }

  struct Claimed {
    int64_t position;
    uint64_t key_hash;
    SinkInFlight *sink;
    RowHandle row;
    int32_t attempts;
    bool failed;
    uint32_t bytes;
    uint8_t shard;
    int64_t blocked_by;
    WallTime due_since;
    bool late;
  };
  /* Adds an event; its position must not be in flight yet. Pointers stay valid until give_back() or committed() frees
   * the event. */
  InFlightEvent *claim(const Claimed &claimed) noexcept;

  void submitted(InFlightEvent *event, Moment now) noexcept;

  /* Frees the event; nothing is recorded for it. */
  void give_back(InFlightEvent *event) noexcept;

  /* NULL when no event with this position is in flight. */
  InFlightEvent *find(int64_t position) const noexcept;

  uint64_t ticket(const InFlightEvent *event) const noexcept {
    return static_cast<uint64_t>(event->generation) << 32 | event->index;
  }
  /* NULL when the ticket's event is no longer in flight. */
  InFlightEvent *find_ticket(uint64_t ticket) const noexcept;

  /* Appends the event to the ended ones. `error` is copied, and shortened while
   * such texts take much memory; it may be NULL. */
  void end(InFlightEvent *event, Outcome outcome, int64_t retry_after_ms, const char *error, Now now) noexcept;
  EndedEvents ended() const noexcept { return EndedEvents(ended_); }
  /* When the next of them may be recorded: a moment in the past for most, later for rows that another session had
   * locked, and for sinks whose recording fails. */
  Moment next_recording() const noexcept;

  /* In the running transaction: the event was recorded, or its row no longer exists. */
  void recorded(InFlightEvent *event) noexcept;
  void gone(InFlightEvent *event) noexcept;
  /* Recording this event alone failed. */
  void record_failed(InFlightEvent *event) noexcept;
  /* Events of the sink whose recording alone has failed are due again. */
  void record_again(const SinkInFlight *sink) noexcept;
  /* The transaction has ended. committed(): frees what it recorded, which counts as unflushed until `lsn` is flushed.
   * aborted(): nothing was recorded. */
  void committed(uint64_t lsn) noexcept;
  void aborted() noexcept;

  /* The sink was down: removes its suspects from the ended events and returns them as a list. */
  InFlightEvent *take_suspects(const SinkInFlight *sink) noexcept;

  /* Iterates over all events, in no order: pass NULL for the first; NULL follows the last. */
  const InFlightEvent *next(const InFlightEvent *event) const noexcept;

  Unflushed unflushed;

private:
  static constexpr uint32_t CHUNK = 1024;

  InFlightEvent *at(uint32_t index) const noexcept { return &chunks_[index / CHUNK][index % CHUNK]; }
  InFlightEvent **bucket_of(int64_t position) const noexcept;
  void enter_bucket(InFlightEvent *event) noexcept;
  void leave_bucket(const InFlightEvent *event) noexcept;
  void add_chunk() noexcept;
  void grow_table() noexcept;
  void keep_error(InFlightEvent *event, const char *error) noexcept;
  void drop_error(InFlightEvent *event) noexcept;

  Vector<std::unique_ptr<InFlightEvent[]>> chunks_;
  std::unique_ptr<InFlightEvent *[]> buckets_; /* hash table, one chain per bucket */
  uint32_t n_buckets_ = 0;                     /* a power of two, at least the number of allocated events */
  InFlightEvent *first_free_ = nullptr;
  Vector<InFlightEvent *> ended_;
  int count_ = 0;
  int64_t bytes_ = 0;
  size_t error_bytes_ = 0; /* of the errors of ended events */
};

}  // namespace dispatch
