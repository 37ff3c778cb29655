/*
 * format_options.cpp: parses the options of a format, and makes it. What has no effect with the chosen format is
 * refused, because it is probably a mistake.
 */
#include "delivery/formats/format_options.h"

#include <algorithm>

namespace outbox {
namespace {

Debezium::Options raw_options(const FormatOptions &of) {
  Debezium::Options options;
  options.tombstone = of.tombstone_on_empty_payload;
  options.content_type = true;
  options.id_header = std::none_of(of.placements.begin(), of.placements.end(), [](const Placement &placement) {
    return placement.place == Place::Header && !placement.field.is_header() && placement.field.name() == "id";
  });
  options.placements = of.placements;
  return options;
}

}  // namespace

std::vector<Row<FormatOptions>> FormatOptions::rows() {
  using Of = FormatOptions;
  return {
      row(FORMAT, &Of::format,
          Choice<Format>{{{"debezium", Format::Debezium},
                          {"cloudevents", Format::CloudEvents},
                          {"cloudevents-structured", Format::Structured},
                          {"raw", Format::Raw}}},
          "[How an event is written](docs/sinks.md#formats)."),
      row(VALUE_FORMAT, &Of::value_format,
          Choice<ValueFormat>{{{"raw", ValueFormat::Raw},
                               {"json_string", ValueFormat::JsonString},
                               {"json_compact", ValueFormat::JsonCompact},
                               {"connect_json", ValueFormat::ConnectJson},
                               {"bytes", ValueFormat::Bytes}}},
          "How format `debezium` [writes a payload](docs/kafka-reference.md#keys-and-values)."),
      row(NULL_BEHAVIOR, &Of::null_behavior,
          Choice<NullBehavior>{{{"keep", NullBehavior::Keep},
                                {"ignore", NullBehavior::Ignore},
                                {"optional_bytes", NullBehavior::OptionalBytes}}},
          "With `json_compact`: which [members are left out](docs/kafka-reference.md#keys-and-values)."),
      row(ADDITIONAL_PLACEMENT, &Of::placements,
          As{parse_placements, "`column:header[:alias], ...`, with `envelope` for format `debezium`"},
          "Columns beside the payload; `header.NAME` is a header of the event."),
      row(TOMBSTONE_ON_EMPTY_PAYLOAD, &Of::tombstone_on_empty_payload, Boolean{},
          "How a [NULL payload](docs/kafka-reference.md#keys-and-values) is sent: without a value, or as null.")
          .otherwise("`enqueue()` refuses it"),
      row(SOURCE, &Of::source, CloudEvents::parse_source, "Of CloudEvents: a template of a URI reference."),
  };
}

void FormatOptions::check_format(const Options &server) const {
  if (format != Format::Debezium)
    for (OptionName name : {VALUE_FORMAT, NULL_BEHAVIOR})
      refuse_without_meaning(server, name,
                             "It says how format \"debezium\" writes a payload, and the format is another.");
  if (format != Format::Debezium && format != Format::Raw)
    refuse_without_meaning(server, TOMBSTONE_ON_EMPTY_PAYLOAD,
                           "A CloudEvent may have no data, whatever its sink says.");
  if (format != Format::CloudEvents && format != Format::Structured)
    refuse_without_meaning(server, SOURCE, "It is an attribute of CloudEvents, and the format is another.");
  if (value_format != ValueFormat::JsonCompact)
    refuse_without_meaning(server, NULL_BEHAVIOR, "It is about value_format \"json_compact\".");

  auto is_at = [](Place place) { return [place](const Placement &placement) { return placement.place == place; }; };
  bool envelope = std::any_of(placements.begin(), placements.end(), is_at(Place::Envelope));
  if (envelope && format != Format::Debezium)
    throw BadInput(OB_BAD_VALUE, ADDITIONAL_PLACEMENT, "only format \"debezium\" has an envelope",
                   "Option \"additional_placement\" places a column in the envelope.", "Place it in a header.");
  if (envelope && value_format != ValueFormat::JsonString && value_format != ValueFormat::JsonCompact)
    throw BadInput(
        OB_BAD_VALUE, ADDITIONAL_PLACEMENT, "an envelope needs value_format \"json_string\" or \"json_compact\"",
        "Option \"additional_placement\" places a column in the envelope, which is a JSON object without a schema.",
        "Set value_format, or place the column in a header.");
}

void FormatOptions::refuse_partition(const char *what, OptionName instead) const {
  for (const Placement &placement : placements)
    if (placement.place == Place::Partition)
      throw BadInput(OB_BAD_VALUE, ADDITIONAL_PLACEMENT, std::string(what) + " has no partition",
                     "Option \"additional_placement\" names a column that is the partition.",
                     std::string("Place it in a header, or in option \"") + instead.text + "\".");
}

bool FormatOptions::sends_empty_payload() const {
  return format == Format::CloudEvents || format == Format::Structured || tombstone_on_empty_payload;
}

std::unique_ptr<const RecordFormat> FormatOptions::make() const {
  switch (format) {
  case Format::Debezium:
    return std::make_unique<Debezium>(Debezium::Options{.value = value_format,
                                                        .nulls = null_behavior,
                                                        .tombstone = tombstone_on_empty_payload,
                                                        .placements = placements});
  case Format::Raw:
    return std::make_unique<Debezium>(raw_options(*this));
  case Format::CloudEvents:
    return std::make_unique<CloudEvents>(CloudEvents::Mode::Binary, source, placements);
  case Format::Structured:
    break;
  }
  return std::make_unique<CloudEvents>(CloudEvents::Mode::Structured, source, placements);
}

}  // namespace outbox
