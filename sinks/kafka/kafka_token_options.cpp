/*
 * kafka_token_options.cpp: the options of the tokens that outbox gets. They have the names of librdkafka's properties
 * where it has such, so that a sink's options do not depend on how librdkafka was built.
 */
#include <algorithm>
#include <ctime>

#include "delivery/base/base64.h"
#include "delivery/base/text.h"
#include "delivery/identity/oauth_token.h"
#include "delivery/options/pem.h"
#include "kafka_token.h"

namespace outbox {
namespace {

constexpr OptionName HTTPS_CA_PEM{"https_ca_pem"};
/* Of librdkafka's properties, those that are options of these tokens. */
constexpr OptionName SASL_OAUTHBEARER_CLIENT_ID{"sasl_oauthbearer_client_id"},
    SASL_OAUTHBEARER_CLIENT_SECRET{"sasl_oauthbearer_client_secret"},
    SASL_OAUTHBEARER_SCOPE{"sasl_oauthbearer_scope"}, SASL_OAUTHBEARER_EXTENSIONS{"sasl_oauthbearer_extensions"},
    SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL{"sasl_oauthbearer_token_endpoint_url"};

constexpr std::string_view prefix = "sasl.oauthbearer.";
constexpr const char *msk_iam = "aws_msk_iam";
constexpr int64_t msk_lifetime_s = 900;

std::string get(const KafkaProperties &given, std::string_view name) {
  auto at = given.find(name);
  return at == given.end() ? std::string() : at->second;
}

/* Newer versions of librdkafka have two names for each. */
std::string client_id(const KafkaProperties &given) {
  std::string id = get(given, "sasl.oauthbearer.client.id");
  return id.empty() ? get(given, "sasl.oauthbearer.client.credentials.client.id") : id;
}
std::string client_secret(const KafkaProperties &given) {
  std::string secret = get(given, "sasl.oauthbearer.client.secret");
  return secret.empty() ? get(given, "sasl.oauthbearer.client.credentials.client.secret") : secret;
}

bool is_msk(const KafkaProperties &given) {
  return get(given, "sasl.oauthbearer.method") == msk_iam;
}

void check_region(const std::string &name, const std::string &value) {
  if (value.empty() || !std::all_of(value.begin(), value.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
      }))
    throw_bad_value(name, value, "Expected the name of a region.", "Example: 'eu-central-1'.");
}

/* "name=value,name=value" */
std::vector<std::pair<std::string, std::string>> parse_extensions(const std::string &option,
                                                                  const std::string &value) {
  std::vector<std::pair<std::string, std::string>> extensions;
  for (std::string_view each : split(value, ',')) {
    size_t equals = each.find('=');
    std::string_view name = each.substr(0, equals);
    bool letters = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    });
    bool printable = std::all_of(each.begin(), each.end(), [](unsigned char c) { return c >= 0x20 && c < 0x7f; });
    if (equals == each.npos || equals + 1 == each.size() || !letters || !printable || name == "auth")
      throw_bad_value(option, value, "Expected name=value pairs separated by commas, with names of letters.",
                      "Example: 'logicalCluster=lkc-abc123,identityPoolId=pool-XyZ9'.");
    extensions.emplace_back(name, each.substr(equals + 1));
  }
  return extensions;
}

[[noreturn]] void missing(OptionName option, std::string detail, std::string hint) {
  throw BadInput(OB_MISSING_OPTION, option, "option \"" + std::string(option) + "\" is missing", std::move(detail),
                 std::move(hint));
}

