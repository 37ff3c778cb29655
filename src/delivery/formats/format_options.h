/*
 * format_options.h: the options that choose and shape the format of a record, such as `format`, `value_format` and
 * `additional_placement`. All kinds of sink that send records have them.
 */
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "delivery/formats/cloudevents.h"
#include "delivery/formats/debezium.h"
#include "delivery/options/option_table.h"

namespace outbox {

inline constexpr OptionName ADDITIONAL_PLACEMENT{"additional_placement"}, VALUE_FORMAT{"value_format"},
    NULL_BEHAVIOR{"null_behavior"}, TOMBSTONE_ON_EMPTY_PAYLOAD{"tombstone_on_empty_payload"};

enum class Format { Debezium, CloudEvents, Structured, Raw };

struct FormatOptions {
  Format format = Format::Debezium;
  ValueFormat value_format = ValueFormat::Raw;
  NullBehavior null_behavior = NullBehavior::Keep;
  std::vector<Placement> placements; /* of option `additional_placement` */
  std::optional<bool> tombstone_on_empty_payload;
  Template source = CloudEvents::default_source();

  /* `format` first. */
  static std::vector<Row<FormatOptions>> rows();
  /* Throws BadInput for options of the server that have no effect together. */
  void check_format(const Options &server) const;
  /* Throws BadInput if a column is to be the partition: `what`, such as "a message", has none; `instead` is an
   * option.
   */
  void refuse_partition(const char *what, OptionName instead) const;
  std::unique_ptr<const RecordFormat> make() const;
  /* Whether an event without a payload is sent as a record, which may have no value. */
  bool sends_empty_payload() const;
};

}  // namespace outbox
