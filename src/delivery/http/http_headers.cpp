/*
 * http_headers.cpp: libcurl sends header texts unchanged, so names must be tokens of RFC 9110, and fields that
 * libcurl or HTTP itself owns (Host, Content-Length, Transfer-Encoding, …) are refused.
 */
#include "delivery/http/http_headers.h"

#include <algorithm>

#include "delivery/base/clean_text.h"
#include "delivery/base/text.h"
#include "delivery/options/flat_object.h"
#include "delivery/options/headers.h"

namespace outbox {

bool is_header_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           std::string_view("!#$%&'*+-.^_`|~").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

bool has_control(std::string_view value) {
  return std::any_of(value.begin(), value.end(),
                     [](unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7f; });
}

static char fold(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool same_name(std::string_view one, std::string_view other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](char a, char b) { return fold(a) == fold(b); });
}

bool same_variable(std::string_view one, std::string_view other) {
  auto variable = [](char c) {
    c = fold(c);
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? c : '_';
  };
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [&](char a, char b) { return variable(a) == variable(b); });
}

bool has_same_variable(const HttpHeaders &headers, std::string_view name) {
  return std::any_of(headers.begin(), headers.end(), [&](auto &header) { return same_variable(header.first, name); });
}

const std::string *find_header(const HttpHeaders &headers, std::string_view name) {
  auto found =
      std::find_if(headers.begin(), headers.end(), [&](auto &header) { return same_name(header.first, name); });
  return found == headers.end() ? nullptr : &found->second;
}

bool is_reserved(std::string_view name) {
  static constexpr std::string_view names[] = {
      "authorization", "connection",          "content-length",   "content-type", "expect",  "host",
      "keep-alive",    "proxy-authorization", "proxy-connection", "te",           "trailer", "transfer-encoding",
      "upgrade",       "user-agent"};
  for (std::string_view prefix : {"webhook-", "svix-"})
    if (same_variable(name.substr(0, prefix.size()), prefix))
      return true;
  return std::any_of(std::begin(names), std::end(names), [name](auto &own) { return same_variable(own, name); });
}

/* "X-Shopify-Access-Token", "DD-API-KEY" and "Cookie", but not "Idempotency-Key". */
static bool carries_credential(std::string_view name) {
  static constexpr std::string_view ends[] = {
      "access-key",    "account-key", "api-key",          "apikey",     "auth",        "auth-key",
      "authorization", "cookie",      "cookie2",          "credential", "credentials", "functions-key",
      "jwt",           "master-key",  "passwd",           "password",   "sas-key",     "secret",
      "secret-key",    "session-id",  "subscription-key", "token"};
  return std::any_of(std::begin(ends), std::end(ends),
                     [name](std::string_view end) {
                       if (name.size() < end.size() || !same_variable(name.substr(name.size() - end.size()), end))
                         return false;
                       return name.size() == end.size() ||
                              same_variable(name.substr(name.size() - end.size() - 1, 1), "-");
                     }) ||
         same_variable(name.substr(0, 7), "x-auth-");
}

static bool consists_of_variables(std::string_view value) {
  while (value.starts_with("${")) {
    size_t end = value.find('}');
    value.remove_prefix(end == value.npos ? value.size() : end + 1);
  }
  return value.empty();
}

void refuse_credential(const std::string &option, const char *what, const std::string &name, std::string_view value) {
  const bool of_the_sink = same_name(name, "authorization");
  if (!of_the_sink && (!carries_credential(name) || consists_of_variables(value)))
    return;
  refuse_value(
      option, std::string(what) + " \"" + name + "\" carries a secret, and server options are readable by everybody.",
      "Put it into the user mapping: CREATE USER MAPPING FOR PUBLIC SERVER ... OPTIONS (headers '{\"" + name +
          "\": \"...\"}')" + (of_the_sink ? ", or token." : "."));
}

void check_http_header(std::string_view name, std::string_view value) {
  if (!is_header_name(name))
    throw BadInput(OB_BAD_VALUE, "headers", "header name " + shown_name(name) + " is not legal in HTTP",
                   "A header name consists of letters, digits and the characters !#$%&'*+-.^_`|~.");
  check_header(name, value);
  if (has_control(value))
    throw BadInput(OB_BAD_VALUE, "headers",
                   "value of header \"" + shortened(name) + "\" contains a control character",
                   "HTTP allows no control characters in a header's value.",
                   "Encode such a value (percent-encoding, base64), or move it into the payload.");
}

HttpHeaders parse_headers(const std::string &name, const std::string &value) {
  HttpHeaders headers;
  for (const auto &[key, text] : parse_flat_object(name, value, "header", R"({"X-Tenant": "42"})")) {
    check_http_header(key, text);
    if (is_reserved(key) && !same_name(key, "authorization") && !same_name(key, "content-type"))
      refuse_value(name, "Header \"" + key + "\" is written by the sink itself.", "Leave it out.");
    if (find_header(headers, key))
      refuse_value(name, "Header \"" + key + "\" is given twice: upper and lower case are the same.",
                   "Leave one of them out.");
    headers.emplace_back(key, text);
  }
  return headers;
}

void check_bearer_token(const std::string &name, const std::string &value) {
  if (value.empty() || !std::all_of(value.begin(), value.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; }))
    refuse_value(name, "A bearer token consists of visible ASCII characters, without spaces.",
                 "Give the token alone: \"Bearer\" is put before it.");
}

std::string header_line(const std::string &name, const std::string &value) {
  return value.empty() ? name + ';' : name + ": " + value;
}

}  // namespace outbox
