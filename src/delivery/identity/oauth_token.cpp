/*
 * oauth_token.cpp: client id and secret go into the header Authorization, which every token endpoint must support; of
 * the answer only the error's code and description are shown, with the secret masked.
 */
#include "delivery/identity/oauth_token.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <map>

#include "delivery/base/base64.h"
#include "delivery/base/clean_text.h"
#include "delivery/base/json_reader.h"
#include "delivery/base/secret_mask.h"
#include "delivery/base/text.h"
#include "delivery/identity/aws_signature.h"

namespace outbox {
namespace {

using std::chrono::seconds;

constexpr seconds default_lifetime{300}; /* of a token whose end nobody says */
constexpr size_t max_shown = 300;

/* The members of a JSON object that are texts or numbers. */
std::map<std::string, std::string> members(const std::string &json) {
  std::map<std::string, std::string> found;
  auto broken = read_json(json, [&](const JsonPath &path, const JsonValue &value) {
    if (path.size() == 1 && (value.kind == JsonValue::Kind::Text || value.kind == JsonValue::Kind::Number))
      found[path[0]] = value.text;
  });
  if (broken)
    found.clear();
  return found;
}

std::optional<int64_t> whole_number(const std::string &text) {
  int64_t number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || text.empty() || number < 0)
    return std::nullopt;
  return number;
}

/* How long a JSON Web Token is valid, by its claim "exp"; nothing for other tokens. */
std::optional<seconds> lifetime_of_jwt(const std::string &token) {
  size_t begin = token.find('.'), end = begin == token.npos ? begin : token.find('.', begin + 1);
  if (end == token.npos)
    return std::nullopt;
  std::string claims = token.substr(begin + 1, end - begin - 1), json;
  std::replace(claims.begin(), claims.end(), '-', '+');
  std::replace(claims.begin(), claims.end(), '_', '/');
  if (!append_base64_decoded(claims, json))
    return std::nullopt;
  auto ends = whole_number(members(json)["exp"]);
  return ends ? std::optional(seconds(*ends - time(nullptr))) : std::nullopt;
}

std::string form_encoded(std::string_view text) {
  std::string encoded;
  aws::append_uri_encoded(text, encoded);
  return encoded;
}

/* "HTTP 401 invalid_client (unknown client)" */
std::string refusal(const HttpFetched &answer, const OauthClient &client) {
  auto fields = members(answer.body);
  std::string text = "HTTP " + std::to_string(answer.status), more = fields["error_description"];
  SecretMask mask;
  mask.add_basic(client.client_id, client.client_secret);
  mask.add(client.client_secret);
  auto shown = [&](const std::string &said) { return shortened(clean_text(mask.masked(said)), max_shown); };
  if (!fields["error"].empty())
    text += " " + shown(fields["error"]);
  if (!more.empty())
    text += " (" + shown(more) + ")";
  bool theirs = answer.status >= 500 || answer.status == 404 || answer.status == 405;
  return text + (theirs || client.advice.empty() ? "" : ": " + client.advice);
}

Grant<OauthToken> granted(const HttpFetched &answer) {
  auto fields = members(answer.body);
  std::string &token = fields["access_token"];
  if (token.empty() || !std::all_of(token.begin(), token.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; }))
    throw NotGranted("its answer contains no access_token");
  std::string type = fields["token_type"];
  std::transform(type.begin(), type.end(), type.begin(), [](unsigned char c) { return std::tolower(c); });
  if (!type.empty() && type != "bearer")
    throw NotGranted("it gives tokens of another type than Bearer");
  auto said = whole_number(fields["expires_in"]);
  auto life = said ? seconds(*said) : lifetime_of_jwt(token).value_or(default_lifetime);
  return {{std::move(token)},
          std::chrono::steady_clock::now() + std::min<seconds>(life, std::chrono::hours(24 * 365))};
}

}  // namespace

Grant<OauthToken> OauthClient::fetch(const Stop &stop) const {
  try {
    std::string body = "grant_type=client_credentials", basic = "Basic ";
    for (const auto &[name, value] : parameters)
      body += "&" + form_encoded(name) + "=" + form_encoded(value);
    append_base64(form_encoded(client_id) + ":" + form_encoded(client_secret), basic);
    HttpFetched answer = outbox::fetch({.url = token_url,
                                        .method = "POST",
                                        .headers = {{"Authorization", std::move(basic)},
                                                    {"Content-Type", "application/x-www-form-urlencoded"},
                                                    {"Accept", "application/json"}},
                                        .body = std::move(body),
                                        .guard = guard ? &*guard : nullptr,
                                        .ca_pem = ca_pem,
                                        .ca_path = ca_path},
                                       stop);
    if (answer.status != 200)
      throw NotGranted(refusal(answer, *this));
    return granted(answer);
  } catch (const NotGranted &failure) {
    throw NotGranted("no token from the token endpoint " + token_url + " for client \"" + client_id +
                     "\": " + failure.what());
  }
}

}  // namespace outbox
