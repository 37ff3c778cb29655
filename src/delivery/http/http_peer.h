/*
 * http_peer.h: how the HTTP requests of a sink reach their peer: the options that all kinds of sink have in common
 * that send over the HTTP loop. The URL is the kind's own, because it may have variables or be made of other options.
 */
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "delivery/base/secret_mask.h"
#include "delivery/engine/advice.h"
#include "delivery/http/http_proxy.h"
#include "delivery/http/network_guard.h"
#include "delivery/options/pem.h"
#include "delivery/options/rate_limiter.h"

namespace outbox {

inline constexpr OptionName TIMEOUT{"timeout"};

/* The events, by their positions, that the peer has answered with a failure since they were last submitted: no broken
 * connection is to blame for it. Dead letters remain until, at 500, all are forgotten, and each costs a new
 * connection. */
class AnsweredEvents {
public:
  void add(int64_t position);
  bool take(int64_t position) noexcept; /* whether it was there */

private:
  std::mutex mutex_;
  std::unordered_set<int64_t> positions_;
};

/* Facts about the peer that a sink's transfers have learnt since the sink was opened. Any thread. */
struct PeerHistory {
  std::atomic<bool> answered{false};
  /* Connections without an answer that the peer closed after asking in vain for a client certificate, without an
   * alert, one after the other. */
  std::atomic<int> hang_ups{0};
  /* For how long a connection without a request is kept, in whole seconds rounded down, as libcurl counts. Many peers
   * close theirs after 5 s without saying so; one that names a time in Keep-Alive is believed. */
  std::atomic<long> kept_s{3};
  AnsweredEvents answered_events;
  /* So many more successful answers are taken at the end of their heads: the peer leaves bodies open (a stream
   * without an end, or a program that forgets to end it), and each would last for the timeout. */
  std::atomic<int> open_bodies{0};
};

/* How the request may use a kept connection. The peer can close that at any moment, and whether it has read the
 * request first is not known. In this order, if a request has several events. */
enum class KeptConnection {
  FREE, /* use it; if it breaks without an answer, that costs no attempt */
  NONE  /* the event has failed without an answer: on a new connection it is seen whether it is the cause */
};

inline KeptConnection kept_connection_for(const ob_event &event, PeerHistory &history) {
  /* Also of a redriven event, which has not failed. */
  const bool answered = history.answered_events.take(event.position);
  return event.failed && !answered ? KeptConnection::NONE : KeptConnection::FREE;
}

/* Immutable once it is parsed, but for the history. */
struct HttpPeer {
  std::chrono::milliseconds timeout{15'000};
  size_t concurrency = 32;
  std::optional<RateLimit> rate;
  std::chrono::milliseconds max_pause = std::chrono::hours(1);
  bool allow_http = false;
  std::vector<Network> networks;  // that a superuser allows
  NetworkGuard guard{{}};         // lets these through, and those of all sinks
  HttpProxy proxy;
  std::string ca_pem;
  ClientCertificate client;     // empty at DDL time and for checkers
  SecretMask secrets;           // all of the user mapping; the kind adds its own
  std::string method = "POST";  // set by the kind
  bool http2 = false;           // set by the kind: HTTP/2 only, many requests on one connection
  bool head_suffices = false;   // set by the kind: a successful answer's body says nothing
  size_t kept_body = 1024;      // bytes of an answer's body that are kept; of an error's, at least OB_ERROR_MAX
  const std::shared_ptr<PeerHistory> history = std::make_shared<PeerHistory>();

  /* The options that a kind adds to its own. Without those of the client's certificate, it has none. */
  static std::vector<Row<HttpPeer>> rows();
  static std::vector<Row<HttpPeer>> certificate_rows();
  /* After the rows of the server were read. `url` is the target of the requests, or its origin; empty at DDL time if
   * it may be in the user mapping. Throws BadInput: also for an http URL without the option allow_http. */
  void complete_peer(const std::string &url);
  /* After those of the user mapping: checks them together. Throws BadInput. */
  void complete_peer_mapping();
  void check_certificate_is_used(const std::string &url) const; /* needs both */
  /* For KindDefaults: until then the endpoint may still work on a request. */
  static std::chrono::milliseconds longest_answer(const Options &server);
  /* For a URL in this option. */
  static std::vector<Advice> advise(const Options &server, OptionName option);
};

}  // namespace outbox
