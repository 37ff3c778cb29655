/*
 * memory_sink.h: a third kind of sink, "memory", in one file: it keeps what it is given, and the test says how each
 * event ends. Options: `capacity` (default 100), and in the user mapping the secret `token`.
 */
#pragma once

#include <future>
#include <map>
#include <string>
#include <vector>

#include "delivery/engine/sink.h"

namespace memory {

/* Set before a sink is opened: its destructor waits until the test lets it go. */
struct Hang {
  std::promise<void> let_go, gone;
};

/* A test's hold on the sinks that are open, by name. */
struct Control {
  std::shared_ptr<outbox::Reporter> reporter;
  std::vector<uint64_t> held; /* tickets taken and not ended */
  std::map<uint64_t, uint64_t> key_of;
  std::shared_ptr<Hang> hang;
  std::map<uint64_t, outbox::Outcome> ends_at_once; /* within submit(), by ticket */
  uint64_t unfit = 0;                               /* of it no message can be made */
  int pauses = 0;
  bool probe_hangs = false;      /* until its time is up, or nobody waits */
  std::shared_ptr<void> remains; /* of a probe */

  void end(uint64_t ticket, outbox::Outcome outcome, std::string error = {});
};
Control &control(const std::string &sink);

}  // namespace memory
