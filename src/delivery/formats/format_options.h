/*
 * format_options.h: the options that choose and shape the format of a record, such as `format`, `value_format` and
 * `headers`. All kinds of sink that send records have them.
 */
#pragma once

#include <memory>
#include <vector>

#include "delivery/formats/placement.h"
#include "delivery/formats/record_format.h"
#include "delivery/options/options.h"

namespace outbox {

inline constexpr OptionName VALUE_FORMAT{"value_format"}, NULL_BEHAVIOR{"null_behavior"},
    TOMBSTONE_ON_EMPTY_PAYLOAD{"tombstone_on_empty_payload"};

enum class Format { Debezium, CloudEvents, Structured, Raw };

struct FormatOptions {
  Format format = Format::Debezium;
  std::vector<Placement> placements; /* of option `headers` */

  /* `format` first. */
  static const std::vector<OptionSpec> &specs();
  /* Throws BadInput for values that are invalid, or have no effect together. */
  static FormatOptions parse(const Options &server);
  std::unique_ptr<const RecordFormat> make(const Options &server) const;
};

}  // namespace outbox
