/* base64.h: base64 with the standard alphabet of RFC 4648. */
#pragma once

#include <string>
#include <string_view>

namespace outbox {

/* Decodes `text`, whose padding may be missing, and appends the bytes. False, with nothing appended, if it is not
 * base64. */
bool append_base64_decoded(std::string_view text, std::string &out);

/* Encodes `bytes` with padding and appends the text. */
void append_base64(std::string_view bytes, std::string &out);

}  // namespace outbox