void check_endpoint(const KafkaProperties &given, bool whole) {
  constexpr const char *why = "The worker gets a token there by client credentials.";
  if (get(given, "sasl.oauthbearer.token.endpoint.url").empty())
    missing(SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL, why,
            "Use CREATE SERVER ... OPTIONS (sasl_oauthbearer_token_endpoint_url 'https://...').");
  if (!whole)
    return;
  if (client_id(given).empty())
    missing(SASL_OAUTHBEARER_CLIENT_ID, why, "Use ALTER SERVER ... OPTIONS (ADD sasl_oauthbearer_client_id '...').");
  if (client_secret(given).empty())
    missing(SASL_OAUTHBEARER_CLIENT_SECRET, "The user mapping for PUBLIC does not have it.",
            "Use CREATE USER MAPPING FOR PUBLIC SERVER ... OPTIONS (sasl_oauthbearer_client_secret '...').");
}

/* Refuses options that the method does not use. */
void check_without_meaning(const KafkaProperties &given, const Options &server, const Options *mapping) {
  const bool msk = is_msk(given);
  const std::string method = get(given, "sasl.oauthbearer.method"),
                    reason = "It belongs to sasl_oauthbearer_method '" + std::string(msk ? "oidc" : msk_iam) +
                             "', and the method is " + (method.empty() ? "another." : "'" + method + "'.");
  for (const Options *options : {&server, mapping}) {
    if (!options)
      continue;
    if (msk)
      for (OptionName name : {SASL_OAUTHBEARER_CLIENT_ID, SASL_OAUTHBEARER_CLIENT_SECRET, SASL_OAUTHBEARER_SCOPE,
                              SASL_OAUTHBEARER_EXTENSIONS, SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL, HTTPS_CA_PEM})
        refuse_without_meaning(*options, name, reason);
    else
      for (OptionName name : {aws::AWS_REGION, aws::AWS_CREDENTIALS, aws::AWS_ACCESS_KEY_ID,
                              aws::AWS_SECRET_ACCESS_KEY, aws::AWS_SESSION_TOKEN})
        refuse_without_meaning(*options, name, reason);
  }
}

std::shared_ptr<const KafkaTokenSource> of_endpoint(const KafkaProperties &given, const KafkaTokenOptions &options) {
  const std::string scope = get(given, "sasl.oauthbearer.scope");
  OauthClient client{.token_url = get(given, "sasl.oauthbearer.token.endpoint.url"),
                     .client_id = client_id(given),
                     .client_secret = client_secret(given),
                     .parameters = scope.empty() ? FlatObject() : FlatObject{{"scope", scope}},
                     .ca_pem = options.https_ca_pem,
                     .ca_path = get(given, "https.ca.location"),
                     .advice = "look at sasl_oauthbearer_client_id, and at sasl_oauthbearer_client_secret in the "
                               "user mapping"};
  std::string who = "client \"" + client.client_id + "\"";
  std::string extensions = get(given, "sasl.oauthbearer.extensions");
  KafkaToken made{{},
                  extensions.empty() ? decltype(KafkaToken::extensions)()
                                     : parse_extensions(SASL_OAUTHBEARER_EXTENSIONS, extensions)};
  return std::make_shared<KafkaTokenSource>(
      KafkaTokenSource{[client = std::move(client), made = std::move(made)](const Stop &stop) -> Grant<KafkaToken> {
                         auto grant = client.fetch(stop);
                         return {{std::move(grant.value.text), made.extensions}, grant.expires};
                       },
                       std::move(who), "look at issuer, audience and scope that the broker wants, and at its log"});
}

/* MSK's token: the presigned URL of the action Connect, in the URL-safe alphabet of base64 and without padding. */
std::string msk_token(const std::string &region, const aws::Credentials &credentials, int64_t now) {
  const std::string host = "kafka." + region + ".amazonaws.com";
  std::string query = aws::presign({.method = "GET", .host = host, .query = "Action=kafka-cluster%3AConnect"},
                                   {region, "kafka-cluster"}, credentials, now, msk_lifetime_s);
  std::string token;
  append_base64("https://" + host + "/?" + query + "&User-Agent=outbox", token);
  std::replace(token.begin(), token.end(), '+', '-');
  std::replace(token.begin(), token.end(), '/', '_');
  return token.substr(0, token.find('='));
}

