/* kafka_record.h: the options that define the Kafka record of an event, and the code that makes it. */
#pragma once

#include <optional>

#include "delivery/engine/sink.h"
#include "delivery/formats/record_maker.h"
#include "delivery/options/template.h"

namespace outbox {

enum class KeyFormat {
  Raw,         /* the key's text */
  Json,        /* a JSON string: JsonConverter */
  ConnectJson, /* a JSON string with its schema: JsonConverter with schemas.enable */
  Base64       /* the bytes that the key's text encodes */
};

inline constexpr OptionName TOPIC{"topic"}, TIMESTAMP{"timestamp"};

/* The options that define the record of an event. */
struct KafkaRecordOptions : FormatOptions {
  Template topic = Template::parse(TOPIC, "outbox.event.${aggregate_type}");
  std::optional<Template> key;       /* not set: the event's partition key */
  std::optional<Template> partition; /* not set: chosen by the key */
  bool partition_is_column = false;  /* additional_placement names it: a NULL column means chosen by the key */
  KeyFormat key_format = KeyFormat::Raw;
  bool created_at = false; /* the record's timestamp is created_at, otherwise the time of sending */

  static std::vector<Row<KafkaRecordOptions>> rows();
  /* After they were read: checks them together. Throws BadInput. */
  void complete_record(const Options &server);
  /* Both, where nothing else is read. */
  static KafkaRecordOptions parse(const Options &server);
};

class KafkaRecordMaker : public RecordMaker {
public:
  explicit KafkaRecordMaker(const KafkaRecordOptions &options);

  /* Throws BadInput if the event cannot be sent with these options. */
  void make(const ob_event &event, Record &record) const;

  /* The check at enqueue time, when only the payload's length is known: makes the record without the payload and
   * throws BadInput as make() would. Returns the minimum size of the record in bytes. */
  size_t check(const ob_event &event) const;

  /* Whether records have the time of their events, and not that of sending. */
  bool sends_created_at() const { return options_.created_at; }

  /* The possible topic names, with "*" for what depends on the event. */
  std::string topic_glob() const { return options_.topic.glob(); }

private:
  void make_topic(const ob_event &event, Record &record) const;
  void make_key(const ob_event &event, Record &record) const;
  void make_partition(const ob_event &event, Record &record) const;

  const KafkaRecordOptions options_;
};

}  // namespace outbox
