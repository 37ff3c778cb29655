/* grpc.cpp: the kind of sink. HttpSender (delivery/http/http_sender.h) does the work; grpc_config.h is its protocol.
 */
#include "delivery/engine/kind_library.h"

#include "grpc_config.h"
#include "grpc_options.h"
#include "grpc_probe.h"

namespace outbox::grpc {
namespace {

class GrpcKind final : public SinkKind {
public:
  GrpcKind() : SinkKind("grpc") {}

  const std::vector<OptionSpec> &options() const override { return grpc_options(); }
  std::vector<OptionName> target_options() const override { return {URL}; }
  void check_mapping(const Options &mapping) const override { check_user_mapping(mapping); }
  SecretMask secrets(const Options &mapping) const override { return secrets_of(mapping); }
  std::shared_ptr<const SinkConfig> parse(const Options &server, const Options *mapping, Owner) const override {
    return std::make_shared<GrpcConfig>(server, mapping);
  }
  std::unique_ptr<Sink> open(const std::string &name, std::shared_ptr<const SinkConfig> config,
                             std::shared_ptr<Reporter> reporter) const override {
    auto grpc = std::static_pointer_cast<const GrpcConfig>(config);
    return std::make_unique<HttpSender>(name, grpc, grpc, std::move(reporter));
  }
  std::shared_ptr<void> probe(std::shared_ptr<const SinkConfig> config, Probe &probe) const override {
    probe_grpc(std::static_pointer_cast<const GrpcConfig>(config), probe);
    return nullptr;
  }
  std::vector<Advice> advise(const SinkConfig &config, const Options &server,
                             const Options * /*mapping*/) const override {
    std::vector<Advice> found = HttpPeer::advise(server, URL);
    if (config.max_payload() > default_max_message_bytes)
      found.push_back(
          {"size",
           "It takes larger events than servers receive by default (4 MiB): such a server refuses each of "
           "them with RESOURCE_EXHAUSTED.",
           "-- if the server was not told to receive more: " +
               set_option(server, MAX_MESSAGE_BYTES, std::to_string(default_max_message_bytes)),
           true});
    return found;
  }
  void client_library(ob_client_library &out) const override { describe_libcurl(out); }
  KindDefaults defaults(const Options &server) const override {
    KindDefaults defaults{10, "exponential 100ms..5min"};
    read_option(server, MAX_MESSAGE_BYTES, parse_max_message_bytes, defaults.largest_message);
    defaults.longest_answer = HttpPeer::longest_answer(server);
    return defaults;
  }
};

}  // namespace
}  // namespace outbox::grpc

OUTBOX_SINK_KIND(outbox::grpc::GrpcKind)
