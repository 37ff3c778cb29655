/*
 * kafka_security.cpp: checks combinations of options when CREATE SERVER or CREATE USER MAPPING runs, such as a
 * password without a mechanism, which librdkafka would accept and never use.
 */
#include "kafka_security.h"

#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <memory>

#include "delivery/base/text.h"
#include "delivery/options/pem.h"
#include "kafka_token.h"

namespace outbox {

static std::string option_name(std::string name) {
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

static const std::string *find(const KafkaProperties &given, std::string_view name) {
  auto at = given.find(name);
  return at == given.end() ? nullptr : &at->second;
}

bool kafka_has_feature(std::string_view feature) {
  std::unique_ptr<rd_kafka_conf_t, decltype(&rd_kafka_conf_destroy)> conf(rd_kafka_conf_new(), rd_kafka_conf_destroy);
  char text[1024] = "";
  size_t size = sizeof text;
  if (rd_kafka_conf_get(conf.get(), "builtin.features", text, &size) != RD_KAFKA_CONF_OK)
    return false;
  auto features = split(text, ',');
  return std::find(features.begin(), features.end(), feature) != features.end();
}

std::string kafka_mechanisms() {
  std::string list;
  for (auto [feature, mechanism] : {std::pair("sasl_plain", "PLAIN"), std::pair("sasl_scram", "SCRAM-SHA-256"),
                                    std::pair("sasl_scram", "SCRAM-SHA-512"),
                                    std::pair("sasl_oauthbearer", "OAUTHBEARER"), std::pair("sasl_gssapi", "GSSAPI")})
    if (kafka_has_feature(feature))
      list += (list.empty() ? "" : ", ") + std::string(mechanism);
  return list;
}

static bool begins_with(std::string_view text, std::string_view begin) {
  return text.substr(0, begin.size()) == begin;
}

[[noreturn]] static void without_effect(const std::string &name, const std::string &protocol, const char *hint) {
  throw BadInput(OB_BAD_VALUE, option_name(name),
                 "option \"" + option_name(name) + "\" has no effect with security_protocol \"" + protocol + "\"",
                 "The connection would go without it.", hint);
}

[[noreturn]] static void required(const char *name, const std::string &with, std::string detail,
                                  std::string hint = {}) {
  throw BadInput(OB_MISSING_OPTION, name, "option \"" + std::string(name) + "\" is required with " + with,
                 std::move(detail), std::move(hint));
}

static void check_oauthbearer(const KafkaProperties &given, const std::string &with) {
  auto *method = find(given, "sasl.oauthbearer.method");
  auto *unsecured = find(given, "enable.sasl.oauthbearer.unsecure.jwt");
  if ((unsecured && *unsecured == "true") || has_own_tokens(given))
    return;
  if (!method || *method != "oidc")
    required(
        "sasl_oauthbearer_method", with, "It says where the worker gets tokens.",
        "Use sasl_oauthbearer_method 'oidc', sasl_oauthbearer_token_endpoint_url and sasl_oauthbearer_client_id, "
        "and sasl_oauthbearer_client_secret in the user mapping; or 'aws_msk_iam' and aws_region.");
  if (!kafka_has_feature("oidc"))
    throw BadInput(OB_BAD_VALUE, "sasl_mechanism", "option \"sasl_mechanism\" cannot be \"OAUTHBEARER\" here",
                   "librdkafka " + std::string(rd_kafka_version_str()) + " was built without OIDC.",
                   "Use a librdkafka that was built with libcurl, or grant type client_credentials.");
}

static void check_credentials(const KafkaProperties &given, const std::string &with) {
  for (const char *name : {"sasl.username", "sasl.password"})
    if (auto *value = find(given, name); !value || value->empty())
      required(option_name(name).c_str(), with, "The user mapping for PUBLIC does not have it.",
               "Use CREATE USER MAPPING FOR PUBLIC SERVER ... OPTIONS (sasl_username '...', sasl_password '...').");
}

void check_kafka_key(const KafkaProperties &given) {
  auto *key = find(given, "ssl.key.pem"), *certificate = find(given, "ssl.certificate.pem");
  if (key && certificate)
    check_key_pair(*key, *certificate);
}

static void check_client_certificate(const KafkaProperties &given) {
  auto has = [&](const char *name) { return find(given, name) != nullptr; };
  if (has("ssl.key.pem") && !has("ssl.certificate.pem") && !has("ssl.certificate.location"))
    required("ssl_certificate_pem", "ssl_key_pem", "A broker is shown the certificate, and the key proves it.");
  if (has("ssl.certificate.pem") && !has("ssl.key.pem") && !has("ssl.key.location"))
    required("ssl_key_pem", "ssl_certificate_pem", "A broker is shown the certificate, and the key proves it.",
             "Use CREATE USER MAPPING FOR PUBLIC SERVER ... OPTIONS (ssl_key_pem '...').");
}

void check_kafka_security(const KafkaProperties &given, bool whole) {
  auto *named = find(given, "security.protocol");
  std::string protocol = named ? *named : "plaintext";
  std::transform(protocol.begin(), protocol.end(), protocol.begin(), [](unsigned char c) { return std::tolower(c); });
  bool sasl = begins_with(protocol, "sasl_"), tls = protocol == "ssl" || protocol == "sasl_ssl";

  for (const auto &[name, value] : given) {
    if (!tls && (begins_with(name, "ssl.") || begins_with(name, "enable.ssl.")))
      without_effect(name, protocol,
                     sasl ? "Use security_protocol 'sasl_ssl'." : "Use security_protocol 'ssl', or 'sasl_ssl'.");
    if (!sasl && (begins_with(name, "sasl.") || begins_with(name, "enable.sasl.")))
      without_effect(name, protocol,
                     tls ? "Use security_protocol 'sasl_ssl'."
                         : "Use security_protocol 'sasl_ssl', or 'sasl_plaintext' (unencrypted).");
  }
  if (sasl) {
    auto *mechanism = find(given, "sasl.mechanism");
    if (!mechanism)
      required("sasl_mechanism", "security_protocol \"" + protocol + "\"",
               "Expected one of: " + kafka_mechanisms() + ".");
    std::string with = "sasl_mechanism \"" + *mechanism + "\"";
    if (*mechanism == "OAUTHBEARER")
      check_oauthbearer(given, with);
    else if (*mechanism != "GSSAPI" && whole)
      check_credentials(given, with);
  }
  if (whole)
    check_client_certificate(given);
}

}  // namespace outbox
