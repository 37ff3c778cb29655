/*
 * aws.cpp: the kind, and the sink, which is an HTTP sender that takes no event before there are credentials to sign
 * with.
 */
#include "aws_probe.h"
#include "delivery/engine/kind_library.h"
#include "delivery/engine/probe.h"
#include "protocol.h"

namespace outbox::aws_sink {
namespace {

class AwsSink final : public Sink {
public:
  AwsSink(const std::string &name, const std::shared_ptr<const AwsConfig> &config,
          const std::shared_ptr<Reporter> &reporter)
      : signer_(std::make_shared<Signer>(config, reporter)),
        sender_(name, std::shared_ptr<const HttpPeer>(config, &config->peer),
                std::make_shared<Protocol>(config, signer_, reporter), reporter) {}

  void keep_acknowledgements(bool keep) override { sender_.keep_acknowledgements(keep); }
  uint32_t credit() const override { return signer_->is_ready() ? sender_.credit() : 0; }
  Submitted submit(const ob_event &event) override {
    return signer_->is_ready() ? sender_.submit(event) : Submitted(false);
  }
  void flush() override { sender_.flush(); }
  void poll() override { sender_.poll(); }
  void pause() override { sender_.pause(); }
  void release_queued() override { sender_.release_queued(); }
  void abandon() override { sender_.abandon(); }

private:
  const std::shared_ptr<Signer> signer_;
  HttpSender sender_;
};

class AwsKind final : public SinkKind {
public:
  AwsKind() : SinkKind("aws") {}

  const std::vector<OptionSpec> &options() const override { return aws_options(); }
  std::vector<OptionName> target_options() const override { return {QUEUE_URL, TOPIC_ARN, EVENT_BUS}; }
  void check_mapping(const Options &mapping) const override { check_user_mapping(mapping); }
  SecretMask secrets(const Options &mapping) const override { return secrets_of(mapping); }
  std::shared_ptr<const SinkConfig> parse(const Options &server, const Options *mapping, Owner) const override {
    return std::make_shared<AwsConfig>(server, mapping);
  }
  std::unique_ptr<Sink> open(const std::string &name, std::shared_ptr<const SinkConfig> config,
                             std::shared_ptr<Reporter> reporter) const override {
    return std::make_unique<AwsSink>(name, std::static_pointer_cast<const AwsConfig>(config), reporter);
  }
  std::shared_ptr<void> probe(std::shared_ptr<const SinkConfig> config, Probe &probe) const override {
    probe_aws(std::static_pointer_cast<const AwsConfig>(config), probe);
    return nullptr;
  }
  bool sends_test_event() const override { return true; }
  std::vector<Advice> advise(const SinkConfig &config, const Options &server, const Options *mapping) const override {
    return advise_aws(static_cast<const AwsConfig &>(config), server, mapping);
  }
  KindDefaults defaults(const Options &server) const override {
    return {
        .max_attempts = 10, .retry = "exponential 100ms..5min", .longest_answer = HttpPeer::longest_answer(server)};
  }
};

}  // namespace
}  // namespace outbox::aws_sink

OUTBOX_SINK_KIND(outbox::aws_sink::AwsKind)
