/* webhook_url.h: where a webhook sink's requests go. */
#pragma once

#include <string>

namespace outbox {

/* The scheme, http or https, of a good URL. Throws BadInput, which never shows the value: it may hold a token. */
std::string parse_url(const std::string &option, const std::string &value);

}  // namespace outbox
