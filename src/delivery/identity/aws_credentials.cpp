/*
 * aws_credentials.cpp: the options, and the chain. A place that the environment names is not skipped when it fails:
 * with the next place's identity the sink would act as somebody else.
 */
#include "delivery/identity/aws_credentials.h"

#include <cstdlib>

#include "delivery/identity/aws_metadata.h"

namespace outbox::aws {
namespace {

constexpr const char *variables[] = {"AWS_ACCESS_KEY_ID",
                                     "AWS_SECRET_ACCESS_KEY",
                                     "AWS_SESSION_TOKEN",
                                     "AWS_REGION",
                                     "AWS_DEFAULT_REGION",
                                     "AWS_WEB_IDENTITY_TOKEN_FILE",
                                     "AWS_ROLE_ARN",
                                     "AWS_ROLE_SESSION_NAME",
                                     "AWS_ENDPOINT_URL_STS",
                                     "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                     "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                     "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                                     "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                                     "AWS_EC2_METADATA_DISABLED",
                                     "AWS_EC2_METADATA_SERVICE_ENDPOINT"};

void check_key_id(const std::string &name, const std::string &value) {
  if (value.size() < 16 || value.size() > 128 ||
      value.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                              "abcdefghijklmnopqrstuvwxyz_0123456789") != value.npos)
    throw_bad_value(name, value, "An access key id has 16 to 128 letters and digits.",
                    "It begins with AKIA (of a user), or with ASIA (temporary, with a session token).");
}

void check_secret(const std::string &name, const std::string &value) {
  if (value.empty() || value.find_first_of(" \t\r\n") != value.npos)
    refuse_value(name, "Expected one word of base64.", "Perhaps a blank or a line break was pasted with it.");
}

void check_chain(const std::string &name, const std::string &value) {
  if (value != "chain")
    throw_bad_value(name, value, "Expected \"chain\".",
                    "Leave it out if the user mapping has an access key id and a secret access key.");
}

}  // namespace

std::vector<Row<CredentialOptions>> CredentialOptions::rows() {
  const std::vector<Row<Credentials>> keys = {
      row(AWS_ACCESS_KEY_ID, &Credentials::access_key_id, Text{check_key_id}, "Of the AWS user or role.")
          .in_user_mapping(),
      row(AWS_SECRET_ACCESS_KEY, &Credentials::secret_access_key, Text{check_secret}, "Of that access key id.")
          .as_secret(),
      row(AWS_SESSION_TOKEN, &Credentials::session_token, Text{check_secret},
          "With temporary keys, which end after hours: for tests.")
          .as_secret(),
  };
  return joined<CredentialOptions>(
      row(AWS_CREDENTIALS, &CredentialOptions::chain, Text{check_chain, "`chain`"},
          "The server's own identity, from environment variables, a web identity token, or the metadata of the "
          "container or instance.")
          .in_form(OptionForm::Word)
          .by_superuser()
          .otherwise("the keys in the user mapping"),
      within(&CredentialOptions::keys, keys));
}

void CredentialOptions::check_mapping() const {
  auto require = [&](const std::string &value, OptionName name, const std::string &given, OptionName with) {
    if (!given.empty() && value.empty())
      throw BadInput(OB_MISSING_OPTION, name,
                     "option \"" + std::string(name) + "\" is required with \"" + with.text + "\"",
                     "Requests are signed with an access key id and its secret access key.",
                     "Use CREATE USER MAPPING FOR PUBLIC SERVER ... OPTIONS (" + std::string(AWS_ACCESS_KEY_ID) +
                         " '...', " + AWS_SECRET_ACCESS_KEY.text + " '...').");
  };
  require(keys.secret_access_key, AWS_SECRET_ACCESS_KEY, keys.access_key_id, AWS_ACCESS_KEY_ID);
  require(keys.access_key_id, AWS_ACCESS_KEY_ID, keys.secret_access_key, AWS_SECRET_ACCESS_KEY);
  require(keys.access_key_id, AWS_ACCESS_KEY_ID, keys.session_token, AWS_SESSION_TOKEN);
}

std::shared_ptr<const CredentialSource> CredentialOptions::source(bool knows_mapping) const {
  const std::string name = AWS_CREDENTIALS, id_name = AWS_ACCESS_KEY_ID;
  check_mapping();
  if (!chain.empty() && !keys.access_key_id.empty())
    throw BadInput(OB_BAD_VALUE, id_name, "options \"" + name + "\" and \"" + id_name + "\" exclude each other",
                   "A request is signed with one identity.", "Leave one of them out.");
  if (!chain.empty())
    return std::make_shared<const CredentialSource>(CredentialSource::chain());
  if (!knows_mapping)
    return nullptr;
  if (keys.access_key_id.empty())
    throw BadInput(OB_MISSING_OPTION, id_name, "option \"" + id_name + "\" is missing",
                   "The user mapping for PUBLIC has no AWS credentials.",
                   "Use CREATE USER MAPPING FOR PUBLIC SERVER ... OPTIONS (" + id_name + " '...', " +
                       AWS_SECRET_ACCESS_KEY.text + " '...'), or as a superuser option " + name +
                       " 'chain' of the server.");
  return std::make_shared<const CredentialSource>(keys);
}

CredentialSource CredentialSource::chain() {
  Environment environment;
  for (const char *name : variables)
    if (const char *value = getenv(name); value && *value)
      environment.emplace(name, value);
  return chain(std::move(environment));
}

CredentialSource CredentialSource::chain(Environment environment) {
  CredentialSource source;
  source.from_chain_ = true;
  source.environment_ = std::move(environment);
  return source;
}

Grant<Credentials> CredentialSource::fetch(const Stop &stop) const {
  if (!from_chain_)
    return {given_};
  auto get = [this](std::string_view name) {
    auto at = environment_.find(name);
    return at == environment_.end() ? std::string() : at->second;
  };
  if (std::string id = get("AWS_ACCESS_KEY_ID"); !id.empty()) {
    std::string secret = get("AWS_SECRET_ACCESS_KEY");
    if (secret.empty())
      throw NotGranted("no AWS credentials from the environment: AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY "
                       "is not; set both for the database server, and restart it");
    return {{std::move(id), std::move(secret), get("AWS_SESSION_TOKEN")}};
  }
  if (std::string file = get("AWS_WEB_IDENTITY_TOKEN_FILE"); !file.empty())
    return of_web_identity({file, get("AWS_ROLE_ARN"), get("AWS_ROLE_SESSION_NAME"),
                            get("AWS_REGION").empty() ? get("AWS_DEFAULT_REGION") : get("AWS_REGION"),
                            get("AWS_ENDPOINT_URL_STS")},
                           stop);
  std::string relative = get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
              full = get("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  if (!relative.empty() || !full.empty())
    return of_container({relative.empty() ? full : "http://169.254.170.2" + relative,
                         get("AWS_CONTAINER_AUTHORIZATION_TOKEN"), get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")},
                        stop);
  try {
    if (get("AWS_EC2_METADATA_DISABLED") == "true")
      throw NotGranted("AWS_EC2_METADATA_DISABLED forbids it");
    std::string endpoint = get("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    return of_instance(endpoint.empty() ? "http://169.254.169.254" : endpoint, stop);
  } catch (const NotGranted &failure) {
    throw NotGranted("no AWS credentials: the database server's environment has none of AWS_ACCESS_KEY_ID, "
                     "AWS_WEB_IDENTITY_TOKEN_FILE, AWS_CONTAINER_CREDENTIALS_FULL_URI and "
                     "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, and from the instance's metadata: " +
                     std::string(failure.what()));
  }
}

}  // namespace outbox::aws
