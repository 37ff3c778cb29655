/*
 * peer_probe.h: a probe of a kind of sink that has a connection of its own: it opens the sink's connection, which
 * tells each step, host by host until one accepts it. A kind derives from it, and says what it asks the peer.
 */
#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "delivery/base/text.h"
#include "delivery/engine/probe.h"
#include "delivery/net/peer_connection.h"

namespace outbox {

template <class Config, class Connection> class PeerProbe {
public:
  /* Both must outlive it. */
  PeerProbe(const Config &config, Probe &probe) : config_(config), probe_(probe) {}
  virtual ~PeerProbe() = default;

  void run() {
    try {
      for (size_t i = 0; i < hosts().size() && !connection_ && !probe_.over(); i++)
        open(hosts()[i]);
      if (connection_ && ask())
        probe_.can_deliver();
    } catch (const PeerError &error) {
      failed(error, {});
    } catch (const Cancelled &) {
      probe_.failed("probe", "no answer in time");
    }
  }

protected:
  /* Asks the peer, and records the answers. Returns whether they let events through. */
  virtual bool ask() = 0;
  /* Of opening a connection, or of one question. */
  Deadline deadline() const {
    return {Probe::Clock::now() + std::min(config_.options.connect_timeout, probe_.left()),
            [&probe = probe_] { return probe.over(); }};
  }

  const Config &config_;
  Probe &probe_;
  std::unique_ptr<Connection> connection_;

private:
  const std::vector<Host> &hosts() const { return config_.options.hosts; }
  void open(const Host &host) {
    auto connection = std::make_unique<Connection>(config_.options);
    connection->tell([this](const char *step, std::string fact, std::string hint) {
      probe_.passed(step, std::move(fact), std::move(hint));
    });
    try {
      connection->open(host, deadline());
      connection_ = std::move(connection);
    } catch (const PeerError &error) {
      failed(error, hosts().size() == 1 ? "" : host.text() + ": ");
    }
  }
  /* Hints of a connection's errors are parts of a sentence; those of a step are sentences. */
  void failed(const PeerError &error, const std::string &host) {
    probe_.failed(error.step, host + error.what(), sentence(error.hint));
  }
};

}  // namespace outbox
