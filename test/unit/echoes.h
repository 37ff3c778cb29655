/* echoes.h: the encodings in which a peer may repeat a request. */
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "delivery/base/base64.h"

namespace echoes {

struct Encoding {
  const char *name;
  std::function<std::string(const std::string &)> encode;
  size_t others = 0; /* leading characters that also depend on other bytes */
};

inline std::string each(const std::string &text, const char *format) {
  std::string encoded;
  for (unsigned char c : text) {
    char one[16];
    snprintf(one, sizeof one, format, c);
    encoded += one;
  }
  return encoded;
}

inline std::string json(const std::string &text) {
  std::string quoted = nlohmann::json(text).dump();
  return quoted.substr(1, quoted.size() - 2);
}

inline std::string replaced(std::string text, const std::string &from, const std::string &to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

inline std::string percent(const std::string &text, const char *format) {
  std::string encoded;
  for (char c : text)
    encoded += isalnum(static_cast<unsigned char>(c)) ? std::string(1, c) : each({&c, 1}, format);
  return encoded;
}

inline std::string base64(const std::string &text, const std::string &before = {}) {
  std::string encoded;
  outbox::append_base64(before + text, encoded);
  return encoded;
}

inline std::string url_safe(std::string text) {
  text = replaced(replaced(std::move(text), "+", "-"), "/", "_");
  return text.substr(0, text.find('='));
}

inline const std::vector<Encoding> &all() {
  using Text = const std::string &;
  static const auto &all = *new std::vector<Encoding>{
      {"plain", [](Text text) { return text; }},
      {"JSON", json},
      {"JSON with slashes escaped", [](Text text) { return replaced(json(text), "/", "\\/"); }},
      {"JSON in JSON", [](Text text) { return json(replaced(json(text), "/", "\\/")); }},
      {"JSON in numbers", [](Text text) { return each(text, "\\u%04x"); }},
      {"JSON in numbers, upper case", [](Text text) { return each(text, "\\u%04X"); }},
      {"percent", [](Text text) { return percent(text, "%%%02X"); }},
      {"percent, lower case", [](Text text) { return percent(text, "%%%02x"); }},
      {"percent, all of it", [](Text text) { return each(text, "%%%02X"); }},
      {"percent twice", [](Text text) { return percent(percent(text, "%%%02X"), "%%%02X"); }},
      {"form", [](Text text) { return replaced(percent(text, "%%%02X"), "%20", "+"); }},
      {"HTML in numbers", [](Text text) { return each(text, "&#%d;"); }},
      {"HTML in hexadecimal numbers", [](Text text) { return each(text, "&#x%X;"); }},
      {"repr", [](Text text) { return each(text, "\\x%02x"); }},
      {"base64", [](Text text) { return base64(text); }},
      {"base64 of a header", [](Text text) { return base64(text, "Bearer "); }, 10},
      {"base64 with one before it", [](Text text) { return base64(text, "x"); }, 2},
      {"base64 with two before it", [](Text text) { return base64(text, "xy"); }, 3},
      {"URL-safe base64", [](Text text) { return url_safe(base64(text)); }},
      {"JSON of base64", [](Text text) { return replaced(base64(text), "/", "\\/"); }},
      {"percent-encoded base64", [](Text text) { return percent(base64(text), "%%%02x"); }},
  };
  return all;
}

/* No part of the secret is in the text. */
inline void expect_no_part(const std::string &text, const std::string &sent, const Encoding &encoding) {
  constexpr size_t part = 6;
  for (size_t at = encoding.others; at + part <= sent.size(); at++)
    ASSERT_EQ(text.find(sent.substr(at, part)), text.npos) << encoding.name << ": " << text << "\nof " << sent;
}

}  // namespace echoes
