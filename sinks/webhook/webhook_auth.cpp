/*
 * webhook_auth.cpp: credentials come only from the user mapping, so pg_foreign_server shows none. All of them are
 * added to the sink's mask, through which every text passes that leaves the library.
 */
#include "webhook_auth.h"

#include <algorithm>

#include "delivery/base/base64.h"
#include "delivery/base/text.h"

namespace outbox {
namespace {

[[noreturn]] void required(OptionName name, OptionName with, std::string detail) {
  throw BadInput(OB_MISSING_OPTION, name,
                 "option \"" + std::string(name) + "\" is required with \"" + with.text + "\"", std::move(detail),
                 "Use CREATE USER MAPPING FOR PUBLIC SERVER ... OPTIONS (" + std::string(name) + " '...').");
}

void add_authorization(const Options &mapping, WebhookAuth &auth) {
  auto *username = find_option(mapping, USER), *password = find_option(mapping, PASSWORD);
  auto *token = find_option(mapping, TOKEN);
  std::vector<OptionName> kinds;
  if (username || password)
    kinds.push_back(USER);
  if (token)
    kinds.push_back(TOKEN);
  if (find_header(auth.headers, "authorization"))
    kinds.push_back(HEADERS);
  if (kinds.size() > 1)
    throw BadInput(OB_BAD_VALUE, kinds[1],
                   "options \"" + std::string(kinds[0]) + "\" and \"" + kinds[1].text + "\" exclude each other",
                   "A request has one header Authorization, and each of them makes it.", "Leave one of them out.");
  if (password && !username)
    required(USER, PASSWORD, "Basic authentication sends both.");
  if (username) {
    std::string basic;
    append_base64(*username + ":" + (password ? *password : std::string()), basic);
    auth.headers.emplace_back("Authorization", "Basic " + basic);
  }
  if (token)
    auth.headers.emplace_back("Authorization", "Bearer " + *token);
}

}  // namespace

WebhookAuth WebhookAuth::of(const WebhookOptions &options, const Options &mapping) {
  WebhookAuth auth;
  auth.headers = options.mapping_headers;
  auth.signing_keys = options.signing_keys;
  add_authorization(mapping, auth);
  return auth;
}

void add_webhook_secrets(const WebhookOptions &options, const Options &mapping, SecretMask &secrets) {
  auto given = [&mapping](OptionName name) {
    auto *value = find_option(mapping, name);
    return value ? *value : std::string();
  };
  for (auto &[name, value] : options.mapping_headers)
    secrets.add_header(value);
  const std::string keys = given(SECRET);
  for (std::string_view key : split(keys, ',')) {
    secrets.add(key);
    for (std::string_view prefix : {"whsec_", "whsk_"}) /* receivers may repeat the secret without it */
      if (key.starts_with(prefix))
        secrets.add(key.substr(prefix.size()));
  }
  secrets.add(options.token);
  secrets.add(options.oauth_client_secret);
  if (!options.username.empty())
    secrets.add_basic(options.username, options.password);
  secrets.add_url(given(URL));
}

void check_username(const std::string &name, const std::string &value) {
  if (value.empty() || value.find(':') != value.npos || has_control(value) || value.find('\t') != value.npos)
    refuse_value(name, "A user name is not empty and has neither a colon nor control characters.",
                 "Basic authentication joins user name and password by a colon.");
}

void check_password(const std::string &name, const std::string &value) {
  if (has_control(value) || value.find('\t') != value.npos)
    refuse_value(name, "A password has no control characters.", "Perhaps a line break was pasted with it.");
}

}  // namespace outbox
