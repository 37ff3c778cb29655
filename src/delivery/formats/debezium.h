/*
 * debezium.h: the record that Debezium's Outbox Event Router would have sent, so that its consumers need no change.
 * By default what its string converters write: the header `id`, and the payload's text as the value. Format `raw` is
 * that as well, for events that are nobody's but the application's.
 */
#pragma once

#include <optional>

#include "delivery/formats/json_text.h"
#include "delivery/formats/placement.h"
#include "delivery/formats/record_format.h"

namespace outbox {

/* The value, and the converter of Kafka Connect that writes it so. Bytes are never converted, but for an envelope. */
enum class ValueFormat {
  Raw,         /* the payload's text: StringConverter */
  JsonString,  /* a JSON string that holds it: JsonConverter */
  JsonCompact, /* JSON without white space: JsonConverter behind table.expand.json.payload */
  ConnectJson, /* a JSON string with its schema: JsonConverter with schemas.enable */
  Bytes        /* nothing but bytes: BinaryDataConverter */
};

class Debezium final : public RecordFormat {
public:
  struct Options {
    ValueFormat value = ValueFormat::Raw;
    NullBehavior nulls = NullBehavior::Keep;
    /* A payload that is NULL: true, no value; false, JSON formats write null. Not set: no value, for events that were
     * enqueued before; new ones are refused. */
    std::optional<bool> tombstone;
    bool id_header = true;     /* under the name `id` */
    bool content_type = false; /* as a header, where the event has one */
    std::vector<Placement> placements;
  };
  explicit Debezium(const Options &options);

  void write(const ob_event &event, Record &record) const override;
  void check(const ob_event &event) const override;
  void check_new(const ob_event &event) const override;
  bool reads_payload(const ob_event &event) const override;
  size_t shrinks() const override;

private:
  void write_value(const ob_event &event, Record &record) const;
  void append_payload(const ob_event &event, std::string &out) const;
  void append_envelope(const ob_event &event, Record &record, std::string &out) const;

  Options options_;
  std::vector<Placement> envelope_;
  HeaderList headers_;
};

}  // namespace outbox
