/* outbox_kafka.cpp: the Kafka kind of sink, and the library outbox_kafka. */
#include "delivery/engine/kind_library.h"
#include "kafka_library.h"
#include "kafka_probe.h"
#include "kafka_properties.h"
#include "kafka_sink.h"

namespace outbox {

class KafkaKind final : public SinkKind {
public:
  KafkaKind() : SinkKind("kafka") {}

  const std::vector<OptionSpec> &options() const override { return KafkaOptions::table().specs(); }
  std::vector<OptionName> target_options() const override { return {BOOTSTRAP_SERVERS}; }
  bool check_other(ob_scope scope, const std::string &name, const std::string &value, bool superuser) const override {
    return check_kafka_property(scope, name, value, superuser);
  }
  void other_names(ob_scope scope, std::vector<const char *> &names) const override {
    kafka_property_names(scope, names);
  }
  void check_mapping(const Options &mapping) const override {
    KafkaProperties given;
    add_kafka_properties(mapping, given);
    check_kafka_key(given);
    KafkaOptions options;
    KafkaOptions::table().read(mapping, OB_USER_MAPPING, options);
    options.check_mapping();
  }
  SecretMask secrets(const SinkConfig &config, const Options &mapping) const override {
    KafkaProperties given;
    add_kafka_properties(mapping, given);
    SecretMask mask = SinkKind::secrets(config, mapping);
    auto user = given.find("sasl.username");
    for (auto &[name, value] : given)
      if (is_secret_kafka_property(name) &&
          (user == given.end() || value != user->second)) /* the user name is not secret */
        mask.add(value);
    return mask;
  }
  std::vector<Advice> advise(const SinkConfig &config, const Options &server,
                             const Options * /*mapping*/) const override {
    if (!static_cast<const KafkaConfig &>(config).sends_created_at())
      return {};
    return {
        {"timestamp",
         "Its records have the time of their events. A topic deletes an event that is sent later than its "
         "retention.ms, by a replay, a redrive or after a long outage, soon after it was acknowledged, and refuses "
         "one that is later than its message.timestamp.before.max.ms.",
         set_option(server, TIMESTAMP, "now") +
             " -- consumers find the time of the event in a header with additional_placement 'created_at:header'",
         true}};
  }
  std::shared_ptr<const SinkConfig> parse(const Options &server, const Options *mapping, Owner owner) const override {
    return std::make_shared<KafkaConfig>(server, mapping, owner);
  }
  std::unique_ptr<Sink> open(const std::string & /*name*/, std::shared_ptr<const SinkConfig> config,
                             std::shared_ptr<Reporter> reporter) const override {
    require_librdkafka();
    return std::make_unique<KafkaSink>(std::static_pointer_cast<const KafkaConfig>(std::move(config)),
                                       std::move(reporter), extra_producers_);
  }
  std::shared_ptr<void> probe(std::shared_ptr<const SinkConfig> config, Probe &probe) const override {
    require_librdkafka();
    return probe_kafka(static_cast<const KafkaConfig &>(*config), probe);
  }
  KindDefaults defaults(const Options &server) const override { return kafka_defaults(server); }
  void client_library(ob_client_library &out) const override { describe_librdkafka(out); }

private:
  const std::shared_ptr<KafkaExtraProducers> extra_producers_ = std::make_shared<KafkaExtraProducers>();
};

}  // namespace outbox

OUTBOX_SINK_KIND(outbox::KafkaKind)
