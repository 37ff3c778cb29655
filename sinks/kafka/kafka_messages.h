/*
 * kafka_messages.h: the options of a Kafka sink that shape its records, and the record that they make of an event.
 * It needs no librdkafka, which would cost each session that enqueues 1 ms.
 */
#pragma once

#include "delivery/engine/sink.h"
#include "kafka_record.h"

namespace outbox {

inline constexpr OptionName BOOTSTRAP_SERVERS{"bootstrap_servers"},
    MESSAGE_MAX_BYTES{"message_max_bytes"}; /* librdkafka's message.max.bytes */

KindDefaults kafka_defaults(const Options &server);

class KafkaMessages : public SinkConfig {
public:
  /* `server`: for message_max_bytes. */
  KafkaMessages(const KafkaRecordOptions &options, const Options &server);

  void check_event(const ob_event &event) const override;
  void check_new_event(const ob_event &event) const override { maker_.check_new(event); }
  size_t max_payload() const override;
  Preview preview(const ob_event &event, int64_t now) const override;

  /* Makes the record of an event, for submitting, checking at enqueue time and previews. Throws BadInput if it cannot
   * be sent. */
  void record(const ob_event &event, Record &record) const;
  /* Whether records have the time of their events (option "timestamp"), and not that of sending. */
  bool sends_created_at() const { return maker_.sends_created_at(); }
  /* A glob of the topics that events can go to, with "*" for what depends on the event. */
  std::string topic_glob() const { return maker_.topic_glob(); }
  size_t max_message_bytes() const { return max_message_bytes_; }

private:
  void check_size(size_t record) const; /* throws BadInput */

  KafkaRecordMaker maker_;
  size_t max_message_bytes_;
};

}  // namespace outbox
