/* What an HTTP response means: a table of statuses, and the header fields that ask for a pause. */
#include "delivery/http/http_answer.h"

#include <gtest/gtest.h>

#include "delivery/http/http_wait.h"

using namespace outbox;

namespace {

constexpr int64_t now = 1'700'000'000;  // Tue, 14 Nov 2023 22:13:20 GMT

TEST(HttpAnswer, EachClassOfStatusHasItsMeaning) {
  struct {
    std::vector<long> statuses;
    Outcome outcome;
    bool slow_down, slow_retry, gone;
    int max_refusals;
    Outcome with_own_url;
  } const classes[] = {
      {{200, 201, 202, 204, 226, 299}, Outcome::Sent, false, false, false, 0, Outcome::Sent},
      {{300, 301, 302, 303, 304, 307, 308}, Outcome::Refused, false, true, false, 0, Outcome::RetryOwnPeer},
      {{400, 411, 413, 414, 422, 431}, Outcome::Retry, false, false, false, 3, Outcome::RetryOwnPeer},
      {{401, 407}, Outcome::Refused, false, true, false, 0, Outcome::Refused},
      {{402, 403, 404, 405, 406, 415}, Outcome::Refused, false, true, false, 0, Outcome::RetryOwnPeer},
      {{408, 425, 500, 501, 505, 599, 100, 0},
       Outcome::RetryBlameSink,
       false,
       false,
       false,
       0,
       Outcome::RetryBlameSink},
      {{409, 412, 418, 423, 451}, Outcome::Retry, false, false, false, 0, Outcome::RetryOwnPeer},
      {{410}, Outcome::Returned, false, false, true, 0, Outcome::RetryOwnPeer},
      {{429, 502, 503, 504}, Outcome::RetryBlameSink, true, false, false, 0, Outcome::RetryBlameSink},
  };
  for (auto &each : classes)
    for (long status : each.statuses) {
      HttpVerdict verdict = classify_answer({.status = status, .body = "why"});
      EXPECT_EQ(verdict.outcome, each.outcome) << status;
      EXPECT_EQ(verdict.slow_down, each.slow_down) << status;
      EXPECT_EQ(verdict.slow_retry, each.slow_retry) << status;
      EXPECT_EQ(verdict.gone, each.gone) << status;
      EXPECT_EQ(verdict.max_refusals, each.max_refusals) << status;
      EXPECT_EQ(verdict.retry_after_ms, -1) << status;
      EXPECT_EQ(verdict.pause_ms, -1) << status;
      EXPECT_EQ(verdict.error.empty(), each.outcome == Outcome::Sent) << status;
      HttpVerdict own = classify_answer({.status = status, .own_url = true});
      EXPECT_EQ(own.outcome, each.with_own_url) << status;
      EXPECT_FALSE(own.gone) << status << ": one customer's URL disables no sink";
    }
}

TEST(HttpAnswer, EachFailureHasAReasonThatMetricsCount) {
  struct {
    ob_reason reason;
    std::vector<long> statuses;
  } const classes[] = {
      {OB_REASON_NONE, {200, 204, 299}},
      {OB_REASON_HTTP_3XX, {300, 301, 399}},
      {OB_REASON_AUTH, {401, 403, 407}},
      {OB_REASON_TIMEOUT, {408}},
      {OB_REASON_TOO_LARGE, {413, 414, 431}},
      {OB_REASON_RATE_LIMITED, {429}},
      {OB_REASON_HTTP_4XX, {400, 402, 404, 410, 422, 499}},
      {OB_REASON_HTTP_5XX, {500, 503, 599, 100, 0}},
  };
  for (auto &each : classes)
    for (long status : each.statuses)
      EXPECT_EQ(classify_answer({.status = status}).reason, each.reason) << status;
}

TEST(HttpAnswer, AnIdempotencyKeyMakes422FinalAnd409AWait) {
  EXPECT_EQ(classify_answer({.status = 422, .idempotency_key = true}).outcome, Outcome::Retry);
  EXPECT_EQ(classify_answer({.status = 422, .idempotency_key = true}).max_refusals, 1);
  EXPECT_EQ(classify_answer({.status = 422}).outcome, Outcome::Retry);
  HttpVerdict conflict = classify_answer({.status = 409, .idempotency_key = true});
  EXPECT_EQ(conflict.outcome, Outcome::Retry);
  EXPECT_EQ(conflict.max_refusals, 0);
}

TEST(HttpAnswer, A400AboutTheConnectionIsTheSinksFault) {
  for (const char *body :
       {"<html><title>400 No required SSL certificate was sent</title>", "<center>The SSL certificate error</center>",
        "<center>The plain HTTP request was sent to HTTPS port</center>"}) {
    const HttpVerdict verdict = classify_answer({.status = 400, .body = body});
    EXPECT_EQ(verdict.outcome, Outcome::Refused) << body;
    EXPECT_EQ(verdict.max_refusals, 0) << body;
    EXPECT_TRUE(verdict.slow_retry) << body;
  }
}

TEST(HttpAnswer, RetryAfterIsTheEventsAndWhereTheEndpointIsOverloadedItsToo) {
  for (long status : {429, 502, 503, 504}) {
    HttpVerdict verdict = classify_answer(
        {.status = status, .retry_after_ms = 7'000, .rate_limit_remaining = "0", .rate_limit_reset = "90"});
    EXPECT_EQ(verdict.retry_after_ms, 7'000) << status;
    EXPECT_EQ(verdict.pause_ms, 7'000) << status << ": Retry-After wins";
  }
  for (long status : {302, 400, 404, 500}) {
    HttpVerdict verdict = classify_answer({.status = status, .retry_after_ms = 7'000});
    EXPECT_EQ(verdict.retry_after_ms, 7'000) << status;
    EXPECT_EQ(verdict.pause_ms, -1) << status;
  }
  EXPECT_EQ(classify_answer({.status = 200, .retry_after_ms = 7'000}).pause_ms, -1);
  EXPECT_EQ(classify_answer({.status = 410, .retry_after_ms = 7'000}).retry_after_ms, -1);
}

TEST(HttpAnswer, NothingLeftOfTheQuotaPausesTheEndpointAlsoAfterASuccess) {
  for (long status : {200, 429, 500}) {
    EXPECT_EQ(classify_answer({.status = status, .rate_limit_remaining = "0", .rate_limit_reset = "5"}).pause_ms,
              5'000);
    EXPECT_EQ(classify_answer({.status = status, .rate_limit_remaining = "50", .rate_limit_reset = "30"}).pause_ms,
              -1);
  }
}

TEST(HttpAnswer, RetryAfterInBothForms) {
  struct {
    const char *value;
    int64_t ms;
  } const expected[] = {
      {"120", 120'000},
      {" 1 ", 1'000},
      {"2.0", 2'000},
      {"0.503", 503},
      {"0.0001", 1},
      {"20.5", 20'500},
      {"86400", 86'400'000},
      {"86401", 86'400'000},
      {"31536000", 86'400'000},
      {"Tue, 14 Nov 2023 22:15:20 GMT", 120'000},
      {"Tuesday, 14-Nov-23 22:15:20 GMT", 120'000},
      {"Tue Nov 14 22:15:20 2023", 120'000},
      {"Thu, 16 Nov 2023 22:13:20 GMT", 86'400'000},
  };
  for (auto &[value, ms] : expected)
    EXPECT_EQ(retry_after_ms(value, "", now), ms) << value;
  for (const char *value : {"Tue, 14 Nov 2023 22:13:20 GMT",
                            "Thu, 01 Jan 1998 00:00:00 GMT",
                            "Tue, 14 Nov 2033 22:13:20 GMT",
                            "Tue, 14 Nov 2023 22:15:20",
                            "Tue, 14 Nov 2023 22:15:20 GMT+1",
                            "Tue, 14 Nov 2023 25:15:20 GMT",
                            "",
                            "0",
                            "-1",
                            "-120",
                            "+5",
                            "0.0",
                            ".5",
                            "5.",
                            "1.5.0",
                            "1e1",
                            "inf",
                            "nan",
                            "0x10",
                            "120 seconds",
                            "120, 130",
                            "soon",
                            "1700000120",
                            "99999999999999999999999999"})
    EXPECT_EQ(retry_after_ms(value, "", now), -1) << "in the past, or not meaningful: " << value;
}

TEST(HttpAnswer, ADateOfRetryAfterCountsFromTheClockOfThePeer) {
  constexpr const char *at = "Tue, 14 Nov 2023 22:15:20 GMT";
  for (int64_t clock : {now, now - 3'600, now + 3'600, int64_t{0}}) {
    EXPECT_EQ(retry_after_ms(at, " Tue, 14 Nov 2023 22:14:50 GMT", clock), 30'000) << clock;
    EXPECT_EQ(retry_after_ms(at, at, clock), -1) << clock;
    EXPECT_EQ(retry_after_ms("7", at, clock), 7'000) << clock;
  }
  EXPECT_EQ(retry_after_ms(at, "yesterday", now), 120'000);
}

TEST(HttpAnswer, RateLimit) {
  EXPECT_EQ(rate_limit_ms("0", "30"), 30'000);
  EXPECT_EQ(rate_limit_ms(" 0 ", " 90000 "), 86'400'000);
  for (auto [remaining, reset] : {std::pair("1", "30"),
                                  {"", "30"},
                                  {"0", ""},
                                  {"0", "-3"},
                                  {"0", "0"},
                                  {"zero", "30"},
                                  {"0", "1700000120"},
                                  {"-1", "30"}})
    EXPECT_EQ(rate_limit_ms(remaining, reset), -1) << remaining << " " << reset;
}

}  // namespace

TEST(HttpAnswer, ABodyThatIsCutIsMarked) {
  EXPECT_EQ(classify_answer({.status = 500, .body = "why"}).error, "HTTP 500: why");
  for (const std::string character : {"\u00fc", "\u65e5", "\U0001f600"})
    for (size_t length = 1; length <= character.size(); length++)
      EXPECT_EQ(
          classify_answer({.status = 500, .body = "why " + character.substr(0, length), .body_is_cut = true}).error,
          "HTTP 500: why [cut]");
  EXPECT_EQ(classify_answer({.status = 500, .body = "", .body_is_cut = true}).error, "HTTP 500");
}
