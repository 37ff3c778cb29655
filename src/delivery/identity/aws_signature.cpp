/*
 * aws_signature.cpp: the canonical request, the string to sign and the derived key. Each service but S3 signs the
 * path without dot segments and encoded once more than it stands in the URL; S3, whose keys may contain both, signs
 * it unchanged.
 */
#include "delivery/identity/aws_signature.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <stdexcept>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "delivery/base/text.h"
#include "delivery/no_postgres.h"

namespace outbox::aws {
namespace {

constexpr std::string_view algorithm = "AWS4-HMAC-SHA256", s3 = "s3";

std::string hex(std::string_view bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (char c : bytes) {
    auto byte = static_cast<unsigned char>(c);
    (text += digits[byte >> 4]) += digits[byte & 15];
  }
  return text;
}

std::string hash(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (!EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr))
    throw std::runtime_error("could not sign: SHA-256 is not available");
  return hex({reinterpret_cast<char *>(digest), size});
}

std::string hmac(std::string_view key, std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (!HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
            reinterpret_cast<const unsigned char *>(bytes.data()), bytes.size(), digest, &size))
    throw std::runtime_error("could not sign: HMAC-SHA256 is not available");
  return {reinterpret_cast<char *>(digest), size};
}

/* 20150830T123600Z; the first eight characters are the date. */
std::string time_text(int64_t unix_seconds) {
  time_t seconds = unix_seconds;
  tm parts{};
  char text[32];
  if (!gmtime_r(&seconds, &parts) || !strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &parts))
    throw std::runtime_error("could not sign: the system's time is not a date");
  return text;
}

/* The path without empty segments, "." and "..". */
std::string normalized(std::string_view path) {
  std::vector<std::string_view> kept;
  for (size_t at = 0; at <= path.size();) {
    size_t end = std::min(path.find('/', at), path.size());
    std::string_view segment = path.substr(at, end - at);
    at = end + 1;
    if (segment == "..") {
      if (!kept.empty())
        kept.pop_back();
    } else if (!segment.empty() && segment != ".") {
      kept.push_back(segment);
    }
  }
  std::string text;
  for (std::string_view segment : kept)
    text.append("/").append(segment);
  if (text.empty() || path.ends_with('/'))
    text += '/';
  return text;
}

std::string canonical_path(std::string_view path, std::string_view service) {
  if (service == s3)
    return path.empty() ? "/" : std::string(path);
  std::string text, clean = normalized(path);
  for (size_t at = 0; at < clean.size();) {
    size_t end = std::min(clean.find('/', at), clean.size());
    append_uri_encoded(std::string_view(clean).substr(at, end - at), text);
    if (end < clean.size())
      text += '/';
    at = end + 1;
  }
  return text;
}

/* Sorted by name, then by value, as encoded; "name" becomes "name=". */
std::string canonical_query(std::string_view query) {
  std::vector<std::pair<std::string_view, std::string_view>> parameters;
  for (size_t at = 0; at < query.size();) {
    size_t end = std::min(query.find('&', at), query.size());
    std::string_view parameter = query.substr(at, end - at);
    at = end + 1;
    size_t equals = std::min(parameter.find('='), parameter.size());
    if (!parameter.empty())
      parameters.emplace_back(parameter.substr(0, equals), parameter.substr(std::min(equals + 1, parameter.size())));
  }
  std::sort(parameters.begin(), parameters.end());
  std::string text;
  for (auto [name, value] : parameters)
    text.append(text.empty() ? "" : "&").append(name).append("=").append(value);
  return text;
}

std::string lower(std::string_view text) {
  std::string small(text);
  for (char &c : small)
    if (c >= 'A' && c <= 'Z')
      c = static_cast<char>(c - 'A' + 'a');
  return small;
}

/* Trimmed, with one blank for each run of white space. */
std::string canonical_value(std::string_view value) {
  std::string text;
  for (size_t at = 0;;) {
    at = std::min(value.find_first_not_of(" \t\r\n", at), value.size());
    if (at == value.size())
      return text;
    size_t end = std::min(value.find_first_of(" \t\r\n", at), value.size());
    text.append(text.empty() ? "" : " ").append(value.substr(at, end - at));
    at = end;
  }
}

