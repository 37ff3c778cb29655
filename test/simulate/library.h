/*
 * library.h: stands for the delivery library and the destinations behind it: one per worker. The events of a key are
 * sent one after the other; when one fails, those behind it are returned. How an event ends is drawn from its nature
 * and the number of its tries, so that it does not depend on the rest of the world.
 */
#pragma once

#include <utility>
#include <unordered_map>
#include <vector>

#include "dispatch/in_flight.h"
#include "test/simulate/truth.h"

namespace simulate {

class World;

/* A completion, as ob_collect() returns it. */
struct Answer {
  uint64_t ticket;
  dispatch::Outcome outcome;
  int64_t retry_after_ms;
  bool suspect;
};

struct SinkStatus {
  bool circuit_open = false;
  int credit = 0;
  int64_t outage_ms = -1;
  int64_t retry_in_ms = -1;
};

class Library {
public:
  Library(World &world, int slot, Incarnation worker, int n_sinks)
      : world_(world), slot_(slot), worker_(worker), sinks_(n_sinks) {}

  void submit(SinkId sink, uint64_t ticket, int64_t position, uint64_t key_hash, int32_t attempts);
  /* A request has come to its end. */
  void answer(SinkId sink, uint64_t serial);
  /* A failure counts from here on: until then its key sends nothing, and what was submitted behind it comes back. */
  std::vector<Answer> collect();
  SinkStatus status(SinkId sink);
  /* Queued events are returned; requests in flight end, or are given up after a second. */
  void close(SinkId sink);
  void give_up(SinkId sink);
  bool is_closed(SinkId sink) const { return sinks_[sink - 1].requests.empty(); }
  void open(SinkId sink) { sinks_[sink - 1].open = true; }
  /* The destination is gone with all that is in flight; some of it may have arrived. */
  void lose_all(SinkId sink);
  /* The worker's process ends: nobody hears of what is in flight. */
  void die();

private:
  struct Request {
    uint64_t ticket;
    int64_t position;
    uint64_t key_hash;
    int32_t attempts;
    uint64_t serial;
    bool running;
    bool failed; /* it is to be told by collect(), as these say */
    Answer answer;
    bool all_return;
  };
  struct Sink {
    bool open = true;
    bool circuit_open = false;
    int failures = 0;
    dispatch::Moment probe_at = dispatch::MOMENT_NONE, down_since = dispatch::MOMENT_NONE;
    std::vector<Request> requests; /* in order of submission */
  };

  void run_next(SinkId sink, uint64_t key_hash);
  void start(SinkId sink, Request &request);
  void end(SinkId sink, const Request &request, dispatch::Outcome outcome, int64_t retry_after_ms,
           bool suspect = false);
  void return_queued(SinkId sink, uint64_t key_hash, bool all_keys);
  void deliver(SinkId sink, const Request &request, bool known);
  void fail(Request &request, dispatch::Outcome outcome, int64_t retry_after_ms, bool suspect = false,
            bool all_return = false);
  void failed_down(SinkId sink, Request &request);
  void succeeded(SinkId sink, const Request &request, bool twice);

  World &world_;
  int slot_;
  Incarnation worker_;
  std::vector<Sink> sinks_;
  std::vector<Answer> completions_;
  uint64_t serial_ = 0;
};

}  // namespace simulate
