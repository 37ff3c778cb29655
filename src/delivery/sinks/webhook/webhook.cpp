/* webhook.cpp: the webhook kind of sink: events as HTTP requests to one endpoint, one at a time per key, many keys at
 * once. */
#include "delivery/engine/sink.h"
#include "delivery/http/http_loop.h"
#include "delivery/sinks/webhook/webhook_config.h"
#include "delivery/sinks/webhook/webhook_endpoint.h"
#include "delivery/sinks/webhook/webhook_options.h"
#include "delivery/sinks/webhook/webhook_probe.h"

namespace outbox {
namespace {

class WebhookSink final : public Sink {
public:
  WebhookSink(const std::string &name, const std::shared_ptr<const WebhookConfig> &config,
              std::shared_ptr<Reporter> reporter)
      : config_(config), loop_(HttpLoop::shared()),
        endpoint_(std::make_shared<Endpoint>(name, config, std::move(reporter))) {
    if (config->oauth)
      tokens_ =
          std::make_unique<Renewed<OauthToken>>([config](const Stop &stop) { return config->oauth->fetch(stop); },
                                                [this] { endpoint_->tokens_changed(*loop_); });
    endpoint_->use_tokens(tokens_.get());
    loop_->post([n = static_cast<long>(config->concurrency)](HttpLoop &loop) { loop.keep_connections(n); });
  }
  ~WebhookSink() override {
    try {
      endpoint_->stop(*loop_);
    } catch (...) {  // out of memory: the rest ends with the loop
    }
  }

  uint32_t credit() const override { return endpoint_->credit(); }
  Time credit_at() const override { return endpoint_->credit_at(); }
  void share(size_t index, size_t of, int64_t *rate_clock) override { endpoint_->share(index, of, rate_clock); }
  void keep_acknowledgements(bool keep) override { endpoint_->keep_acknowledgements(keep); }
  void begin_slowly() override { endpoint_->begin_slowly(); }
  Time paused_until() const override { return endpoint_->paused_until(); }
  void end_pause() override { endpoint_->end_pause(*loop_); }
  Submitted submit(const ob_event &event) override {
    if (endpoint_->full())
      return false;
    endpoint_->push(config_->render(event));
    return true;
  }
  void flush() override { endpoint_->wake(*loop_); }
  void poll() override {
    if (endpoint_->report_failures())
      endpoint_->wake(*loop_);
  }
  void pause() override {
    endpoint_->begin_outage();
    endpoint_->release_queued("not sent: the endpoint is down");
  }
  void release_queued() override { endpoint_->release_queued("not sent yet"); }
  void abandon() override {
    endpoint_->report_failures();
    endpoint_->abandon(*loop_);
  }

private:
  std::shared_ptr<const WebhookConfig> config_;
  std::shared_ptr<HttpLoop> loop_;  // destroyed after the endpoint; the loop's tasks must not own the loop
  std::shared_ptr<Endpoint> endpoint_;
  // Null if the sink uses none; last member: its thread uses the others.
  std::unique_ptr<Renewed<OauthToken>> tokens_;
};

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
    return std::make_unique<WebhookSink>(name, std::dynamic_pointer_cast<const WebhookConfig>(config),
                                         std::move(reporter));
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