/* Name to value; the values of headers with the same name in their order. */
class SignedHeaders {
public:
  void add(std::string_view name, std::string_view value) {
    auto [at, added] = values_.emplace(lower(name), canonical_value(value));
    if (!added)
      at->second.append(",").append(canonical_value(value));
  }
  std::string names() const {
    std::string text;
    for (const auto &[name, value] : values_)
      text.append(text.empty() ? "" : ";").append(name);
    return text;
  }
  std::string lines() const {
    std::string text;
    for (const auto &[name, value] : values_)
      text.append(name).append(":").append(value).append("\n");
    return text;
  }

private:
  std::map<std::string, std::string> values_;
};

std::string scope_text(const Scope &scope, std::string_view time) {
  return std::string(time.substr(0, 8))
      .append("/")
      .append(scope.region)
      .append("/")
      .append(scope.service)
      .append("/aws4_request");
}

std::string signature(const Request &request, std::string_view query, const SignedHeaders &headers,
                      std::string_view body_hash, const Scope &scope, std::string_view secret_access_key,
                      std::string_view time) {
  std::string canonical(request.method);
  canonical.append("\n").append(canonical_path(request.path, scope.service));
  canonical.append("\n").append(canonical_query(query));
  canonical.append("\n").append(headers.lines());
  canonical.append("\n").append(headers.names());
  canonical.append("\n").append(body_hash);

  std::string text(algorithm);
  text.append("\n").append(time).append("\n").append(scope_text(scope, time)).append("\n").append(hash(canonical));

  std::string key = hmac(std::string("AWS4").append(secret_access_key), time.substr(0, 8));
  for (std::string_view part : {scope.region, scope.service, std::string_view("aws4_request")})
    key = hmac(key, part);
  return hex(hmac(key, text));
}

}  // namespace

Headers sign(const Request &request, const Scope &scope, const Credentials &credentials, int64_t unix_seconds) {
  std::string time = time_text(unix_seconds), body_hash = hash(request.body);
  Headers added{{"x-amz-date", time}};
  if (!credentials.session_token.empty())
    added.emplace_back("x-amz-security-token", credentials.session_token);
  if (scope.service == s3)
    added.emplace_back("x-amz-content-sha256", body_hash);

  SignedHeaders headers;
  headers.add("host", request.host);
  for (const auto &[name, value] : request.headers)
    headers.add(name, value);
  for (const auto &[name, value] : added)
    headers.add(name, value);

  std::string value(algorithm);
  value.append(" Credential=").append(credentials.access_key_id).append("/").append(scope_text(scope, time));
  value.append(", SignedHeaders=").append(headers.names());
  value.append(", Signature=")
      .append(signature(request, request.query, headers, body_hash, scope, credentials.secret_access_key, time));
  added.emplace_back("authorization", std::move(value));
  return added;
}

std::string presign(const Request &request, const Scope &scope, const Credentials &credentials, int64_t unix_seconds,
                    int64_t seconds) {
  std::string time = time_text(unix_seconds);
  SignedHeaders headers;
  headers.add("host", request.host);

  std::string query(request.query);
  auto append = [&query](std::string_view name, std::string_view value) {
    query.append(query.empty() ? "" : "&").append(name).append("=");
    append_uri_encoded(value, query);
  };
  append("X-Amz-Algorithm", algorithm);
  append("X-Amz-Credential", credentials.access_key_id + "/" + scope_text(scope, time));
  append("X-Amz-Date", time);
  append("X-Amz-Expires", std::to_string(seconds));
  append("X-Amz-SignedHeaders", headers.names());
  if (!credentials.session_token.empty())
    append("X-Amz-Security-Token", credentials.session_token);
  std::string body_hash = scope.service == s3 ? "UNSIGNED-PAYLOAD" : hash(request.body);
  append("X-Amz-Signature",
         signature(request, query, headers, body_hash, scope, credentials.secret_access_key, time));
  return query;
}

void append_uri_encoded(std::string_view text, std::string &out) {
  for (char c : text)
    if ((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
        c == '_' || c == '~')
      out += c;
    else
      append_percent_encoded(c, out);
}

}  // namespace outbox::aws
