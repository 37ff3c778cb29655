/* webhook_kind.h: the webhook kind of sink, but for what connects. */
#pragma once

#include "webhook_config.h"
#include "webhook_options.h"

namespace outbox {

class WebhookKind : public SinkKind {
public:
  WebhookKind() : SinkKind("webhook") {}
  const std::vector<OptionSpec> &options() const override { return WebhookOptions::table().specs(); }
  std::vector<OptionName> target_options() const override { return {URL}; }
  void check_mapping(const Options &mapping) const override { WebhookOptions().read_mapping(mapping); }
  SecretMask secrets(const SinkConfig &config, const Options & /*mapping*/) const override {
    return static_cast<const WebhookConfig &>(config).secrets;
  }
  std::shared_ptr<const SinkConfig> parse(const Options &server, const Options *mapping, Owner) const override {
    return parse_webhook(server, mapping);
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
  /* The schedule of the Standard Webhooks specification: ten attempts within about three days. */
  KindDefaults defaults(const Options &server) const override {
    WebhookOptions options;
    WebhookOptions::table().read_one(server, DISABLE_AFTER, options);
    return {.max_attempts = 10,
            .retry = "5s, 5m, 30m, 2h, 5h, 10h, 14h, 20h, 24h",
            .disable_after = options.disable_after,
            .longest_answer = HttpPeer::longest_answer(server)};
  }
};

}  // namespace outbox
