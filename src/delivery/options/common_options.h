/* common_options.h: the options that all kinds of sink have. */
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "delivery/options/match.h"
#include "delivery/options/option_table.h"

namespace outbox {

inline constexpr OptionName ORDERED{"ordered"}, ON_DEAD_LETTER{"on_dead_letter"}, RETRY{"retry"};

struct CommonOptions {
  std::string events = "*", aggregates = "*"; /* globs, which the server side compares */
  FlatObject match;
  bool ordered = true, blocks_on_dead_letter = false;
  std::string retry; /* the text of a RetryPolicy; empty: not set */
  std::optional<int> max_attempts;
  std::optional<std::chrono::milliseconds> retention;
  std::optional<size_t> max_payload;

  static const OptionTable<CommonOptions> &table();
  /* Those of a server. Throws BadInput for an invalid value. */
  static CommonOptions of(const Options &server);
  /* Throws BadInput for values that are invalid together. */
  void check_together() const;
};

}  // namespace outbox
