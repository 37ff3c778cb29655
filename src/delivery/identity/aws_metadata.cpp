/*
 * aws_metadata.cpp: STS answers in XML, of which four elements are read; the metadata services answer in JSON. No
 * text shows more of an answer than STS's error code and message.
 */
#include "delivery/identity/aws_metadata.h"

#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>

#include "delivery/base/json_reader.h"
#include "delivery/base/secret_mask.h"
#include "delivery/base/text.h"
#include "delivery/http/network.h"
#include "delivery/http/url_parts.h"

namespace outbox::aws {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds metadata_timeout{2'000}, metadata_connect{1'000};

std::string read_token(const std::string &file, const char *variable) {
  std::ifstream in(file, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  std::string token(trim(text));
  if (!in || token.empty())
    throw NotGranted("the file \"" + file + "\", which " + variable +
                     " names, cannot be read by the database server, or is empty");
  if (token.find_first_of("\r\n") != token.npos)
    throw NotGranted("the file \"" + file + "\", which " + variable + " names, has more than one line");
  return token;
}

/* "2026-11-24T10:00:00Z". A time without meaning: the credentials are renewed within a minute. */
Grant<Credentials>::Time expiry(const std::string &text) {
  tm parts{};
  int64_t left = 60;
  if (strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts))
    left = timegm(&parts) - time(nullptr);
  return std::chrono::steady_clock::now() + std::chrono::seconds(left);
}

Grant<Credentials> granted(Credentials credentials, const std::string &expiration) {
  if (credentials.access_key_id.empty() || credentials.secret_access_key.empty())
    throw NotGranted("its answer contains no credentials");
  return {std::move(credentials), expiry(expiration)};
}

/* The metadata services' answers. */
Grant<Credentials> of_json(const std::string &text) {
  std::map<std::string, std::string> fields;
  auto broken = read_json(text, [&](const JsonPath &path, const JsonValue &value) {
    if (path.size() == 1 && value.kind == JsonValue::Kind::Text)
      fields[path[0]] = value.text;
  });
  if (broken)
    throw NotGranted("its answer is not JSON");
  if (auto code = fields.find("Code"); code != fields.end() && code->second != "Success")
    throw NotGranted("it says " + code->second + " (" + fields["Message"] + ")");
  return granted({fields["AccessKeyId"], fields["SecretAccessKey"], fields["Token"]}, fields["Expiration"]);
}

/* The text of the first element of this name. */
std::string element(std::string_view xml, const std::string &name) {
  size_t begin = xml.find("<" + name + ">");
  size_t end = begin == xml.npos ? begin : xml.find("</" + name + ">", begin);
  if (end == xml.npos)
    return {};
  begin += name.size() + 2;
  return std::string(trim(xml.substr(begin, end - begin)));
}

std::string status_text(const HttpFetched &answer) {
  return "HTTP " + std::to_string(answer.status);
}

/* RFC 3986's unreserved characters stay. */
std::string form(std::initializer_list<std::pair<const char *, std::string_view>> fields) {
  std::string text;
  for (const auto &[name, value] : fields) {
    text.append(text.empty() ? "" : "&").append(name).append("=");
    append_uri_encoded(value, text);
  }
  return text;
}

std::string sts_endpoint(const std::string &region) {
  bool china = region.starts_with("cn-");
  return region.empty() ? "https://sts.amazonaws.com"
                        : "https://sts." + region + (china ? ".amazonaws.com.cn" : ".amazonaws.com");
}

/* Unencrypted only to this machine, and to the addresses that ECS and EKS have for it. */
void check_container_url(const std::string &url) {
  UrlParts parts(url);
  auto address = literal_address(parts.host);
  bool near = address && (address->text() == "169.254.170.2" || address->text() == "169.254.170.23" ||
                          address->text() == "fd00:ec2::23" || address->text() == "::1" ||
                          (!address->v6 && address->address[0] == 127));
  if (origin_fault(url) != OriginFault::None || (parts.scheme == "http" && !near))
    throw NotGranted("AWS_CONTAINER_CREDENTIALS_FULL_URI is neither an https URL nor one of the container's own "
                     "addresses");
}

}  // namespace

