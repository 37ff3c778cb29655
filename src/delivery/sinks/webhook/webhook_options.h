/* webhook_options.h: the options of outbox_webhook: where each may be set, and which values it takes. */
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "delivery/options/options.h"

namespace outbox {

const std::vector<OptionSpec> &webhook_options();

/* Parsers of values; each throws BadInput. */
std::chrono::milliseconds disable_after_of(const Options &server); /* 0 = never */
std::chrono::milliseconds parse_max_pause(const std::string &name, const std::string &value);
std::string parse_method(const std::string &name, const std::string &value);

}  // namespace outbox
