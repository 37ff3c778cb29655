/* base64.h: RFC 4648's standard alphabet. */
#pragma once

#include <string>
#include <string_view>

namespace outbox {

/* Appends the bytes behind the text; padding may be left out. False, and nothing is appended, when it is no base64.
 */
bool append_base64_decoded(std::string_view text, std::string &out);

/* Appends the text of the bytes, padded. */
void append_base64(std::string_view bytes, std::string &out);

}  // namespace outbox