Grant<Credentials> of_web_identity(const WebIdentity &identity, const Stop &stop) {
  const std::string endpoint = identity.endpoint.empty() ? sts_endpoint(identity.region) : identity.endpoint;
  try {
    if (identity.role_arn.empty())
      throw NotGranted("AWS_WEB_IDENTITY_TOKEN_FILE is set, and AWS_ROLE_ARN is not");
    const std::string token = read_token(identity.token_file, "AWS_WEB_IDENTITY_TOKEN_FILE");
    std::string_view session = identity.session_name.empty() ? "outbox" : std::string_view(identity.session_name);
    HttpFetched answer = fetch({.url = endpoint + (endpoint.ends_with('/') ? "" : "/"),
                                .method = "POST",
                                .headers = {{"Content-Type", "application/x-www-form-urlencoded"}},
                                .body = form({{"Action", "AssumeRoleWithWebIdentity"},
                                              {"Version", "2011-06-15"},
                                              {"RoleArn", identity.role_arn},
                                              {"RoleSessionName", session},
                                              {"WebIdentityToken", token}})},
                               stop);
    if (answer.status != 200) {
      SecretMask mask; /* before the text is cut: a part of a secret is not found */
      mask.add(token);
      throw NotGranted(status_text(answer) + " " + mask.masked(element(answer.body, "Code")) + " (" +
                       shortened(mask.masked(element(answer.body, "Message")), 300) + ")");
    }
    return granted({element(answer.body, "AccessKeyId"), element(answer.body, "SecretAccessKey"),
                    element(answer.body, "SessionToken")},
                   element(answer.body, "Expiration"));
  } catch (const NotGranted &failure) {
    throw NotGranted("no AWS credentials for role \"" + identity.role_arn + "\" by web identity from " + endpoint +
                     ": " + failure.what());
  }
}

Grant<Credentials> of_container(const Container &container, const Stop &stop) {
  try {
    check_container_url(container.url);
    HttpFetch request{.url = container.url, .timeout = metadata_timeout, .connect_timeout = metadata_connect};
    std::string token = container.token_file.empty()
                            ? container.token
                            : read_token(container.token_file, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    if (!token.empty())
      request.headers.emplace_back("Authorization", std::move(token));
    HttpFetched answer = fetch(request, stop);
    if (answer.status != 200)
      throw NotGranted(status_text(answer) + ": has the task or pod a role?");
    return of_json(answer.body);
  } catch (const NotGranted &failure) {
    throw NotGranted("no AWS credentials from the container's metadata at " + std::string(origin_of(container.url)) +
                     ": " + failure.what());
  }
}

Grant<Credentials> of_instance(const std::string &endpoint, const Stop &stop) {
  const std::string base = endpoint.ends_with('/') ? endpoint.substr(0, endpoint.size() - 1) : endpoint,
                    roles = base + "/latest/meta-data/iam/security-credentials/";
  HttpFetch request{.url = base + "/latest/api/token",
                    .method = "PUT",
                    .headers = {{"X-aws-ec2-metadata-token-ttl-seconds", "300"}},
                    .timeout = metadata_timeout,
                    .connect_timeout = metadata_connect};
  HttpFetched token;
  try {
    token = fetch(request, stop);
  } catch (const NotGranted &failure) {
    throw NotGranted(base + ": " + failure.what() +
                     ": this is no EC2 instance, or it is a container and the instance's metadata hop limit is 1");
  }
  if (token.status != 200 || token.body.find_first_of("\r\n") != token.body.npos)
    throw NotGranted(base + " gives no token: " + status_text(token));

  request = {.url = roles,
             .headers = {{"X-aws-ec2-metadata-token", token.body}},
             .timeout = metadata_timeout,
             .connect_timeout = metadata_connect};
  try {
    HttpFetched role = fetch(request, stop);
    std::string name(trim(role.body.substr(0, role.body.find('\n'))));
    if (role.status == 404 || name.empty())
      throw NotGranted("the instance has no role: give it an instance profile");
    if (role.status != 200)
      throw NotGranted(status_text(role));
    append_uri_encoded(name, request.url);
    HttpFetched answer = fetch(request, stop);
    if (answer.status != 200)
      throw NotGranted(status_text(answer));
    return of_json(answer.body);
  } catch (const NotGranted &failure) {
    throw NotGranted(base + ": " + failure.what());
  }
}

}  // namespace outbox::aws
