/* http_answer.cpp: what an answer means, by docs/webhooks-reference.md; whatever it says, the error is one line.
 */
#include "test/fuzz/fuzz.h"

#include "delivery/http/http_answer.h"
#include "delivery/http/http_wait.h"
#include "test/fuzz/utf8.h"

using namespace outbox;

void fuzz::one_input(std::string_view data) {
  Input input(data);
  HttpAnswer answer;
  answer.status = input.digit() * 100 + input.digit() * 10 + input.digit();
  uint8_t flags = input.digit();
  answer.own_url = flags & 1;
  answer.idempotency_key = flags & 2;
  std::string retry_after = input.line(), remaining = input.line(), reset = input.line(), body = input.rest();
  answer.retry_after_ms = retry_after_ms(retry_after, {}, 1'600'000'000);
  answer.rate_limit_remaining = remaining;
  answer.rate_limit_reset = reset;
  answer.body = body;
  HttpVerdict verdict = classify_answer(answer);

  constexpr int64_t day = 86'400'000;
  HOLDS(verdict.retry_after_ms >= -1 && verdict.retry_after_ms <= day && verdict.retry_after_ms != 0);
  HOLDS(verdict.pause_ms >= -1 && verdict.pause_ms <= day);
  bool sent = answer.status >= 200 && answer.status < 300;
  HOLDS(sent == (verdict.outcome == Outcome::Sent));
  HOLDS(sent == verdict.error.empty() && sent == (verdict.reason == OB_REASON_NONE));
  HOLDS(!sent || verdict.retry_after_ms == -1);
  HOLDS(verdict.gone == (answer.status == 410 && !answer.own_url) && verdict.too_many == (answer.status == 429));
  HOLDS(verdict.outcome != Outcome::Rejected || (answer.status == 422 && answer.idempotency_key));
  HOLDS(verdict.outcome != Outcome::Refused || (answer.status >= 300 && answer.status < 500));
  HOLDS(answer.status < 500 || verdict.outcome == Outcome::RetryBlameSink);
  auto characters = utf8_characters(verdict.error);
  HOLDS(characters);
  for (uint32_t c : *characters)
    HOLDS(c >= 0x20 && (c < 0x7F || c > 0x9F));
  if (answer.status >= 300 && answer.status < 400)
    HOLDS(verdict.error == "HTTP " + std::to_string(answer.status) + ": redirect not followed");
}
