/*
 * http_answer.h: what an HTTP answer means for the event. Pure functions.
 */
#pragma once

#include <string>
#include <string_view>

#include "delivery/sink.h"

namespace outbox {

struct Verdict {
  Result result = Result::Retry;
  std::string error;            // empty for Sent
  int64_t retry_after_ms = -1;  // what the peer asked for
  bool gone = false;            // the endpoint does not want any events any more
  bool slow_down = false;       // 429, 502, 503, 504: the endpoint as a whole should get less
  int64_t pause_ms = -1;        // nothing more to this endpoint before that: what it asked for, also with a success
};

/* `body` is the beginning of the answer's body. */
Verdict judge_answer(long status, std::string_view body);

/* Foreign text made fit for a log line and a text column: valid UTF-8, one line, no control characters. */
std::string clean_text(std::string_view text);

}  // namespace outbox
