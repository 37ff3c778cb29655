/* peer_probe.cpp: hints of a connection's errors are parts of a sentence; those of a step are sentences. */
#include "delivery/net/peer_probe.h"

#include <algorithm>

#include "delivery/base/text.h"

namespace outbox {

Deadline PeerProbe::deadline() const {
  return {Probe::Clock::now() + std::min(options_.connect_timeout, probe_.left()),
          [&probe = probe_] { return probe.over(); }};
}

void PeerProbe::failed(const PeerError &error, const std::string &host) {
  probe_.failed(error.step, host + error.what(), sentence(error.hint));
}

}  // namespace outbox
