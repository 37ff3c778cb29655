/* outbox_webhook.cpp: the webhook kind of sink, and the library outbox_webhook: events as HTTP requests to one
 * endpoint, one at a time per key, many keys at once. HttpSender (delivery/http/http_sender.h) does the work;
 * webhook_protocol.h is its protocol. */
#include "delivery/engine/kind_library.h"
#include "webhook_kind.h"
#include "webhook_probe.h"
#include "webhook_protocol.h"

namespace outbox {

class WebhookSinkKind final : public WebhookKind {
public:
  std::unique_ptr<Sink> open(const std::string &name, std::shared_ptr<const SinkConfig> config,
                             std::shared_ptr<Reporter> reporter) const override {
    auto webhook = std::dynamic_pointer_cast<const WebhookConfig>(config);
    return std::make_unique<HttpSender>(name, webhook, std::make_shared<WebhookProtocol>(webhook, reporter),
                                        reporter);
  }
  std::shared_ptr<void> probe(std::shared_ptr<const SinkConfig> config, Probe &probe) const override {
    probe_webhook(std::static_pointer_cast<const WebhookConfig>(std::move(config)), probe);
    return nullptr;
  }
  void client_library(ob_client_library &out) const override { describe_libcurl(out); }
};

}  // namespace outbox

OUTBOX_SINK_KIND(outbox::WebhookSinkKind)
