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
#include "delivery/options/options.h"
#include "delivery/options/rate_limiter.h"

namespace outbox {

inline constexpr OptionName TIMEOUT{"timeout"}, CONNECTION_LIFETIME{"connection_lifetime"},
    CONCURRENCY{"concurrency"}, RATE_LIMIT{"rate_limit"}, MAX_PAUSE{"max_pause"}, ALLOW_HTTP{"allow_http"},
    ALLOW_NETWORKS{"allow_networks"}, CA_PEM{"ca_pem"};

/* A client's certificate for mutual TLS; empty: none. */
struct ClientCertificate {
  std::string certificate_pem, key_pem;  // the key is not encrypted
  bool is_given() const { return !certificate_pem.empty(); }
};

/* The events, by their positions, that the peer has answered with a failure since they were last submitted: no broken
 * connection is to blame for it. Dead letters remain until, at 500, all are forgotten, and each costs a new
 * connection. */
class AnsweredEvents {
public:
  void add(int64_t position) noexcept;
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
  static constexpr std::chrono::milliseconds default_timeout{15'000};
  std::chrono::milliseconds timeout = default_timeout;
  std::chrono::milliseconds connection_lifetime{60'000};
  size_t concurrency = 32;
  std::optional<RateLimit> rate;
  std::chrono::milliseconds max_pause = std::chrono::hours(1);
  NetworkGuard guard{{}};
  std::string allow_networks;  // the option as given, for an error's hint
  HttpProxy proxy;
  std::string ca_pem;
  ClientCertificate client;     // empty at DDL time and for checkers
  SecretMask secrets;           // set by the kind; empty at DDL time and for checkers
  std::string method = "POST";  // set by the kind
  bool http2 = false;           // set by the kind: HTTP/2 only, many requests on one connection
  bool head_suffices = false;   // set by the kind: a successful answer's body says nothing
  size_t kept_body = 1024;      // bytes of an answer's body that are kept; of an error's, at least OB_ERROR_MAX
  const std::shared_ptr<PeerHistory> history = std::make_shared<PeerHistory>();

  /* The options that a kind adds to its own: of the server, and of the user mapping. */
  static std::vector<OptionSpec> server_specs();
  static std::vector<OptionSpec> mapping_specs();
  /* Checks combinations of a user mapping's options. Throws BadInput. */
  static void check_mapping(const Options &mapping);
  static void add_secrets(const Options &mapping, SecretMask &secrets);
  /* For KindDefaults: until then the endpoint may still work on a request. */
  static std::chrono::milliseconds longest_answer(const Options &server);
  /* For a URL in this option. */
  static std::vector<Advice> advise(const Options &server, OptionName option);
  /* `url` is the target of the requests, or its origin; empty at DDL time if it may be in the user mapping. `mapping`
   * may be null. Throws BadInput: also for an http URL without the option allow_http. */
  void parse(const Options &server, const Options *mapping, const std::string &url);
};

}  // namespace outbox
