/* webhook_transfer.h: one request of a webhook in flight. Threads: those of HttpTransfer. */
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "delivery/http/http_transfer.h"
#include "delivery/sinks/webhook/webhook_config.h"

namespace outbox {

class WebhookTransfer : public HttpTransfer {
public:
  WebhookTransfer(const std::shared_ptr<const WebhookConfig> &config, const std::string &sink);

  /* Prepares the handle for this request: adds timestamp and signature. */
  void prepare(WebhookRequest request);
  /* The result of the transfer that ended with `code`. */
  HttpVerdict verdict(CURLcode code) const;
  /* Of a delivered event: the status, and the endpoint's name for the request if it gave one. */
  std::string acknowledgement() const;
  /* The access token that the endpoint has refused by 401; null if it has not. */
  std::shared_ptr<const OauthToken> refused_token(CURLcode code) const;
  /* Frees the request, so that an idle handle holds no event: a text to which an empty one is assigned would keep its
   * memory. */
  void clear() { const WebhookRequest ended = std::exchange(request_, WebhookRequest()); }

private:
  HttpVerdict classify(bool whole_body) const;

  std::shared_ptr<const WebhookConfig> config_;
  WebhookRequest request_;
};

}  // namespace outbox
