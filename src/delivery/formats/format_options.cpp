/*
 * format_options.cpp: parses the options of a format, and makes it. What has no effect with the chosen format is
 * refused, because it is probably a mistake.
 */
#include "delivery/formats/format_options.h"

#include <algorithm>
#include <optional>

#include "delivery/formats/cloudevents.h"
#include "delivery/formats/debezium.h"

namespace outbox {
namespace {

Format format_of(const Options &server) {
  return parse_choice<Format>(server, FORMAT,
                              {{"debezium", Format::Debezium},
                               {"cloudevents", Format::CloudEvents},
                               {"cloudevents-structured", Format::Structured},
                               {"raw", Format::Raw}});
}

ValueFormat value_format_of(const Options &server) {
  return parse_choice<ValueFormat>(server, VALUE_FORMAT,
                                   {{"raw", ValueFormat::Raw},
                                    {"json_string", ValueFormat::JsonString},
                                    {"json_compact", ValueFormat::JsonCompact},
                                    {"connect_json", ValueFormat::ConnectJson},
                                    {"bytes", ValueFormat::Bytes}});
}

/* Refuses options that have no effect with the format or value format. */
void check_together(const Options &server, Format format, ValueFormat value,
                    const std::vector<Placement> &placements) {
  if (format != Format::Debezium)
    for (OptionName name : {VALUE_FORMAT, NULL_BEHAVIOR})
      refuse_without_meaning(server, name,
                             "It says how format \"debezium\" writes a payload, and the format is another.");
  if (format != Format::Debezium && format != Format::Raw)
    refuse_without_meaning(server, TOMBSTONE_ON_EMPTY_PAYLOAD,
                           "A CloudEvent may have no data, whatever its sink says.");
  if (format != Format::CloudEvents && format != Format::Structured)
    refuse_without_meaning(server, SOURCE, "It is an attribute of CloudEvents, and the format is another.");
  if (value != ValueFormat::JsonCompact)
    refuse_without_meaning(server, NULL_BEHAVIOR, "It is about value_format \"json_compact\".");

  auto is_at = [](Place place) { return [place](const Placement &placement) { return placement.place == place; }; };
  bool envelope = std::any_of(placements.begin(), placements.end(), is_at(Place::Envelope));
  if (envelope && format != Format::Debezium)
    throw BadInput(OB_BAD_VALUE, HEADERS, "only format \"debezium\" has an envelope",
                   "Option \"headers\" places a column in the envelope.", "Place it in a header.");
  if (envelope && value != ValueFormat::JsonString && value != ValueFormat::JsonCompact)
    throw BadInput(OB_BAD_VALUE, HEADERS, "an envelope needs value_format \"json_string\" or \"json_compact\"",
                   "Option \"headers\" places a column in the envelope, which is a JSON object without a schema.",
                   "Set value_format, or place the column in a header.");
}

std::optional<bool> tombstone_option(const Options &server) {
  const std::string *tombstone = find_option(server, TOMBSTONE_ON_EMPTY_PAYLOAD);
  return tombstone ? std::optional(parse_bool(TOMBSTONE_ON_EMPTY_PAYLOAD, *tombstone)) : std::nullopt;
}

Debezium::Options debezium_options(const Options &server, ValueFormat value, std::vector<Placement> placements) {
  Debezium::Options options;
  options.value = value;
  options.nulls = parse_choice<NullBehavior>(server, NULL_BEHAVIOR,
                                             {{"keep", NullBehavior::Keep},
                                              {"ignore", NullBehavior::Ignore},
                                              {"optional_bytes", NullBehavior::OptionalBytes}});
  options.tombstone = tombstone_option(server);
  options.placements = std::move(placements);
  return options;
}

Debezium::Options raw_options(const Options &server, std::vector<Placement> placements) {
  Debezium::Options options;
  options.tombstone = tombstone_option(server);
  options.content_type = true;
  options.id_header = std::none_of(placements.begin(), placements.end(), [](const Placement &placement) {
    return placement.place == Place::Header && !placement.field.is_header() && placement.field.name() == "id";
  });
  options.placements = std::move(placements);
  return options;
}

}  // namespace

const std::vector<OptionSpec> &FormatOptions::specs() {
  static const auto &specs = *new std::vector<OptionSpec>{
      server_option(FORMAT, nullptr,
                    "How an event is written: 'debezium' (what its Outbox Event Router sends; the default), "
                    "'cloudevents' (binary), 'cloudevents-structured', or 'raw'."),
      server_option(VALUE_FORMAT, nullptr,
                    "How format 'debezium' writes a payload: 'raw' (the default), 'json_string', 'json_compact', "
                    "'connect_json' (with its schema), or 'bytes' (payload_bytes only)."),
      server_option(NULL_BEHAVIOR, nullptr,
                    "With value_format 'json_compact': 'keep' (the default), 'ignore' (members that are null or [] "
                    "are left out) or 'optional_bytes' (those that are [])."),
      server_option(
          HEADERS, check<parse_placements>,
          "Columns beside the payload: 'column:header|envelope|partition[:alias], ...'; header.NAME is a header of "
          "the event. Default '', but for Kafka with format 'debezium': 'event_type:header:eventType'."),
      server_option(TOMBSTONE_ON_EMPTY_PAYLOAD, check<parse_bool>,
                    "A payload that is NULL: 'true' sends a tombstone, a record without a value; 'false' sends null, "
                    "in JSON formats. Default: such an event is refused when it is enqueued."),
      server_option(SOURCE, CloudEvents::check_source,
                    "Of CloudEvents: a URI reference, with the variables of topic. Default "
                    "'/outbox/${database}/${aggregate_type}'."),
  };
  return specs;
}

FormatOptions FormatOptions::parse(const Options &server) {
  FormatOptions parsed;
  parsed.format = format_of(server);
  read_option(server, HEADERS, parse_placements, parsed.placements);
  check_together(server, parsed.format, value_format_of(server), parsed.placements);
  return parsed;
}

std::unique_ptr<const RecordFormat> FormatOptions::make(const Options &server) const {
  switch (format) {
  case Format::Debezium:
    return std::make_unique<Debezium>(debezium_options(server, value_format_of(server), placements));
  case Format::Raw:
    return std::make_unique<Debezium>(raw_options(server, placements));
  case Format::CloudEvents:
    return std::make_unique<CloudEvents>(CloudEvents::Mode::Binary, CloudEvents::source(find_option(server, SOURCE)),
                                         placements);
  case Format::Structured:
    break;
  }
  return std::make_unique<CloudEvents>(CloudEvents::Mode::Structured,
                                       CloudEvents::source(find_option(server, SOURCE)), placements);
}

}  // namespace outbox
