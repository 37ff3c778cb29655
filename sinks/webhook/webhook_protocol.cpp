/* webhook_protocol.cpp: what each attempt adds to a request, and what its answer means. */
#include "webhook_protocol.h"

#include <ctime>
#include <iterator>

namespace outbox {

static std::unique_ptr<Renewed<OauthToken>> tokens_of(const std::shared_ptr<const WebhookConfig> &config,
                                                      std::shared_ptr<Reporter> reporter) {
  if (!config->oauth)
    return nullptr;
  return std::make_unique<Renewed<OauthToken>>([config](const Stop &stop) { return config->oauth->fetch(stop); },
                                               [reporter = std::move(reporter)] { reporter->wake(); });
}

WebhookProtocol::WebhookProtocol(std::shared_ptr<const WebhookConfig> config, std::shared_ptr<Reporter> reporter)
    : config_(std::move(config)), tokens_(tokens_of(config_, std::move(reporter))) {}

std::optional<HttpGrant> WebhookProtocol::grant() const {
  if (!tokens_)
    return {};
  auto now = tokens_->now();
  HttpGrant grant{.error = std::move(now.error)};
  if (now.value)
    grant.secret = {now.value, &now.value->text};
  return grant;
}

void WebhookProtocol::refused(const std::shared_ptr<const std::string> &grant) const {
  if (auto now = tokens_->now(); now.value && &now.value->text == grant.get())
    tokens_->refused(now.value);
}

HttpCall WebhookProtocol::call(const HttpContent &content) const {
  if (!config_->batch)
    return {.headers = config_->attempt_headers(content.messages.at(0), content.grant.get(), time(nullptr))};
  HttpMessage request = config_->joined(content.messages);
  HttpCall call{.headers = config_->attempt_headers(request, content.grant.get(), time(nullptr)),
                .body = std::move(request.body)};
  call.headers.insert(call.headers.begin(), std::make_move_iterator(request.headers.begin()),
                      std::make_move_iterator(request.headers.end()));
  return call;
}

const char *hint_of(long status, bool batch) {
  switch (status) {
  case 401:
  case 403:
    return "It does not accept the sink's credentials: look at token, user and password, "
           "headers and secret in PUBLIC's user mapping, and whether the endpoint knows them.";
  case 404:
  case 405:
  case 410:
    return "No handler accepts events at this url: correct option url, above all its path, or option method.";
  case 407:
    return "Correct proxy_user and proxy_password in PUBLIC's user mapping.";
  case 429:
    return "The endpoint limits requests: set option rate_limit, or ask its operator for a higher limit.";
  default:
    return status >= 300 && status < 400 ? "Set option url to where the endpoint is now: redirects are not followed."
           : status >= 400 && status < 500
               ? batch ? "The endpoint may accept no list of events: drop option batch, or give it the form that it "
                         "reads. Its log may say more."
                       : "The endpoint may accept only other types of events: see its log."
           : status >= 500 ? "See the endpoint's log."
                           : "";
  }
}

/* A complete head is a result, whatever happens to the body. */
HttpVerdict WebhookProtocol::classify_response(const HttpTransfer &answer, CURLcode code,
                                               const HttpContent &content) const {
  const HttpMessage &request = content.messages.at(0);
  const long status = answer.status();
  const bool sent = status >= 200 && status < 300, cut = answer.body_is_cut();
  /* Mask first: of a secret that is cut, a part would stay visible. */
  const std::string text = sent ? std::string() : without_secrets(answer.body(), content, code != CURLE_OK || cut);
  const std::string remaining = answer.header("RateLimit-Remaining");
  const std::string reset = remaining.empty() ? std::string() : answer.header("RateLimit-Reset");
  HttpVerdict verdict =
      classify_answer({.status = status,
                       .body = text,
                       .body_is_cut = cut,
                       .retry_after_ms = sent ? -1 : answer.retry_after_ms(),
                       .rate_limit_remaining = remaining,
                       .rate_limit_reset = reset,
                       .own_url = !request.url.empty(),
                       .idempotency_key = !sent && find_header(request.headers, "idempotency-key")});
  if (!sent) {
    verdict.error = without_secrets(verdict.error, content);
    verdict.hint = hint_of(status, config_->batch.has_value());
  }
  return verdict;
}

/* The status, and the endpoint's name for the request if it gave one. */
std::vector<std::string> WebhookProtocol::acknowledgements(const HttpTransfer &answer,
                                                           const HttpContent &content) const {
  constexpr size_t longest = 100;
  const std::string id = without_secrets(answer.header("X-Request-Id"), content);
  return std::vector(content.messages.size(), "HTTP " + std::to_string(answer.status()) +
                                                  (id.empty() ? "" : ", X-Request-Id " + id.substr(0, longest)));
}

std::string WebhookProtocol::without_secrets(std::string_view text, const HttpContent &content, bool cut) const {
  const std::string &url = content.messages.at(0).url;
  SecretMask of_this_request; /* applied first, while the URL is still complete */
  if (config_->url_is_secret && !url.empty())
    of_this_request.add_url(url);
  if (content.grant)
    of_this_request.add(*content.grant);
  return config_->secrets.masked(of_this_request.masked(text, cut), cut);
}

}  // namespace outbox
