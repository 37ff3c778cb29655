/*
 * nats.cpp: the sink, as the main thread sees it, and the kind. The work is done by publisher.cpp on the sink's
 * thread.
 */
#include "delivery/engine/queue_sink.h"
#include "delivery/engine/kind_library.h"
#include "delivery/engine/probe.h"

#include "delivery/base/text_view.h"
#include "nats_probe.h"
#include "publisher.h"

namespace outbox::nats {
namespace {

class NatsSink final : public QueueSink<Message> {
public:
  NatsSink(std::shared_ptr<const NatsConfig> config, std::shared_ptr<Reporter> reporter)
      : config_(config), publisher_(std::make_unique<Publisher>(std::move(config), std::move(reporter))) {}

private:
  SendQueue &queue() const override { return publisher_->queue(); }
  Message render(const ob_event &event) override {
    config_->maker.make(event, content_);
    const bool is_first_try = event.attempt == 1 && !event.failed;
    Message message{event.ticket,
                    event.key_hash,
                    event.position,
                    content_.subject,
                    {},
                    content_.headers.size(),
                    is_first_try ? event.created_at_us : INT64_MIN};
    message.data.reserve(content_.size());
    (message.data = content_.headers) += view(content_.body);
    return message;
  }

  const std::shared_ptr<const NatsConfig> config_;
  const std::unique_ptr<Publisher> publisher_;
  Content content_;
};

class NatsKind final : public SinkKind {
public:
  NatsKind() : SinkKind("nats") {}

  const std::vector<OptionSpec> &options() const override { return NatsOptions::table().specs(); }
  std::vector<OptionName> target_options() const override { return {HOSTS}; }
  void check_mapping(const Options &mapping) const override {
    NatsOptions options;
    ConnectOptions::read_mapping(mapping, options);
  }
  SecretMask secrets(const SinkConfig &config, const Options &mapping) const override {
    SecretMask mask = SinkKind::secrets(config, mapping);
    if (const auto &parts = static_cast<const NatsConfig &>(config).options.credentials) {
      mask.add(parts->jwt);
      mask.add(parts->seed);
    }
    return mask;
  }
  std::shared_ptr<const SinkConfig> parse(const Options &server, const Options *mapping, Owner owner) const override {
    return std::make_shared<NatsConfig>(server, mapping, owner);
  }
  std::unique_ptr<Sink> open(const std::string & /*name*/, std::shared_ptr<const SinkConfig> config,
                             std::shared_ptr<Reporter> reporter) const override {
    return std::make_unique<NatsSink>(std::static_pointer_cast<const NatsConfig>(std::move(config)),
                                      std::move(reporter));
  }
  std::shared_ptr<void> probe(std::shared_ptr<const SinkConfig> config, Probe &probe) const override {
    probe_nats(static_cast<const NatsConfig &>(*config), probe);
    return nullptr;
  }
  std::vector<Advice> advise(const SinkConfig &config, const Options &server,
                             const Options * /*mapping*/) const override {
    std::vector<Advice> found = static_cast<const NatsConfig &>(config).options.advise(server);
    if (!find_option(server, STREAM))
      found.push_back(
          {"stream",
           "It names no stream: an event counts as delivered when any stream that takes its subject has it, "
           "also one that keeps it in memory only, or is somebody else's.",
           "-- name the stream that is meant for these events, such as ORDERS: " +
               set_option(server, STREAM, "ORDERS"),
           true});
    return found;
  }
  KindDefaults defaults(const Options &server) const override {
    NatsOptions options;
    NatsOptions::table().read_one(server, MAX_MESSAGE_BYTES, options);
    return {.max_attempts = 10, .retry = "exponential 100ms..5min", .largest_message = options.max_message_bytes};
  }
};

}  // namespace
}  // namespace outbox::nats

OUTBOX_SINK_KIND(outbox::nats::NatsKind)
