/* webhook.cpp: the webhook kind of sink: events as HTTP requests to one endpoint, one at a time per key, many keys at
 * once. HttpSender (delivery/http/http_sender.h) does the work; webhook_protocol.h is its protocol. */
#include "delivery/engine/sink.h"
#include "delivery/sinks/webhook/webhook_options.h"
#include "delivery/sinks/webhook/webhook_probe.h"
#include "delivery/sinks/webhook/webhook_protocol.h"

namespace outbox {
namespace {

class WebhookKind final : public SinkKind {
public:
  WebhookKind() : SinkKind("webhook") {}
  const std::vector<OptionSpec> &options() const override { return webhook_options(); }
  std::vector<OptionName> target_options() const override { return {URL}; }
  void check_mapping(const Options &mapping) const override {
    WebhookAuth::parse(mapping);
    HttpPeer::check_mapping(mapping);
  }
  SecretMask secrets(const Options &mapping) const override { return webhook_secrets(mapping); }
  std::shared_ptr<const SinkConfig> parse(const Options &server, const Options *mapping, Owner) const override {
    return parse_webhook(server, mapping);
  }
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
  std::vector<Advice> advise(const SinkConfig & /*config*/, const Options & /*server*/,
                             const Options *mapping) const override {
    if (mapping && find_option(*mapping, SECRET))
      return {};
    return {{"signature",
             "It has no secret: its requests are not signed, and a receiver cannot tell them from forged ones.",
             "-- give it a secret, 24 to 64 random bytes in base64, and the receiver the same: " +
                 set_in_mapping(mapping, {{SECRET, "whsec_..."}})}};
  }
  bool sends_test_event() const override { return true; }
  /* The schedule of the Standard Webhooks specification: ten attempts within about three days. */
  KindDefaults defaults(const Options &server) const override {
    return {.max_attempts = 10,
            .retry = "5s, 5m, 30m, 2h, 5h, 10h, 14h, 20h, 24h",
            .disable_after = disable_after_of(server),
            .longest_answer = HttpPeer::longest_answer(server)};
  }
};

[[maybe_unused]] const auto *const webhook_kind = new WebhookKind;

}  // namespace
}  // namespace outbox
