/*
 * truth.h: what was enqueued and what has arrived, and whether that keeps docs/promises.md. It knows the whole world;
 * a worker knows only what it reads. A broken promise is thrown as Broken.
 */
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "test/simulate/table.h"

namespace simulate {

struct SinkRule {
  bool ordered = true;
  bool hold = false; /* on_dead_letter is 'block' */
  int32_t max_attempts = 3;
};

struct Broken : std::runtime_error {
  Broken(const std::string &what, std::vector<int64_t> positions_)
      : std::runtime_error(what), positions(std::move(positions_)) {}
  std::vector<int64_t> positions; /* the events concerned */
};

/* An incarnation of a worker: a new one after each start. */
using Incarnation = uint32_t;

class Truth {
public:
  Truth(const Table &table, const std::vector<SinkRule> &sinks) : table_(table), sinks_(sinks) {}

  struct Event {
    Xid xid = NO_XID; /* with which it was enqueued */
    uint64_t drawn_at = 0;
    SinkId sink = 0;
    uint64_t key_hash = 0;
    bool any_order = false; /* scheduled, moved, or otherwise changed by a user */
    bool moved = false;     /* by a user, to another sink or key */
    bool deleted = false;   /* by a user */
    bool recorded = false;  /* as delivered */
    bool rejected = false;  /* by its sink, or its attempts were used up */
    bool forced = false;    /* redriven with force at least once */
    bool redriven = false;
    bool outstanding = false; /* stands in the list of its key */
    bool held = false;        /* its recording had to wait, so later ones may have been recorded before it */
    int32_t deliveries = 0;   /* to its present sink */
    uint32_t sinks = 0;       /* to which it was delivered, as bits */
    uint64_t first_at = 0;    /* the first delivery */
    int64_t last_at = 0;      /* the number of the last delivery, among all */
    Incarnation known_to = 0; /* the worker that was told of the delivery; 0 = nobody */
  };

  void enqueued(int64_t position, Xid xid, SinkId sink, uint64_t key_hash, bool scheduled);
  /* `sent`: it has arrived before, and was not recorded. */
  void committed(int64_t position, bool sent);
  void changed(int64_t position);                               /* a user has changed it: no order is promised */
  void moved(int64_t position, SinkId sink, uint64_t key_hash); /* to another sink or key */
  void deleted(int64_t position);
  void held(int64_t position) { at(position).held = true; }
  void never_was(int64_t position) { leave(position); } /* its commit was lost */
  void redriven(int64_t position, bool force);

  /* The endpoint of the sink has taken the event. */
  void delivered(int64_t position, SinkId sink, uint64_t key_hash, Incarnation by);
  void acknowledged(int64_t position, Incarnation by) { at(position).known_to = by; }
  void rejected(int64_t position) { at(position).rejected = true; }
  /* A worker deletes the row as delivered. */
  void recorded(int64_t position);
  void died(Incarnation worker, int max_in_flight);
  /* Nothing more arrives. */
  void ended() const;

  Event &at(int64_t position) { return events_[position]; }
  const Event &at(int64_t position) const { return events_[position]; }
  int64_t deliveries() const { return n_deliveries_; }
  int64_t duplicates() const { return n_duplicates_; }

private:
  struct Key {
    std::vector<int64_t> outstanding, sent; /* by position; in order of delivery */
    int64_t last_sent = 0;
    int64_t arrived = 0; /* the last one to arrive, maybe again */
  };

  bool must_precede(int64_t earlier, int64_t later) const;
  bool is_of_a_run(int64_t position) const;
  void leave(int64_t position);
  Key &key_of(const Event &event) { return keys_[{event.sink, event.key_hash}]; }
  void check_phantom(int64_t position, const Event &event) const;
  void check_duplicate(int64_t position, Event &event);
  void check_order(int64_t position, const Event &event);
  void check_run(const Key &key, int64_t upto) const;

  const Table &table_;
  const std::vector<SinkRule> &sinks_;
  std::vector<Event> events_;
  std::unordered_map<dispatch::KeyId, Key, dispatch::KeyIdHash> keys_;
  std::map<Incarnation, bool> dead_;
  int64_t allowed_ = 0; /* duplicates, for the faults so far */
  int64_t n_deliveries_ = 0, n_duplicates_ = 0;
};

}  // namespace simulate
