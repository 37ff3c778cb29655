/* kafka_config.h: the parsed options of a Kafka sink. */
#pragma once

#include <librdkafka/rdkafka.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "delivery/engine/sink.h"
#include "delivery/net/broker_guard.h"
#include "kafka_messages.h"
#include "kafka_security.h"
#include "kafka_token.h"

namespace outbox {

using KafkaConf = std::unique_ptr<rd_kafka_conf_t, decltype(&rd_kafka_conf_destroy)>;

/* The options that are no properties of librdkafka. */
struct KafkaOptions : KafkaRecordOptions, KafkaTokenOptions {
  std::string bootstrap_servers;
  std::vector<Network> networks; /* that a superuser allows */

  static const OptionTable<KafkaOptions> &table();
  static KafkaOptions parse(const Options &server, const Options *mapping); /* throws BadInput */
};

class KafkaConfig final : public KafkaMessages {
public:
  KafkaConfig(const Options &server, const Options *mapping, Owner owner = Owner::User); /* throws BadInput */

  /* How many messages librdkafka may hold. */
  uint32_t max_messages() const { return max_messages_; }
  /* How many bytes of messages librdkafka may hold. */
  size_t max_bytes() const { return max_bytes_; }
  /* The user name that the sink authenticates with, if an option sets one; otherwise empty. */
  std::string user() const;
  /* Whether the sink lets brokers create topics (allow_auto_create_topics), if they do so. */
  bool lets_topics_be_created() const;
  /* The source of its tokens; null if it has none, librdkafka gets them itself, or the user mapping was not given. */
  const std::shared_ptr<const KafkaTokenSource> &tokens() const { return tokens_; }
  /* Which addresses it may connect to; nothing: all. */
  const std::optional<BrokerGuard> &guard() const { return guard_; }
  /* A new configuration object for librdkafka. */
  KafkaConf conf() const;

private:
  KafkaConfig(const KafkaOptions &options, const Options &server, const Options *mapping, Owner owner);

  std::optional<BrokerGuard> guard_;
  KafkaProperties properties_; /* the properties that options set */
  std::shared_ptr<const KafkaTokenSource> tokens_;
  uint32_t max_messages_;
  size_t max_bytes_;
};

/* Starts a producer with its log on its main queue. Throws BadInput if librdkafka refuses the properties as a whole,
 * or has no broker to start from. */
rd_kafka_t *start_kafka(KafkaConf conf);

}  // namespace outbox
