/*
 * http_fetch.h: one HTTP request to a service that gives credentials or tokens. It waits, so it is called on a
 * background thread or a probe's thread, never on the main thread. It follows no redirect and uses no proxy: an
 * answer of another host could be anybody's.
 */
#pragma once

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "delivery/http/network_guard.h"

namespace outbox {

/* Whether the caller's thread must end, or its time is up. Called at least every 50 ms. */
using Stop = std::function<bool()>;

/* Why nothing was granted, in words for a database administrator: what was tried, and what to do. */
struct NotGranted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct HttpFetch {
  std::string url;
  std::string method = "GET";
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {}; /* of other methods than GET */
  std::chrono::milliseconds timeout{10'000}, connect_timeout{5'000};
  const NetworkGuard *guard = nullptr;   /* null: every address is allowed */
  std::string ca_pem = {}, ca_path = {}; /* authorities as PEM, or as a file or folder; empty: the system's */
};

struct HttpFetched {
  long status = 0;
  std::string body;
};

/* Throws NotGranted if there is no complete answer; the text does not contain the URL. */
HttpFetched fetch(const HttpFetch &what, const Stop &stop);

}  // namespace outbox
