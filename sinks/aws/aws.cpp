/* aws.cpp: the kind of sink. HttpSender (delivery/http/http_sender.h) does the work; protocol.h is its protocol. */
#include "aws_probe.h"
#include "delivery/engine/kind_library.h"
#include "delivery/engine/probe.h"
#include "protocol.h"

namespace outbox::aws_sink {
namespace {

class AwsKind final : public SinkKind {
public:
  AwsKind() : SinkKind("aws") {}

  const std::vector<OptionSpec> &options() const override { return AwsOptions::table().specs(); }
  std::vector<OptionName> target_options() const override { return {TARGET}; }
  void check_mapping(const Options &mapping) const override { AwsOptions().read_mapping(mapping); }
  SecretMask secrets(const SinkConfig &config, const Options & /*mapping*/) const override {
    return static_cast<const AwsConfig &>(config).secrets;
  }
  std::shared_ptr<const SinkConfig> parse(const Options &server, const Options *mapping, Owner) const override {
    return std::make_shared<AwsConfig>(server, mapping);
  }
  std::unique_ptr<Sink> open(const std::string &name, std::shared_ptr<const SinkConfig> config,
                             std::shared_ptr<Reporter> reporter) const override {
    auto aws = std::static_pointer_cast<const AwsConfig>(config);
    auto signer = std::make_shared<Signer>(aws, reporter);
    return std::make_unique<HttpSender>(name, aws, std::make_shared<Protocol>(aws, std::move(signer), reporter),
                                        reporter);
  }
  std::shared_ptr<void> probe(std::shared_ptr<const SinkConfig> config, Probe &probe) const override {
    probe_aws(std::static_pointer_cast<const AwsConfig>(config), probe);
    return nullptr;
  }
  std::vector<Advice> advise(const SinkConfig &config, const Options &server,
                             const Options * /*mapping*/) const override {
    return advise_aws(static_cast<const AwsConfig &>(config), server);
  }
  void client_library(ob_client_library &out) const override { describe_libcurl(out); }
  KindDefaults defaults(const Options &server) const override {
    return {.max_attempts = 10, .retry = "100ms..5min", .longest_answer = HttpPeer::longest_answer(server)};
  }
};

}  // namespace
}  // namespace outbox::aws_sink

OUTBOX_SINK_KIND(outbox::aws_sink::AwsKind)
