/* kafka_record.h: the options that say what is sent of an event to Kafka, and the record that they make of it. */
#pragma once

#include <memory>
#include <optional>

#include "delivery/engine/sink.h"
#include "delivery/formats/record_format.h"
#include "delivery/options/template.h"

namespace outbox {

enum class KeyFormat {
  Raw,         /* its text */
  Json,        /* a JSON string: JsonConverter */
  ConnectJson, /* a JSON string with its schema: JsonConverter with schemas.enable */
  Base64       /* the bytes behind its text */
};

class KafkaRecordMaker {
public:
  static const std::vector<OptionSpec> &options();

  explicit KafkaRecordMaker(const Options &server); /* throws BadInput */

  /* Throws BadInput when the event cannot be sent with these options. */
  void make(const ob_event &event, Record &record) const;

  /* At enqueue time, when only the payload's length is known: makes what can be made without it, and throws BadInput
   * as make() would. Returns the size that the record has at least. */
  size_t check(const ob_event &event) const;

  /* At enqueue time alone: throws BadInput for an event that make() takes, but whose writer has probably made a
   * mistake. */
  void check_new(const ob_event &event) const { format_->check_new(event); }

  /* The largest payload that may fit into `value` bytes. */
  size_t max_payload(size_t value) const;

  /* The names that a record's topic can have, with "*" for what depends on the event. */
  std::string topic_glob() const { return topic_.glob(); }

private:
  void make_key(const ob_event &event, Record &record) const;
  void make_partition(const ob_event &event, Record &record) const;

  Template topic_;
  std::optional<Template> key_;       /* not set: the partition key */
  std::optional<Template> partition_; /* not set: by the key */
  bool partition_is_column_ = false;  /* of `headers`: NULL means by the key */
  KeyFormat key_format_;
  bool created_at_; /* is the record's timestamp */
  std::unique_ptr<const RecordFormat> format_;
};

}  // namespace outbox
