/*
 * http_answer.h: what an HTTP response means for the event and for the endpoint. Pure functions.
 */
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "delivery/engine/sink.h"

namespace outbox {

struct HttpAnswer {
  long status = 0;
  std::string_view body = {};   // the first bytes
  bool body_is_cut = false;     // it has more
  int64_t retry_after_ms = -1;  // by the header Retry-After; -1 = none
  /* Header fields; empty if absent. */
  std::string_view rate_limit_remaining = {}, rate_limit_reset = {};
  bool own_url = false;          // the URL depends on the event, so an error about it is no fault of the endpoint
  bool idempotency_key = false;  // the request had the header Idempotency-Key
};

/* A 400 that says that the connection is wrong, not this request: it misses TLS, or the client's certificate. */
bool is_about_the_connection(const HttpAnswer &answer);

/* What an answer, or its absence, means for the messages of the request and for the requests that follow. */
struct HttpVerdict : Verdict {
  std::vector<Verdict> each = {};  // if the messages ended in different ways: one for each of them
  // Any one of the messages may be to blame: they are sent again, half of them at a time, until it is found. Has no
  // effect on a request with one message.
  bool blames_one = false;
  bool gone = false;           // HTTP 410: the endpoint accepts no more events
  bool refuses_token = false;  // 401
  bool slow_down = false;      // 429, 502, 503, 504: fewer requests to the endpoint
  bool too_many = false;       // 429
  bool no_descriptor = false;  // not sent: this process has too many open files
  // No more requests to the endpoint for this long, which a successful response can ask for too; -1 = no pause.
  int64_t pause_ms = -1;

  const Verdict &of(size_t message) const { return each.empty() ? *this : each.at(message); }
};

HttpVerdict classify_answer(const HttpAnswer &answer);

}  // namespace outbox
