/*
 * webhook_auth.cpp: credentials come only from the user mapping, so pg_foreign_server shows none. All of them are
 * added to the sink's mask, through which every text passes that leaves the library.
 */
#include "delivery/sinks/webhook/webhook_auth.h"

#include <algorithm>

#include "delivery/base/base64.h"
#include "delivery/formats/standard_webhooks.h"
#include "delivery/options/pem.h"

namespace outbox {
namespace {

[[noreturn]] void required(const char *name, const std::string &with, std::string detail) {
  throw BadInput(OB_MISSING_OPTION, name, "option \"" + std::string(name) + "\" is required with \"" + with + "\"",
                 std::move(detail),
                 "Use CREATE USER MAPPING FOR PUBLIC SERVER ... OPTIONS (" + std::string(name) + " '...').");
}

void add_signing_keys(const Options &mapping, WebhookAuth &auth) {
  auto *secret = find_option(mapping, "secret"), *old_secret = find_option(mapping, "old_secret");
  if (old_secret && !secret)
    required("secret", "old_secret", "During a rotation both sign: the new secret and the old one.");
  if (secret)
    auth.signing_keys.push_back(standard_webhooks::decode_secret("secret", *secret));
  if (old_secret)
    auth.signing_keys.push_back(standard_webhooks::decode_secret("old_secret", *old_secret));
  if (auth.signing_keys.size() == 2 && auth.signing_keys[0] == auth.signing_keys[1])
    refuse_value("old_secret", "It is the same as option \"secret\".",
                 "Set secret to the new one, and old_secret to the one that receivers still know.");
}

void add_authorization(const Options &mapping, WebhookAuth &auth) {
  auto *username = find_option(mapping, "username"), *password = find_option(mapping, "password");
  auto *token = find_option(mapping, "bearer_token");
  std::vector<const char *> kinds;
  if (username || password)
    kinds.push_back("username");
  if (token)
    kinds.push_back("bearer_token");
  if (find_header(auth.headers, "authorization"))
    kinds.push_back("headers");
  if (kinds.size() > 1)
    throw BadInput(OB_BAD_VALUE, kinds[1],
                   "options \"" + std::string(kinds[0]) + "\" and \"" + kinds[1] + "\" exclude each other",
                   "A request has one header Authorization, and each of them makes it.", "Leave one of them out.");
  if (password && !username)
    required("username", "password", "Basic authentication sends both.");
  if (username) {
    std::string basic;
    append_base64(*username + ":" + (password ? *password : std::string()), basic);
    auth.headers.emplace_back("Authorization", "Basic " + basic);
  }
  if (token)
    auth.headers.emplace_back("Authorization", "Bearer " + *token);
}

void add_client_certificate(const Options &mapping, WebhookAuth &auth) {
  auto *certificate = find_option(mapping, "ssl_certificate_pem"), *key = find_option(mapping, "ssl_key_pem");
  auto *password = find_option(mapping, "ssl_key_password");
  constexpr const char *both = "An endpoint is shown the certificate, and the key proves it.";
  if (key && !certificate)
    required("ssl_certificate_pem", "ssl_key_pem", both);
  if (certificate && !key)
    required("ssl_key_pem", "ssl_certificate_pem", both);
  if (password && !key)
    required("ssl_key_pem", "ssl_key_password", "The password opens that key.");
  if (!key)
    return;
  check_key_pair({"ssl_key_pem", *key, "ssl_certificate_pem", *certificate, "ssl_key_password", password});
  auth.certificate_pem = *certificate;
  auth.key_pem = *key;
  if (password)
    auth.key_password = *password;
}

}  // namespace

WebhookAuth WebhookAuth::parse(const Options &mapping) {
  WebhookAuth auth;
  if (auto *headers = find_option(mapping, "headers"))
    auth.headers = parse_headers("headers", *headers);
  add_signing_keys(mapping, auth);
  add_authorization(mapping, auth);
  add_client_certificate(mapping, auth);
  return auth;
}

SecretMask webhook_secrets(const Options &mapping) {
  SecretMask secrets;
  auto given = [&mapping](const char *name) {
    auto *value = find_option(mapping, name);
    return value ? *value : std::string();
  };
  for (auto &[name, value] : parse_headers("headers", mapping.count("headers") ? given("headers") : "{}"))
    secrets.add_header(value);
  for (const char *name : {"secret", "old_secret"}) {
    constexpr std::string_view prefix = "whsec_"; /* receivers may repeat the secret without it */
    std::string value = given(name);
    secrets.add(value);
    if (value.starts_with(prefix))
      secrets.add(value.substr(prefix.size()));
  }
  for (const char *name : {"bearer_token", "ssl_key_pem", "ssl_key_password"})
    secrets.add(given(name));
  for (auto [user, password] : {std::pair("username", "password"), {"proxy_username", "proxy_password"}})
    if (find_option(mapping, user))
      secrets.add_basic(given(user), given(password));
  secrets.add_url(given("url"));
  return secrets;
}

void check_bearer_token(const std::string &name, const std::string &value) {
  if (value.empty() || !std::all_of(value.begin(), value.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; }))
    refuse_value(name, "A bearer token consists of visible ASCII characters, without spaces.",
                 "Give the token alone: \"Bearer\" is put before it.");
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
