/* protocol.cpp: a message of the sender is an entry of a batch, whose size is what AWS counts. */
#include "protocol.h"

#include <curl/curl.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace outbox::aws_sink {

static constexpr int64_t deferred_ms = 1000; /* for throttled entries */
static constexpr std::chrono::minutes known_for{1};

HttpMessage Protocol::render(const ob_event &event) const {
  Entry entry = config_->maker.make(event);
  config_->check_size(entry.size);
  HttpMessage message;
  message.parts = std::move(entry.fields);
  message.weight = entry.size;
  return message;
}

HttpCall Protocol::call(const HttpContent &carried) const {
  const auto now = Clock::now();
  Content content;
  if (config_->target.may_be_void() && now >= ask_at_) {
    content = question(config_->target);
    if (ask_at_ != Clock::time_point()) /* the bus was there: the other requests go on meanwhile */
      ask_at_ = now + std::min<Clock::duration>(known_for, config_->timeout); /* if no answer comes */
  } else {
    std::vector<const Fields *> entries;
    entries.reserve(carried.messages.size());
    for (const HttpMessage &message : carried.messages)
      entries.push_back(&message.parts);
    content = batch_request(config_->target, entries);
  }
  HttpCall call;
  call.headers = signer_->sign(content);
  call.body = std::move(content.body);
  return call;
}

/* Reads the answer to a question. Without the right to ask, nothing shows whether the bus is there. */
bool Protocol::may_send(const HttpTransfer &answer) const {
  const std::string body(answer.body());
  const Target &target = config_->target;
  const Fault fault = fault_of(target, {answer.status(), body, answer.header("x-amzn-errortype")});
  const bool denied = !fault.is_none() && cause_of(fault) == Cause::Denied;
  if (denied && std::exchange(may_ask_, false)) {
    const std::string unknown = "it is not known whether " + target.name +
                                " is there, because the sink may not ask: allow " + target.words().right_to_ask +
                                "; AWS drops events for a bus that is not there";
    reporter_->log(OB_LOG_WARNING, unknown);
    reporter_->degraded(unknown);
  } else if (!denied && !std::exchange(may_ask_, true)) {
    reporter_->degraded("");
  }
  const bool there = fault.is_none() || denied;
  ask_at_ = there ? Clock::now() + known_for : Clock::time_point();
  return there;
}

static Signer::Time began(const HttpTransfer &answer) {
  curl_off_t microseconds = 0;
  curl_easy_getinfo(answer.handle(), CURLINFO_TOTAL_TIME_T, &microseconds);
  return std::chrono::steady_clock::now() - std::chrono::microseconds(microseconds);
}

HttpVerdict Protocol::classify_response(const HttpTransfer &answer, CURLcode code, const HttpContent &content) const {
  if (code != CURLE_OK)
    return {{Outcome::RetryBlameSink, "the connection broke within the answer", OB_REASON_CONNECTION}};
  if (asks_for_bus(answer.sent()) && may_send(answer))
    return {{Outcome::Returned, "not sent yet: the sink has asked whether its event bus is there"}};
  auto classified = [&](const std::string &body, const std::string &error_type) {
    return aws_sink::classify_response(config_->target, content.messages.size(), {answer.status(), body, error_type});
  };
  const std::string error_type = answer.header("x-amzn-errortype");
  BatchOutcome batch = classified(std::string(answer.body()), error_type);
  if (!batch.all_sent()) /* the reporter does not know the secrets that the chain gives */
    batch = classified(signer_->without_secrets(answer.body(), answer.body_is_cut()),
                       signer_->without_secrets(error_type, false));
  std::string more;
  if (batch.whole == Cause::Clock)
    more = signer_->correct_clock(answer.header("Date"));
  if (batch.whole == Cause::Expired)
    more = signer_->expired(began(answer));
  HttpVerdict made;
  const int64_t asked_ms = answer.retry_after_ms();
  for (Verdict &verdict : batch.verdicts) {
    if (verdict.outcome == Outcome::Sent)
      continue;
    verdict.retry_after_ms = verdict.outcome == Outcome::Deferred ? std::max(deferred_ms, asked_ms) : asked_ms;
    verdict.error += more.empty() ? "" : ": " + more;
  }
  made.blames_one = batch.blames_one();
  made.each = std::move(batch.verdicts);
  const long status = answer.status();
  made.too_many = status == 429 || std::ranges::any_of(made.each, [](const Verdict &end) {
                    return end.outcome != Outcome::Sent && end.reason == OB_REASON_RATE_LIMITED;
                  });
  made.slow_down = made.too_many || (status >= 502 && status <= 504);
  if (made.slow_down)
    made.pause_ms = asked_ms;
  return made;
}

}  // namespace outbox::aws_sink
