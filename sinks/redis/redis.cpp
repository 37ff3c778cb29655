/*
 * redis.cpp: the sink, as the main thread sees it, and the kind. The work is done by writer.cpp on the sink's
 * thread.
 */
#include "delivery/engine/queue_sink.h"
#include "delivery/engine/kind_library.h"
#include "delivery/engine/probe.h"

#include "writer.h"
#include "redis_probe.h"

namespace outbox::redis {
namespace {

class RedisSink final : public QueueSink<Message> {
public:
  RedisSink(std::shared_ptr<const RedisConfig> config, std::shared_ptr<Reporter> reporter)
      : config_(config), writer_(std::make_unique<Writer>(std::move(config), std::move(reporter))) {}

private:
  SendQueue &queue() const override { return writer_->queue(); }
  Message render(const ob_event &event) override {
    config_->maker.make(event, entry_);
    return {event.ticket, event.key_hash, event.position, entry_.stream, config_->maker.command(entry_)};
  }

  const std::shared_ptr<const RedisConfig> config_;
  const std::unique_ptr<Writer> writer_;
  Entry entry_;
};

class RedisKind final : public SinkKind {
public:
  RedisKind() : SinkKind("redis") {}

  const std::vector<OptionSpec> &options() const override { return RedisOptions::table().specs(); }
  std::vector<OptionName> target_options() const override { return {HOSTS}; }
  void check_mapping(const Options &mapping) const override {
    RedisOptions options;
    ConnectOptions::read_mapping(mapping, options);
  }
  std::shared_ptr<const SinkConfig> parse(const Options &server, const Options *mapping, Owner owner) const override {
    return std::make_shared<RedisConfig>(server, mapping, owner);
  }
  std::unique_ptr<Sink> open(const std::string & /*name*/, std::shared_ptr<const SinkConfig> config,
                             std::shared_ptr<Reporter> reporter) const override {
    return std::make_unique<RedisSink>(std::static_pointer_cast<const RedisConfig>(std::move(config)),
                                       std::move(reporter));
  }
  std::shared_ptr<void> probe(std::shared_ptr<const SinkConfig> config, Probe &probe) const override {
    probe_redis(static_cast<const RedisConfig &>(*config), probe);
    return nullptr;
  }
  std::vector<Advice> advise(const SinkConfig &config, const Options &server,
                             const Options * /*mapping*/) const override {
    const auto &redis = static_cast<const RedisConfig &>(config);
    std::vector<Advice> found = redis.options.advise(server);
    if (redis.options.hosts.size() > 1 && redis.options.wait_replicas == 0)
      found.push_back({"replicas",
                       "An event counts as delivered when the master alone has it: a failover to a replica that does "
                       "not have it yet loses it.",
                       set_option(server, WAIT_REPLICAS, "1") + " -- waits until that number of replicas has it"});
    if (!redis.options.maxlen)
      found.push_back({"maxlen",
                       "Its streams are not trimmed: they grow until the server has no memory, unless consumers trim "
                       "them.",
                       "-- trims each stream to about this number of its latest entries, read or not: " +
                           set_option(server, MAXLEN, "1000000"),
                       true});
    return found;
  }
  KindDefaults defaults(const Options &server) const override {
    RedisOptions options;
    RedisOptions::table().read_one(server, MAX_MESSAGE_BYTES, options);
    return {.max_attempts = 10, .retry = "exponential 100ms..5min", .largest_message = options.max_message_bytes};
  }
};

}  // namespace
}  // namespace outbox::redis

OUTBOX_SINK_KIND(outbox::redis::RedisKind)
