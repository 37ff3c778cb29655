/*
 * memory_sink.h: a third kind of sink, "memory", in one file: it keeps its events, and the test decides how each
 * one ends. Options: `capacity` (default 100), and in the user mapping the secret `token`.
 */
#pragma once

#include <future>
#include <map>
#include <string>
#include <vector>

#include "delivery/engine/sink.h"

namespace memory {

/* Set before a sink is opened: its destructor waits until the test releases it. */
struct Hang {
  std::promise<void> let_go, gone;
};

/* A test's access to the open sinks by name. */
struct Control {
  std::shared_ptr<outbox::Reporter> reporter;
  std::vector<uint64_t> held; /* tickets accepted and not ended */
  std::map<uint64_t, uint64_t> key_of;
  std::shared_ptr<Hang> hang;
  std::map<uint64_t, outbox::Outcome> ends_at_once; /* outcomes within submit(), by ticket */
  std::vector<outbox::Outcome> ends_of_test_events; /* in turn; without one it is not answered */
  std::vector<uint32_t> order;                      /* of the events of a call, if there are so many */
  uint64_t unfit = 0;                               /* submit() throws for it */
  uint64_t no_room_for = 0;                         /* submit() does not take it */
  uint64_t no_memory_for = 0;                       /* submit() lacks memory for it */
  int pauses = 0, flushes = 0;
  bool probe_hangs = false;              /* until its time is up, or it is cancelled */
  std::string probe_says = "here it is"; /* and hints */
  std::shared_ptr<void> remains;         /* steps of a probe */

  void end(uint64_t ticket, outbox::Outcome outcome, std::string error = {}, int64_t retry_after_ms = -1);
};
Control &control(const std::string &sink);

}  // namespace memory
