/*
 * debezium.h: writes the record that Debezium's Outbox Event Router would have sent, so that its consumers need no
 * change. The default is that of its string converters: a header `id`, and the payload's text as the value; a Kafka
 * sink adds the header `eventType`. Format
 * `raw` writes the same for applications that do not use Debezium.
 */
#pragma once

#include <optional>

#include "delivery/formats/json_text.h"
#include "delivery/formats/placement.h"
#include "delivery/formats/record_format.h"

namespace outbox {

/* How the value is written, and the converter of Kafka Connect that does the same. Bytes are never converted, except
 * in an envelope. */
enum class ValueFormat {
  Raw,         /* the payload's text: StringConverter */
  JsonString,  /* a JSON string that contains the text: JsonConverter */
  JsonCompact, /* JSON without white space: JsonConverter after table.expand.json.payload */
  ConnectJson, /* a JSON string with its schema: JsonConverter with schemas.enable */
  Bytes        /* bytes only: BinaryDataConverter */
};

class Debezium final : public RecordFormat {
public:
  struct Options {
    ValueFormat value = ValueFormat::Raw;
    NullBehavior nulls = NullBehavior::Keep;
    /* For a NULL payload. true: no value; false: JSON formats write null; not set: new events are refused, and events
     * that are already in the table get no value. */
    std::optional<bool> tombstone;
    bool id_header = true;     /* write the header `id` */
    bool content_type = false; /* write the content type as a header if the event has one */
    std::vector<Placement> placements;
  };
  explicit Debezium(const Options &options);

  void check(const ob_event &event) const override;
  void check_new(const ob_event &event) const override;
  bool reads_payload(const ob_event &event) const override;
  size_t shrinks() const override;

private:
  void write_event(const ob_event &event, Record &record) const override;
  void write_value(const ob_event &event, Record &record) const;
  void append_payload(const ob_event &event, std::string &out) const;
  void append_envelope(const ob_event &event, Record &record, std::string &out) const;

  Options options_;
  std::vector<Placement> envelope_;
  HeaderList headers_;
};

}  // namespace outbox
