/* webhook_protocol.h: a webhook's requests and their answers, for the HTTP sender. */
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "delivery/http/http_sender.h"
#include "delivery/identity/renewed.h"
#include "webhook_config.h"

namespace outbox {

/* The next step after a response that is not a success. `batch`: the request was one of several events. Static
 * string. */
const char *hint_of(long status, bool batch = false);

class WebhookProtocol final : public HttpProtocol {
public:
  /* Throws std::system_error if no thread can be started. */
  WebhookProtocol(std::shared_ptr<const WebhookConfig> config, std::shared_ptr<Reporter> reporter);

  const std::string &url() const override { return config_->url(); }
  size_t most_messages() const override { return config_->batch ? config_->batch->events : 1; }
  size_t most_weight() const override { return config_->batch ? config_->batch->bytes : SIZE_MAX; }
  bool carries_runs() const override { return true; }
  std::chrono::milliseconds collects_for() const override {
    return config_->batch ? config_->batch->wait : std::chrono::milliseconds(0);
  }
  HttpMessage render(const ob_event &event) const override { return config_->render(event); }
  std::optional<HttpGrant> grant() const override;
  void refused(const std::shared_ptr<const std::string> &grant) const override;
  HttpCall call(const HttpContent &content) const override;
  HttpVerdict classify_response(const HttpTransfer &answer, CURLcode code, const HttpContent &content) const override;
  std::vector<std::string> acknowledgements(const HttpTransfer &answer, const HttpContent &content) const override;
  /* Also the URL of this request, if it is secret, and its access token. */
  std::string without_secrets(std::string_view text, const HttpContent &content, bool cut = false) const override;

private:
  const std::shared_ptr<const WebhookConfig> config_;
  const std::unique_ptr<Renewed<OauthToken>> tokens_; /* null: the sink uses none */
};

}  // namespace outbox
