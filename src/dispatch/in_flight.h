/*
 * in_flight.h: the events that the worker has claimed and not yet recorded. A ticket names one of them through the
 * delivery library and back; its generation keeps a late report from ending another event.
 */
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "dispatch/shard_set.h"
#include "dispatch/time.h"
#include "dispatch/types.h"

namespace dispatch {

enum class EventState : uint8_t {
  FREE,      /* next: CLAIMED */
  CLAIMED,   /* chosen in the running round; next: IN_FLIGHT, ENDED (it cannot be sent), FREE (given back) */
  IN_FLIGHT, /* submitted; next: ENDED, FREE (it came back unsent) */
  ENDED,     /* to be recorded; next: RECORDED, GONE, FREE (its failure was the sink's) */
  RECORDED,  /* in the running transaction; next: FREE (committed), ENDED (aborted) */
  GONE       /* a user had deleted or moved its row, nothing is to be recorded; next: FREE, ENDED (aborted) */
};

/* How an event ended: the delivery library's ob_outcome, by value. */
enum class Outcome : uint8_t {
  SENT,
  RETRY,    /* it failed: an attempt is spent, and it is tried again */
  DEFERRED, /* its destination cannot be used now: it is tried again, and no attempt is spent */
  REJECTED, /* it can never succeed: a dead letter */
  RETURNED  /* it was not tried, or its sink is down: it is claimed again */
};

/* What a sink has in flight; part of what the server keeps for a sink, which outlives its events. A pointer to it
 * names the sink: while a server is being renamed, two stand for one SinkId. */
struct SinkInFlight {
  SinkId id;
  uint32_t of_shard[SHARDS]; /* claimed and not yet recorded */
};

/* Two cache lines, the first with what most steps ask for: there are tens of thousands. */
struct alignas(128) InFlightEvent {
  int64_t position;
  uint64_t key_hash; /* 0 = it has no key, or its sink keeps no order */
  SinkInFlight *sink;
  InFlightEvent *next_in_slot; /* of the table by position */
  RowHandle row;               /* as it was when it was claimed */
  uint32_t generation;
  int32_t attempts; /* failed ones before this */
  uint32_t bytes;
  EventState state;
  Outcome outcome; /* once it has ended */
  uint8_t shard;
  uint8_t record_failures : 3; /* it alone made the transaction fail, so many times, at most 7 */
  bool late : 1;               /* redriven by force, after later events of its key */
  bool early : 1;              /* claimed before its time, since what it waited for is over */
  bool slow_retry : 1;         /* it may not be tried again within seconds */
  bool suspect : 1;            /* its failure may be the sink's: forgotten if that is known before it is recorded */

  InFlightEvent *next; /* free list, or list of ended ones */
  WallTime due_since;  /* enqueued, or the later time that was asked for */
  WallTime ended_at;
  Moment record_after; /* somebody held the row: try to record again then */
  int64_t blocked_by;  /* what the row said when it was claimed */
  int64_t retry_after_ms;
  const char *error; /* why it failed; NULL = it did not */
  SinkId given_to;   /* this sink has the event still to come: its row was seen, and passed, meanwhile */
  uint32_t index;
};
static_assert(sizeof(InFlightEvent) == 128 && offsetof(InFlightEvent, next) == 64);

inline bool has_ended(const InFlightEvent *event) {
  return event->state >= EventState::ENDED;
}

/* In the running transaction. */
inline bool is_recorded(const InFlightEvent *event) {
  return event->state >= EventState::RECORDED;
}

/* Recordings that a crash would lose, since their WAL is not flushed: their events would be sent again. */
class Unflushed {
public:
  int events() const noexcept { return events_; }

