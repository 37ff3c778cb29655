/*
 * rabbitmq_message.cpp: one function makes the message for submitting, for the check at enqueue time (which has no
 * payload, only its length) and for previews.
 */
#include "rabbitmq_message.h"

#include <algorithm>

#include "delivery/base/clean_text.h"
#include "delivery/base/text.h"
#include "delivery/base/text_view.h"
#include "delivery/base/uuid.h"
#include "delivery/options/headers.h"

namespace outbox::rabbitmq {
namespace {

using outbox::view;

constexpr size_t usual_frame_max = 131'072;
constexpr std::string_view record_prefix = "ce_", amqp_prefix = "cloudEvents_";

[[noreturn]] void too_long(const char *subject, const std::string &what, size_t bytes, const char *hint) {
  throw BadInput(OB_BAD_VALUE, subject, what + " is too long for AMQP",
                 "It has " + std::to_string(bytes) + " bytes, and at most 255 are allowed.", hint);
}

void set_short(amqp_basic_properties_t &properties, amqp_flags_t flag, amqp_bytes_t &property,
               std::string_view text) {
  if (text.empty())
    return;
  property = as_bytes(text);
  properties._flags |= flag;
}

amqp_field_value_t field_of(const ob_header &header) {
  amqp_field_value_t value{};
  if (!header.value.data) {
    value.kind = AMQP_FIELD_KIND_VOID;
  } else {
    value.kind = header.binary ? AMQP_FIELD_KIND_BYTES : AMQP_FIELD_KIND_UTF8;
    value.value.bytes = as_bytes(view(header.value));
  }
  return value;
}

}  // namespace

MessageMaker::MessageMaker(const RabbitOptions &options)
    : RecordMaker(options, options.sends_empty_payload()), options_(options) {}

/* The record's content-type is a property of the message, the other headers go into its table. */
void MessageMaker::add_headers(Content &content) const {
  content.headers.clear();
  content.headers_size = 0;
  for (const ob_header &header : content.record.headers) {
    std::string_view name = view(header.name);
    if (name == "content-type" && header.value.data) {
      if (header.value.len > longest_short_string)
        too_long("content_type", "content type of the event", header.value.len, "Give the event a shorter one.");
      set_short(content.properties, AMQP_BASIC_CONTENT_TYPE_FLAG, content.properties.content_type,
                view(header.value));
      continue;
    }
    if (options_.format == Format::CloudEvents && name.starts_with(record_prefix))
      name = (content.record.text() = amqp_prefix) += name.substr(record_prefix.size());
    if (name.size() > longest_short_string)
      too_long("headers", "name of header " + shown_name(name), name.size(), "Give the header a shorter name.");
    if (routes(name))
      throw BadInput(OB_BAD_VALUE, "headers", "header \"" + std::string(name) + "\" cannot be sent to RabbitMQ",
                     "RabbitMQ takes it as a list of routing keys.", "Give the header another name.");
    content.headers.push_back({as_bytes(name), field_of(header)});
    content.headers_size += name.size() + header.value.len;
  }
  content.properties.headers = {static_cast<int>(content.headers.size()), content.headers.data()};
  if (!content.headers.empty())
    content.properties._flags |= AMQP_BASIC_HEADERS_FLAG;
}

void MessageMaker::make(const ob_event &event, Content &content) const {
  Record &record = content.record;
  record.begin();
  if (!options_.exchange->render(event, content.exchange))
    throw_no_value(EXCHANGE, options_.exchange->missing(event));
  if (!options_.routing_key.render(event, content.routing_key))
    throw_no_value(ROUTING_KEY, options_.routing_key.missing(event));
  if (content.exchange.size() > longest_short_string)
    too_long("exchange", "exchange " + shown_name(content.exchange), content.exchange.size(),
             "Change option \"exchange\" of the sink, or what the event has for it.");
  if (content.routing_key.size() > longest_short_string)
    too_long("routing_key", "routing key " + shown_name(content.routing_key), content.routing_key.size(),
             "Change option \"routing_key\" of the sink, or what the event has for it.");
  if (event.event_type.len > longest_short_string)
    too_long("event_type", "event_type", event.event_type.len, "It is the property \"type\" of the message.");

  amqp_basic_properties_t &properties = content.properties;
  properties = {};
  format_->write(event, record);
  add_headers(content);
  if ((properties._flags & AMQP_BASIC_CONTENT_TYPE_FLAG) == 0 && record.value.data)
    set_short(properties, AMQP_BASIC_CONTENT_TYPE_FLAG, properties.content_type, media_type(event));
  properties.delivery_mode = AMQP_DELIVERY_PERSISTENT;
  properties._flags |= AMQP_BASIC_DELIVERY_MODE_FLAG;
  uuid_text(event.id, record.id_text);
  set_short(properties, AMQP_BASIC_MESSAGE_ID_FLAG, properties.message_id, {record.id_text, sizeof record.id_text});
  if (event.created_at_us >= 0) {
    properties.timestamp = static_cast<uint64_t>(event.created_at_us / 1'000'000);
    properties._flags |= AMQP_BASIC_TIMESTAMP_FLAG;
  }
  set_short(properties, AMQP_BASIC_TYPE_FLAG, properties.type, view(event.event_type));
  content.body = record.value;
}

Message MessageMaker::message(const ob_event &event, const Content &content) const {
  Message message{QueuedEvent(event),
                  {},
                  content.exchange,
                  content.routing_key,
                  encode_properties(content.properties, content.headers_size),
                  std::string(view(content.body))};
  rabbitmq::view(content.properties.message_id).copy(message.id.data(), message.id.size());
  return message;
}

size_t MessageMaker::check(const ob_event &event) const {
  static thread_local Content &made = *new Content; /* never destroyed, so no destructor runs at exit */

  return least_size(event, [&](const ob_event &without) {
    make(without, made);
    size_t properties = encode_properties(made.properties, made.headers_size).size();
    if (properties + properties_overhead + frame_overhead > usual_frame_max)
      throw BadInput(OB_TOO_LARGE, "headers", "headers of the event are too large for AMQP",
                     "With the other properties they have " + std::to_string(properties) +
                         " bytes, and they must fit into one frame of " + std::to_string(usual_frame_max) + ".",
                     "Move them into the payload.");
    return made.body.len;
  });
}

Preview preview_of(const Content &content) {
  const amqp_basic_properties_t &properties = content.properties;
  Preview parts;
  auto text = [](std::string_view of) { return std::optional(std::string(of)); };
  parts.push_back({"exchange", {}, content.exchange, {}});
  parts.push_back({"routing_key", {}, content.routing_key, {}});
  if (properties._flags & AMQP_BASIC_CONTENT_TYPE_FLAG)
    parts.push_back({"property", "content_type", text(rabbitmq::view(properties.content_type)), {}});
  parts.push_back({"property", "delivery_mode", {}, std::to_string(properties.delivery_mode)});
  parts.push_back({"property", "message_id", text(rabbitmq::view(properties.message_id)), {}});
  if (properties._flags & AMQP_BASIC_TIMESTAMP_FLAG)
    parts.push_back({"property", "timestamp", {}, std::to_string(properties.timestamp)});
  if (properties._flags & AMQP_BASIC_TYPE_FLAG)
    parts.push_back({"property", "type", text(rabbitmq::view(properties.type)), {}});
  for (const amqp_table_entry_t &header : content.headers) {
    PreviewPart part{"header", std::string(rabbitmq::view(header.key)), {}, {}};
    if (header.value.kind != AMQP_FIELD_KIND_VOID)
      part.bytes = rabbitmq::view(header.value.value.bytes);
    parts.push_back(std::move(part));
  }
  parts.push_back({"body", {}, text(view(content.body)), {}});
  return parts;
}

}  // namespace outbox::rabbitmq
