/* webhook_transfer.cpp: what a webhook adds to a request, and what it makes of the answer. */
#include "delivery/sinks/webhook/webhook_transfer.h"

#include <algorithm>
#include <ctime>

namespace outbox {

WebhookTransfer::WebhookTransfer(const std::shared_ptr<const WebhookConfig> &config, const std::string &sink)
    : HttpTransfer(config, sink, config->target.has_variables() ? config->target.origin() : config->url,
                   config->method),
      config_(config) {}

void WebhookTransfer::prepare(WebhookRequest request) {
  request_ = std::move(request);
  HttpTransfer::prepare(request_.url, request_.headers, request_.body, request_.kept,
                        config_->attempt_headers(request_, time(nullptr)));
}

std::shared_ptr<const OauthToken> WebhookTransfer::refused_token(CURLcode code) const {
  return status() == 401 && !no_answer(code) ? request_.token : nullptr;
}

/* The result of a complete head, whatever happens to the body. */
HttpVerdict WebhookTransfer::classify(bool whole_body) const {
  const long status = this->status();
  bool sent = status >= 200 && status < 300;
  /* Mask first: of a secret that is cut, a part would stay visible. */
  std::string text = sent ? std::string() : config_->without_secrets(body(), request_, !whole_body || body_is_cut());
  std::string remaining = header("RateLimit-Remaining");
  std::string reset = remaining.empty() ? std::string() : header("RateLimit-Reset");
  return classify_answer({.status = status,
                          .body = text,
                          .body_is_cut = body_is_cut(),
                          .retry_after_ms = sent ? -1 : retry_after_ms(),
                          .rate_limit_remaining = remaining,
                          .rate_limit_reset = reset,
                          .own_url = !request_.url.empty(),
                          .idempotency_key = !sent && find_header(request_.headers, "idempotency-key")});
}

HttpVerdict WebhookTransfer::verdict(CURLcode code) const {
  auto failure = no_answer(code);
  HttpVerdict verdict = failure ? std::move(*failure) : classify(code == CURLE_OK);
  if (!failure && verdict.outcome != Outcome::Sent)
    config_->history->answered_events.add(request_.position);
  verdict.pause_ms = std::min<int64_t>(verdict.pause_ms, config_->max_pause.count());
  verdict.error = config_->without_secrets(verdict.error, request_);
  return verdict;
}

std::string WebhookTransfer::acknowledgement() const {
  constexpr size_t longest = 100;
  const std::string id = config_->without_secrets(header("X-Request-Id"), request_);
  return "HTTP " + std::to_string(status()) + (id.empty() ? "" : ", X-Request-Id " + id.substr(0, longest));
}

}  // namespace outbox
