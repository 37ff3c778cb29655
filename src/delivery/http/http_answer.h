/*
 * http_answer.h: what an HTTP answer means, for the event and for the endpoint. Pure functions.
 */
#pragma once

#include <string>
#include <string_view>

#include "delivery/engine/sink.h"

namespace outbox {

struct HttpAnswer {
  long status = 0;
  std::string_view body = {};  // its beginning
  /* Header fields; empty where they are absent. */
  std::string_view retry_after = {}, rate_limit_remaining = {}, rate_limit_reset = {};
  bool own_url = false;          // the URL was made for this event: what is wrong with it is no fault of the others'
  bool idempotency_key = false;  // the request had one
  int64_t now = 0;               // Unix time, in seconds
};

struct Verdict {
  Outcome outcome = Outcome::Retry;
  std::string error;            // empty for Sent
  int64_t retry_after_ms = -1;  // what the peer asked for
  bool gone = false;            // the endpoint does not want any events any more
  bool slow_down = false;       // 429, 502, 503, 504: the endpoint as a whole should get less
  bool too_many = false;        // 429 among them
  bool no_descriptor = false;   // nothing was sent: this process has too many files open
  int64_t pause_ms = -1;        // nothing more to this endpoint before that: what it asked for, also with a success
  bool slow_retry = false;      // as in Completion
  int max_attempts = 0;         // likewise
  ob_reason reason = OB_REASON_NONE;
};

Verdict judge_answer(const HttpAnswer &answer);

}  // namespace outbox