std::shared_ptr<const KafkaTokenSource> of_msk(const KafkaTokenOptions &options) {
  auto credentials = options.credentials.source(true);
  const std::string &id = options.credentials.keys.access_key_id;
  return std::make_shared<KafkaTokenSource>(
      KafkaTokenSource{[credentials, region = options.aws_region](const Stop &stop) -> Grant<KafkaToken> {
                         auto grant = credentials->fetch(stop);
                         auto ends = std::chrono::steady_clock::now() + std::chrono::seconds(msk_lifetime_s);
                         return {{msk_token(region, grant.value, time(nullptr)), {}}, std::min(ends, grant.expires)};
                       },
                       id.empty() ? "the server's AWS identity" : "access key " + id,
                       "look at the IAM policy, which must allow kafka-cluster:Connect, and at option aws_region"});
}

}  // namespace

bool has_own_tokens(const KafkaProperties &given) {
  std::string method = get(given, "sasl.oauthbearer.method"), grant = get(given, "sasl.oauthbearer.grant.type"),
              metadata = get(given, "sasl.oauthbearer.metadata.authentication.type");
  bool client_credentials = method == "oidc" && (grant.empty() || grant == "client_credentials") &&
                            (metadata.empty() || metadata == "none");
  return get(given, "sasl.mechanism") == "OAUTHBEARER" && (client_credentials || method == msk_iam);
}

bool is_token_property(std::string_view name) {
  return name.starts_with(prefix);
}

bool check_token_property(std::string_view name, const std::string &option, const std::string &value) {
  if (!is_token_property(name))
    return false;
  name.remove_prefix(prefix.size());
  if (name == "method") {
    if (value != "default" && value != "oidc" && value != msk_iam)
      throw_bad_value(option, value, "Expected one of: default, oidc, aws_msk_iam.");
  } else if (name == "token.endpoint.url") {
    check_token_url(option, value);
  } else if (name == "client.id" || name == "client.secret" || name == "scope") {
    check_oauth_text(option, value);
  } else if (name == "extensions") {
    (void)parse_extensions(option, value);
  } else {
    return false;
  }
  return true;
}

std::vector<Row<KafkaTokenOptions>> KafkaTokenOptions::rows() {
  using Of = KafkaTokenOptions;
  return joined<Of>(row(HTTPS_CA_PEM, &Of::https_ca_pem, Text{check_certificates_pem, "PEM"},
                        "Authorities of the certificate of a token endpoint.")
                        .otherwise("the system's authorities"),
                    row(aws::AWS_REGION, &Of::aws_region, Text{check_region, "`eu-central-1`"},
                        "Of the cluster, for tokens for [Amazon MSK](docs/kafka.md#amazon-msk-with-iam)."),
                    within(&Of::credentials, aws::CredentialOptions::rows()));
}

void KafkaTokenOptions::check_mapping() const {
  credentials.check_mapping();
}

void check_kafka_tokens(const KafkaProperties &given, const KafkaTokenOptions &options, const Options &server,
                        const Options *mapping) {
  check_without_meaning(given, server, mapping);
  if (!has_own_tokens(given))
    return;
  if (!is_msk(given)) {
    check_endpoint(given, mapping != nullptr);
    return;
  }
  if (options.aws_region.empty())
    missing(aws::AWS_REGION, "A token for Amazon MSK is signed for the region of the cluster.",
            "Use CREATE SERVER ... OPTIONS (aws_region 'eu-central-1').");
  (void)options.credentials.source(mapping != nullptr);
}

std::shared_ptr<const KafkaTokenSource> kafka_token_source(const KafkaProperties &given,
                                                           const KafkaTokenOptions &options) {
  if (!has_own_tokens(given))
    return nullptr;
  return is_msk(given) ? of_msk(options) : of_endpoint(given, options);
}

}  // namespace outbox
