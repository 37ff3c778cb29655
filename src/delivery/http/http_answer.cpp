/*
 * http_answer.cpp: a complete 2xx head is a success whatever happens to the body: the endpoint has taken the event,
 * and another attempt would be a duplicate. An incomplete head is never a success.
 */
#include "delivery/http/http_answer.h"

#include "delivery/base/clean_text.h"
#include "delivery/base/text.h"
#include "delivery/http/http_wait.h"

namespace outbox {

/* A refusal of one event may be temporary (a consumer is being deployed), so the event gets three such answers in
 * all, and not the days of retries that an outage gets. */
static constexpr int attempts_of_a_bad_event = 3;

static ob_reason reason_of(long status) {
  switch (status) {
  case 401:
  case 403:
  case 407:
    return OB_REASON_AUTH;
  case 408:
    return OB_REASON_TIMEOUT;
  case 413:
  case 414:
  case 431:
    return OB_REASON_TOO_LARGE;
  case 429:
    return OB_REASON_RATE_LIMITED;
  default:
    return status >= 300 && status < 400   ? OB_REASON_HTTP_3XX
           : status >= 400 && status < 500 ? OB_REASON_HTTP_4XX
                                           : OB_REASON_HTTP_5XX;
  }
}

/* To every request nginx answers the first three, and Go's server the last. */
bool is_about_the_connection(const HttpAnswer &answer) {
  for (std::string_view text :
       {"No required SSL certificate was sent", "The SSL certificate error",
        "The plain HTTP request was sent to HTTPS port", "Client sent an HTTP request to an HTTPS server"})
    if (answer.status == 400 && answer.body.find(text) != answer.body.npos)
      return true;
  return false;
}

/* All but pauses. */
static void classify_status(const HttpAnswer &answer, HttpVerdict &verdict) {
  switch (long status = answer.status) {
  case 400:
    if (is_about_the_connection(answer)) {
      verdict.outcome = Outcome::Refused;
      verdict.slow_retry = true;
      return;
    }
    [[fallthrough]];
  case 411: /* the request is invalid and would be refused again */
  case 413:
  case 414:
  case 422:
  case 431:
    verdict.outcome = Outcome::Retry;
    verdict.max_refusals = status == 422 && answer.idempotency_key ? 1 : attempts_of_a_bad_event;
    return;
  case 401: /* credentials belong to the sink, even if the URL depends on the event */
  case 407:
    verdict.refuses_token = status == 401;
    verdict.outcome = Outcome::Refused;
    verdict.slow_retry = true;
    return;
  case 402:
  case 403:
  case 404:
  case 405:
  case 406:
  case 415:
    verdict.outcome = Outcome::Refused;
    verdict.slow_retry = true;
    return;
  case 410:
    if (answer.own_url) { /* gone is what this event's URL named */
      verdict.outcome = Outcome::RetryOwnPeer;
      verdict.slow_retry = true;
      return;
    }
    verdict.outcome = Outcome::Returned;
    verdict.gone = true;
    return;
  case 408:
  case 425:
    verdict.outcome = Outcome::RetryBlameSink;
    return;
  case 429:
  case 502:
  case 503:
  case 504:
    verdict.outcome = Outcome::RetryBlameSink;
    verdict.slow_down = true;
    verdict.too_many = status == 429;
    return;
  default:
    if (status >= 200 && status < 300) {
      verdict.outcome = Outcome::Sent;
    } else if (status >= 300 && status < 400) { /* redirects are not followed: a user must change the URL */
      verdict.outcome = Outcome::Refused;
      verdict.slow_retry = true;
    } else {
      verdict.outcome = status >= 500 || status < 200 ? Outcome::RetryBlameSink : Outcome::Retry;
    }
  }
}

HttpVerdict classify_answer(const HttpAnswer &answer) {
  HttpVerdict verdict;
  classify_status(answer, verdict);
  if (answer.own_url && answer.status != 401 && answer.status != 407 &&
      (verdict.outcome == Outcome::Retry || verdict.outcome == Outcome::Refused))
    verdict.outcome = Outcome::RetryOwnPeer;
  verdict.pause_ms = rate_limit_ms(answer.rate_limit_remaining, answer.rate_limit_reset);
  if (verdict.outcome == Outcome::Sent)
    return verdict;
  verdict.reason = reason_of(answer.status);
  if (!verdict.gone)
    verdict.retry_after_ms = answer.retry_after_ms;
  if (verdict.slow_down && verdict.retry_after_ms >= 0)
    verdict.pause_ms = verdict.retry_after_ms;

  verdict.error = "HTTP " + std::to_string(answer.status);
  if (answer.status >= 300 && answer.status < 400) {
    verdict.error += ": redirect not followed";  // the target may contain a token of the URL, so it is not shown
    return verdict;
  }
  const size_t cut = answer.body_is_cut ? 1 : 0;  // perhaps within its last character, which is left out
  if (std::string text = clean_text(answer.body.substr(0, utf8_prefix(answer.body, answer.body.size() - cut)));
      !text.empty())
    (verdict.error += ": " + text) += answer.body_is_cut ? cut_mark : "";
  return verdict;
}

}  // namespace outbox
