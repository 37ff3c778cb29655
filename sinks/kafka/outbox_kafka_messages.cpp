/* outbox_kafka_messages.cpp: the library outbox_kafka_messages, for sessions that check events. */
#include "delivery/engine/kind_library.h"
#include "kafka_messages.h"

namespace outbox {

static const OptionTable<KafkaRecordOptions> &table() {
  static const auto &table = *new OptionTable<KafkaRecordOptions>(KafkaRecordOptions::rows());
  return table;
}

class KafkaMessagesKind final : public SinkKind {
public:
  KafkaMessagesKind() : SinkKind("kafka") {}
  const std::vector<OptionSpec> &options() const override { return table().specs(); }
  /* CREATE SERVER has checked the others, and the worker will. */
  bool check_other(ob_scope, const std::string &, const std::string &, bool) const override { return true; }
  std::vector<OptionName> target_options() const override { return {BOOTSTRAP_SERVERS}; }
  std::shared_ptr<const SinkConfig> parse(const Options &server, const Options *, Owner) const override {
    return std::make_shared<KafkaMessages>(KafkaRecordOptions::parse(server), server);
  }
  KindDefaults defaults(const Options &server) const override { return kafka_defaults(server); }
};

}  // namespace outbox

OUTBOX_MESSAGES_KIND(outbox::KafkaMessagesKind)
