/*
 * http_probe.h: the steps of a probe that connects to the peer of an HTTP sink: resolve, guard, connect, proxy, TLS.
 */
#pragma once

#include <memory>
#include <string>

#include "delivery/engine/probe.h"
#include "delivery/http/http_transfer.h"

namespace outbox {

class HttpProbe {
public:
  /* The probe's thread. `url` is the target of the sink's requests. */
  HttpProbe(const std::shared_ptr<const HttpPeer> &peer, const std::string &url, Probe &probe);
  ~HttpProbe();
  HttpProbe(const HttpProbe &) = delete;

  /* Connects, and records each step. Returns whether all of them have passed. */
  bool connects();
  /* The connection that connects() has opened; nothing has been sent on it. */
  CURL *handle() const { return transfer_.handle(); }
  /* Runs a prepared transfer on a connection of its own, until it has ended or the probe is over. */
  static CURLcode run(HttpTransfer &transfer, const Probe &probe);

private:
  class Trial;

  bool failed(const char *step, const std::string &message, const std::string &hint = {});
  bool report_tls(double connected);

  Probe &probe_;
  const bool tls_, has_certificate_;
  HttpTransfer transfer_;
  const std::unique_ptr<Trial> trial_; /* destroyed before the transfer that it uses */
};

}  // namespace outbox
