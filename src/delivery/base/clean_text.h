/* clean_text.h: text of a peer made fit for a log line and a text column. */
#pragma once

#include <string>
#include <string_view>

namespace outbox {

/* Valid UTF-8, one line, no control characters. */
std::string clean_text(std::string_view text);

}  // namespace outbox
