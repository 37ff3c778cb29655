/*
 * peer_probe.h: a probe of a kind of sink that has a connection of its own: it opens the sink's connection, which
 * tells each step, host by host until one accepts it. A kind derives from it, and adds what it asks the peer.
 */
#pragma once

#include <memory>
#include <string>

#include "delivery/engine/probe.h"
#include "delivery/net/peer_connection.h"

namespace outbox {

class PeerProbe {
protected:
  /* Both must outlive it. */
  PeerProbe(const ConnectOptions &options, Probe &probe) : probe_(probe), options_(options) {}
  ~PeerProbe() = default;

  /* Opens a connection, and calls ask(connection, deadline). Records why one of them failed. */
  template <class Connection, class Options, class Ask> void run(const Options &options, Ask ask) {
    try {
      std::unique_ptr<Connection> connection;
      for (size_t i = 0; i < options_.hosts.size() && !connection && !probe_.over(); i++)
        connection = open<Connection>(options, options_.hosts[i]);
      if (connection)
        ask(*connection, deadline());
    } catch (const PeerError &error) {
      failed(error, {});
    } catch (const Cancelled &) {
      probe_.failed("probe", "no answer in time");
    }
  }

  Probe &probe_;

private:
  /* Null if the host does not accept it. */
  template <class Connection, class Options>
  std::unique_ptr<Connection> open(const Options &options, const Host &host) {
    auto connection = std::make_unique<Connection>(options);
    connection->tell([this](const char *step, std::string fact, std::string hint) {
      probe_.passed(step, std::move(fact), std::move(hint));
    });
    try {
      connection->open(host, deadline());
      return connection;
    } catch (const PeerError &error) {
      failed(error, options_.hosts.size() == 1 ? "" : host.text() + ": ");
      return nullptr;
    }
  }
  Deadline deadline() const;
  void failed(const PeerError &error, const std::string &host);

  const ConnectOptions &options_;
};

}  // namespace outbox
