/* grpc.cpp: the kind of sink. HttpSender (delivery/http/http_sender.h) does the work; grpc_config.h is its protocol.
 */
#include "delivery/engine/kind_library.h"

#include "grpc_config.h"
#include "grpc_probe.h"

namespace outbox::grpc {
namespace {

class GrpcKind final : public SinkKind {
public:
  GrpcKind() : SinkKind("grpc") {}

  const std::vector<OptionSpec> &options() const override { return GrpcOptions::table().specs(); }
  std::vector<OptionName> target_options() const override { return {URL}; }
  void check_mapping(const Options &mapping) const override { GrpcOptions().read_mapping(mapping); }
  SecretMask secrets(const SinkConfig &config, const Options & /*mapping*/) const override {
    return static_cast<const GrpcConfig &>(config).secrets;
  }
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
    if (config.max_payload() > default_max_message)
      found.push_back(
          {"size",
           "It takes larger events than servers receive by default (4 MiB): such a server refuses each of "
           "them with RESOURCE_EXHAUSTED.",
           "-- if the server was not told to receive more: " +
               set_option(server, MAX_MESSAGE, size_text(default_max_message)),
           true});
    return found;
  }
  void client_library(ob_client_library &out) const override { describe_libcurl(out); }
  KindDefaults defaults(const Options &server) const override {
    GrpcOptions options;
    GrpcOptions::table().read_one(server, MAX_MESSAGE, options);
    return {.max_attempts = 10,
            .retry = "100ms..5min",
            .largest_message = options.max_message,
            .longest_answer = HttpPeer::longest_answer(server)};
  }
};

}  // namespace
}  // namespace outbox::grpc

OUTBOX_SINK_KIND(outbox::grpc::GrpcKind)
