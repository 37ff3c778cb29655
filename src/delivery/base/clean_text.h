/* clean_text.h: makes a peer's text safe for a log line and a text column. */
#pragma once

#include <string>
#include <string_view>

namespace outbox {

/* Returns valid UTF-8 on one line, without control characters of ASCII or Unicode. */
std::string clean_text(std::string_view text);
/* Its first 300 bytes so, in quotes. */
std::string in_quotes(std::string_view text);

}  // namespace outbox
