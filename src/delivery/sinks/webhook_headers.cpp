#include "delivery/sinks/webhook_headers.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "delivery/headers.h"
#include "delivery/http_answer.h"

namespace outbox {

static bool is_token(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           std::string_view("!#$%&'*+-.^_`|~").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

bool has_control(std::string_view value) {
  return std::any_of(value.begin(), value.end(),
                     [](unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7f; });
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char &c : out)
    if (c >= 'A' && c <= 'Z')
      c = static_cast<char>(c - 'A' + 'a');
  return out;
}

bool is_reserved(std::string_view name) {
  static constexpr std::string_view names[] = {
      "authorization", "connection",          "content-length",   "content-type", "expect",  "host",
      "keep-alive",    "proxy-authorization", "proxy-connection", "te",           "trailer", "transfer-encoding",
      "upgrade",       "user-agent"};
  std::string key = lower(name);
  return key.starts_with("webhook-") || std::find(std::begin(names), std::end(names), key) != std::end(names);
}

void check_http_header(std::string_view name, std::string_view value) {
  if (!is_token(name))
    throw BadInput(OB_BAD_VALUE, "headers",
                   "header name \"" + clean_text(name.substr(0, 100)) + "\" is not legal in HTTP",
                   "A header name consists of letters, digits and the characters !#$%&'*+-.^_`|~.");
  check_header(name, value);
  if (has_control(value))
    throw BadInput(OB_BAD_VALUE, "headers",
                   "value of header \"" + std::string(name.substr(0, 100)) + "\" contains a control character",
                   "HTTP allows no control characters in a header's value.",
                   "Encode such a value (percent-encoding, base64), or move it into the payload.");
}

HttpHeaders parse_headers(const std::string &name, const std::string &value) {
  auto object = nlohmann::json::parse(value, nullptr, false);
  if (!object.is_object())
    refuse_value(name, "Expected a flat JSON object such as {\"X-Tenant\": \"42\"}.");
  HttpHeaders headers;
  for (auto &[key, item] : object.items()) {
    if (!item.is_string() && !item.is_number() && !item.is_boolean())
      refuse_value(name,
                   "The value of header \"" + clean_text(key) + "\" is neither text nor a number nor a boolean.",
                   "Expected a flat JSON object such as {\"X-Tenant\": \"42\"}.");
    std::string text = item.is_string() ? item.get<std::string>() : item.dump();
    check_http_header(key, text);
    if (lower(key) == "authorization")
      refuse_value(name, "Header \"" + key + "\" carries a secret, and server options are readable by everybody.",
                   "Use bearer_token in the user mapping.");
    if (is_reserved(key))
      refuse_value(name, "Header \"" + key + "\" is written by the sink itself.");
    auto same = [wanted = lower(key)](auto &header) { return lower(header.first) == wanted; };
    if (std::any_of(headers.begin(), headers.end(), same))
      refuse_value(name, "Header \"" + key + "\" is given twice: upper and lower case are the same.");
    headers.emplace_back(key, text);
  }
  return headers;
}
}  // namespace outbox
