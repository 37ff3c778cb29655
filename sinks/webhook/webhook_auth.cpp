/*
 * webhook_auth.cpp: credentials come only from the user mapping, so pg_foreign_server shows none. All of them are
 * added to the sink's mask, through which every text passes that leaves the library.
 */
#include "webhook_auth.h"

#include <algorithm>

#include "delivery/base/base64.h"

namespace outbox {
namespace {

[[noreturn]] void required(OptionName name, OptionName with, std::string detail) {
  throw BadInput(OB_MISSING_OPTION, name,
                 "option \"" + std::string(name) + "\" is required with \"" + with.text + "\"", std::move(detail),
                 "Use CREATE USER MAPPING FOR PUBLIC SERVER ... OPTIONS (" + std::string(name) + " '...').");
}

void add_signing_keys(const WebhookOptions &options, WebhookAuth &auth) {
  if (options.old_secret && !options.secret)
    required(SECRET, OLD_SECRET, "During a rotation both sign: the new secret and the old one.");
  for (const auto &key : {options.secret, options.old_secret})
    if (key)
      auth.signing_keys.push_back(*key);
  if (auth.signing_keys.size() == 2 && auth.signing_keys[0] == auth.signing_keys[1])
    refuse_value(OLD_SECRET, "It is the same as option \"secret\".",
                 "Set secret to the new one, and old_secret to the one that receivers still know.");
}

void add_authorization(const Options &mapping, WebhookAuth &auth) {
  auto *username = find_option(mapping, USERNAME), *password = find_option(mapping, PASSWORD);
  auto *token = find_option(mapping, BEARER_TOKEN);
  std::vector<OptionName> kinds;
  if (username || password)
    kinds.push_back(USERNAME);
  if (token)
    kinds.push_back(BEARER_TOKEN);
  if (find_header(auth.headers, "authorization"))
    kinds.push_back(HEADERS);
  if (kinds.size() > 1)
    throw BadInput(OB_BAD_VALUE, kinds[1],
                   "options \"" + std::string(kinds[0]) + "\" and \"" + kinds[1].text + "\" exclude each other",
                   "A request has one header Authorization, and each of them makes it.", "Leave one of them out.");
  if (password && !username)
    required(USERNAME, PASSWORD, "Basic authentication sends both.");
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
  add_signing_keys(options, auth);
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
  for (OptionName name : {SECRET, OLD_SECRET}) {
    std::string value = given(name);
    secrets.add(value);
    for (std::string_view prefix : {"whsec_", "whsk_"}) /* receivers may repeat the secret without it */
      if (value.starts_with(prefix))
        secrets.add(value.substr(prefix.size()));
  }
  secrets.add(options.bearer_token);
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