  void add(int n, uint64_t lsn) noexcept;
  /* WAL up to here should be flushed now, since they fill half of `max_events`; 0 = need not. */
  uint64_t flush_wanted(int max_events) const noexcept;
  /* WAL up to here is safe. */
  void safe(uint64_t lsn) noexcept;

private:
  struct Entry {
    uint64_t lsn;
    int n;
  };
  std::array<Entry, 256> entries_;
  int n_ = 0, events_ = 0;
};

class InFlight {
public:
  InFlight();
  InFlight(const InFlight &) = delete;
  InFlight &operator=(const InFlight &) = delete;
  ~InFlight();

  int count() const noexcept { return count_; }
  int ended() const noexcept { return n_ended_; }

  /* How many more may be claimed, by number and by memory. One event always fits, however large. */
  int free_events(int max_events, int64_t max_bytes) const noexcept;
  int64_t free_bytes(int64_t max_bytes) const noexcept { return max_bytes - bytes_; }

  struct Claimed {
    int64_t position;
    uint64_t key_hash;
    SinkInFlight *sink;
    RowHandle row;
    int32_t attempts;
    uint32_t bytes;
    uint8_t shard;
    int64_t blocked_by;
    WallTime due_since;
    bool late;
  };
  /* For a position that has none. Pointers stay valid until the event is given back or settled. NULL: out of memory.
   */
  InFlightEvent *claim(const Claimed &claimed) noexcept;

  void submitted(InFlightEvent *event) noexcept;

  /* It is over, and nothing is to be recorded. */
  void give_back(InFlightEvent *event) noexcept;

  /* NULL when there is none. */
  InFlightEvent *find(int64_t position) const noexcept;

  uint64_t ticket(const InFlightEvent *event) const noexcept {
    return static_cast<uint64_t>(event->generation) << 32 | event->index;
  }
  /* NULL for a ticket whose event is not in flight any more. */
  InFlightEvent *find_ticket(uint64_t ticket) const noexcept;

  /* Appends it to the ended ones. `error` is copied; may be NULL. */
  void end(InFlightEvent *event, Outcome outcome, int64_t retry_after_ms, const char *error, WallTime at) noexcept;
  InFlightEvent *first_ended() const noexcept { return first_ended_; } /* then event->next */
  /* When the next of them may be recorded: in the past for most, later for rows that somebody holds. */
  Moment next_recording() const noexcept;

  /* In the running transaction: it is written down; or its row was gone. */
  void recorded(InFlightEvent *event) noexcept;
  void gone(InFlightEvent *event) noexcept;
  /* Its row could not be written down, it alone. True the first time. */
  bool record_failed(InFlightEvent *event) noexcept;
  /* The transaction has ended: what it recorded is over, and counts as unflushed until `lsn` is safe; or nothing was
   * recorded. */
  void committed(uint64_t lsn) noexcept;
  void aborted() noexcept;

  /* The sink was down: its suspects leave the list of ended ones, and are returned as a list of their own. */
  InFlightEvent *take_suspects(const SinkInFlight *sink) noexcept;

  /* All of them, in no order: the first for NULL, NULL after the last. */
  const InFlightEvent *next(const InFlightEvent *event) const noexcept;

  Unflushed unflushed;

private:
  static constexpr uint32_t CHUNK = 1024;

  InFlightEvent *at(uint32_t index) const noexcept { return &chunks_[index / CHUNK][index % CHUNK]; }
  InFlightEvent **slot_of(int64_t position) const noexcept;
  void enter_slot(InFlightEvent *event) noexcept;
  void leave_slot(const InFlightEvent *event) noexcept;
  void add_chunk();
  void grow_table();
  void append_ended(InFlightEvent *event) noexcept;
  InFlightEvent *clear_ended() noexcept;

  std::vector<std::unique_ptr<InFlightEvent[]>> chunks_;
  std::unique_ptr<InFlightEvent *[]> slots_; /* each a chain */
  uint32_t n_slots_ = 0;                     /* a power of two, at least as many as there are events */
  InFlightEvent *first_free_ = nullptr;
  InFlightEvent *first_ended_ = nullptr, *last_ended_ = nullptr;
  int n_ended_ = 0;
  int count_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace dispatch
