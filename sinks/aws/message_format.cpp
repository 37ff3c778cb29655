/* message_format.cpp: refuses what a format can do elsewhere and not here. */
#include "message_format.h"

#include "attributes.h"

namespace outbox::aws_sink {

void check_message_format(const FormatOptions &options, Service service) {
  if (options.format == Format::CloudEvents)
    throw_bad_value(FORMAT, "cloudevents",
                    "CloudEvents' attributes are more than the ten attributes of a message, and there is no binding "
                    "for them.",
                    "Use 'cloudevents-structured', 'debezium' or 'raw'.");
  if (options.value_format == ValueFormat::Bytes)
    throw_bad_value(VALUE_FORMAT, "bytes", "A message of AWS is text.",
                    "Use format 'cloudevents-structured', which writes bytes as base64.");
  if (options.tombstone_on_empty_payload.value_or(false))
    throw BadInput(OB_BAD_VALUE, TOMBSTONE_ON_EMPTY_PAYLOAD, "AWS takes no empty messages",
                   "Option \"tombstone_on_empty_payload\" asks for one.",
                   "With a JSON value_format, 'false' sends null for a payload that is NULL.");
  for (const Placement &placement : options.placements) {
    if (placement.place == Place::Partition)
      throw BadInput(OB_BAD_VALUE, ADDITIONAL_PLACEMENT, "a message has no partition",
                     "Option \"additional_placement\" names a column that is the partition.",
                     "Place it in a header.");
    if (placement.place == Place::Header && service == Service::EventBridge)
      throw BadInput(OB_BAD_VALUE, ADDITIONAL_PLACEMENT, "an event of EventBridge has no headers",
                     "Option \"additional_placement\" places a column in a header.",
                     "Place it in the envelope, with value_format 'json_compact', or in detail_type or source.");
    if (placement.place == Place::Header)
      check_attribute_name(placement.alias);
  }
}

}  // namespace outbox::aws_sink
