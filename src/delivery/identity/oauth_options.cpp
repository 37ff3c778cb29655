/* oauth_options.cpp: checks of options, apart from what fetches tokens: a session that checks events needs no client
 * library. */
#include <algorithm>

#include "delivery/base/clean_text.h"
#include "delivery/http/url_parts.h"
#include "delivery/identity/oauth_token.h"
#include "delivery/options/options.h"

namespace outbox {

void check_token_url(const std::string &name, const std::string &value) {
  if (origin_fault(value) != OriginFault::None || value.find('#') != value.npos ||
      std::any_of(value.begin(), value.end(), [](unsigned char c) { return c <= 0x20 || c >= 0x7f; }))
    throw_bad_value(name, value, "Expected the URL of a token endpoint, without a user name and a fragment.",
                    "Example: 'https://login.example.com/oauth2/token'.");
}

void check_oauth_text(const std::string &name, const std::string &value) {
  if (value.empty() || std::any_of(value.begin(), value.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    refuse_value(name, "Expected a text without control characters.", "Perhaps a line break was pasted with it.");
}

FlatObject parse_oauth_parameters(const std::string &name, const std::string &value) {
  constexpr const char *example = R"({"scope": "events.write", "audience": "https://api.example"})";
  FlatObject parameters = parse_flat_object(name, value, "parameter", example);
  for (const auto &[parameter, text] : parameters) {
    check_oauth_text(name, parameter);
    check_oauth_text(name, text);
    if (parameter == "grant_type" || parameter.starts_with("client_"))
      refuse_value(name, "Parameter \"" + clean_text(parameter) + "\" is written by the sink itself.",
                   "Leave it out.");
  }
  return parameters;
}

}  // namespace outbox
