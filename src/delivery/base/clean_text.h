/* clean_text.h: makes a peer's text safe for a log line and a text column. */
#pragma once

#include <string>
#include <string_view>

namespace outbox {

class SecretMask;

/* Returns valid UTF-8 on one line, without control characters of ASCII or Unicode. */
std::string clean_text(std::string_view text);

/* The beginning of a name that a user has given, in quotes. */
std::string shown_name(std::string_view name);

/* Marks a text that a peer has written, for text_to_show(). Nobody cuts such a text before: a part of a secret is not
 * found any more. Of a very long one the beginning is kept. `cut`: a library has cut it already. */
std::string peer_text(std::string_view text, bool cut = false);
/* The same, in quotes. */
std::string in_quotes(std::string_view text);
/* Every text goes through this function before anybody sees it: secrets are masked, then the texts that peer_text()
 * has marked are cut to their first 300 bytes, and the whole is cleaned. */
std::string text_to_show(std::string_view text, const SecretMask &secrets);

}  // namespace outbox
