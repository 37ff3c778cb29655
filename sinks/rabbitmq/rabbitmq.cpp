/*
 * rabbitmq.cpp: the sink, as the main thread sees it, and the kind. The work is done by publisher.cpp on the sink's
 * thread.
 */
#include "delivery/engine/queue_sink.h"
#include "delivery/engine/kind_library.h"
#include "delivery/engine/probe.h"

#include "delivery/base/text_view.h"
#include "publisher.h"
#include "rabbitmq_probe.h"

namespace outbox::rabbitmq {
namespace {

class RabbitSink final : public QueueSink<Message> {
public:
  RabbitSink(std::shared_ptr<const RabbitConfig> config, std::shared_ptr<Reporter> reporter)
      : config_(config), publisher_(std::make_unique<Publisher>(std::move(config), std::move(reporter))) {}

private:
  SendQueue &queue() const override { return publisher_->queue(); }
  Message render(const ob_event &event) override {
    config_->maker.make(event, content_);
    Message message{event.ticket,
                    event.key_hash,
                    event.position,
                    {},
                    content_.exchange,
                    content_.routing_key,
                    encode_properties(content_.properties, content_.headers_size),
                    {}};
    view(content_.properties.message_id).copy(message.id.data(), message.id.size());
    message.body = outbox::view(content_.body);
    return message;
  }

  const std::shared_ptr<const RabbitConfig> config_;
  const std::unique_ptr<Publisher> publisher_;
  Content content_;
};

class RabbitKind final : public SinkKind {
public:
  RabbitKind() : SinkKind("rabbitmq") {}

  const std::vector<OptionSpec> &options() const override { return RabbitOptions::table().specs(); }
  std::vector<OptionName> target_options() const override { return {HOSTS}; }
  void check_mapping(const Options &mapping) const override {
    RabbitOptions options;
    ConnectOptions::read_mapping(mapping, options);
  }
  std::shared_ptr<const SinkConfig> parse(const Options &server, const Options *mapping, Owner owner) const override {
    return std::make_shared<RabbitConfig>(server, mapping, owner);
  }
  std::unique_ptr<Sink> open(const std::string & /*name*/, std::shared_ptr<const SinkConfig> config,
                             std::shared_ptr<Reporter> reporter) const override {
    return std::make_unique<RabbitSink>(std::static_pointer_cast<const RabbitConfig>(std::move(config)),
                                        std::move(reporter));
  }
  std::shared_ptr<void> probe(std::shared_ptr<const SinkConfig> config, Probe &probe) const override {
    probe_rabbitmq(static_cast<const RabbitConfig &>(*config), probe);
    return nullptr;
  }
  std::vector<Advice> advise(const SinkConfig &config, const Options &server, const Options *mapping) const override {
    const RabbitOptions &options = static_cast<const RabbitConfig &>(config).options;
    std::vector<Advice> found = options.advise(server);
    if (!options.mandatory)
      found.push_back({"mandatory",
                       "An event that no queue takes counts as delivered, and is lost: the broker is not asked to "
                       "return it. Only an exchange that returns what it delivers (x-delayed-message) needs that.",
                       set_option(server, MANDATORY, "true"), true});
    if (options.user == "guest" && options.leaves_this_machine())
      found.push_back(
          {"login",
           "It logs in as guest, whom RabbitMQ accepts only from its own machine unless loopback_users "
           "says otherwise; everybody knows the password.",
           "-- make a user at the broker: " + set_in_mapping(mapping, {{USER, "..."}, {PASSWORD, "..."}})});
    return found;
  }
  KindDefaults defaults(const Options &server) const override {
    RabbitOptions options;
    RabbitOptions::table().read_one(server, MAX_MESSAGE_BYTES, options);
    return {.max_attempts = 10, .retry = "exponential 100ms..5min", .largest_message = options.max_message_bytes};
  }
};

}  // namespace
}  // namespace outbox::rabbitmq

OUTBOX_SINK_KIND(outbox::rabbitmq::RabbitKind)
