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
#include "delivery/sinks/kafka/kafka_record.h"
#include "delivery/sinks/kafka/kafka_security.h"
#include "delivery/sinks/kafka/kafka_token.h"

namespace outbox {

inline constexpr OptionName BOOTSTRAP_SERVERS{"bootstrap_servers"};

using KafkaConf = std::unique_ptr<rd_kafka_conf_t, decltype(&rd_kafka_conf_destroy)>;

class KafkaConfig final : public SinkConfig {
public:
  static const std::vector<OptionSpec> &options();

  KafkaConfig(const Options &server, const Options *mapping, Owner owner = Owner::User); /* throws BadInput */

  void check_event(const ob_event &event) const override;
  void check_new_event(const ob_event &event) const override { maker_.check_new(event); }
  size_t max_payload() const override;
  Preview preview(const ob_event &event, int64_t now) const override;

  /* Makes the record of an event, for submitting, checking at enqueue time and previews. Throws BadInput if it cannot
   * be sent. */
  void record(const ob_event &event, Record &record) const;
  /* Whether records have the time of their events (option "timestamp"), and not that of sending. */
  bool sends_created_at() const { return maker_.sends_created_at(); }
  /* How many messages librdkafka may hold. */
  uint32_t max_messages() const { return max_messages_; }
  /* The user name that the sink authenticates with, if an option sets one; otherwise empty. */
  std::string user() const;
  /* A glob of the topics that events can go to, with "*" for what depends on the event. */
  std::string topic_glob() const { return maker_.topic_glob(); }
  /* Whether the sink lets brokers create topics (allow_auto_create_topics), if they do so. */
  bool lets_topics_be_created() const;
  /* The source of its tokens; null if it has none, librdkafka gets them itself, or the user mapping was not given. */
  const std::shared_ptr<const KafkaTokenSource> &tokens() const { return tokens_; }
  /* Which addresses it may connect to; nothing: all. */
  const std::optional<BrokerGuard> &guard() const { return guard_; }
  /* A new configuration object for librdkafka. */
  KafkaConf conf() const;

private:
  void check_size(size_t record) const; /* throws BadInput */

  KafkaRecordMaker maker_;
  std::optional<BrokerGuard> guard_;
  KafkaProperties properties_; /* the properties that options set */
  std::shared_ptr<const KafkaTokenSource> tokens_;
  uint32_t max_messages_;
  size_t max_message_bytes_;
};

/* Starts a producer with its log on its main queue. Throws BadInput if librdkafka refuses the properties as a whole,
 * or has no broker to start from. */
rd_kafka_t *start_kafka(KafkaConf conf);

}  // namespace outbox
