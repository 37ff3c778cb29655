/*
 * json_text.cpp: reads and writes in one pass without a tree, so that numbers keep all digits; JSON libraries that
 * parse numbers would lose some.
 */
#include "delivery/formats/json_text.h"

#include <array>
#include <cctype>
#include <cstdint>

#include <nlohmann/json.hpp>

namespace outbox {
namespace {

constexpr char hex[] = "0123456789ABCDEF";

void append_escape(uint32_t unit, std::string &out) {
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4)
    out += hex[unit >> shift & 15];
}

/* Appends the four-byte character at `at` as two \u escapes. Returns its length. */
size_t append_surrogates(std::string_view text, size_t at, std::string &out) {
  if (text.size() - at < 4) { /* an incomplete character is copied */
    out += text[at];
    return 1;
  }
  auto bits = [&](size_t i, uint32_t mask) { return static_cast<unsigned char>(text[at + i]) & mask; };
  uint32_t code = (bits(0, 7) << 18 | bits(1, 63) << 12 | bits(2, 63) << 6 | bits(3, 63)) - 0x10000;
  append_escape(0xD800 | code >> 10, out);
  append_escape(0xDC00 | (code & 0x3FF), out);
  return 4;
}

constexpr bool outside_basic_plane(char c) {
  return static_cast<unsigned char>(c) >= 0xF0;
}

constexpr std::array<bool, 256> make_special() {
  std::array<bool, 256> special{};
  for (size_t byte = 0; byte < 256; byte++)
    special[byte] = byte < 0x20 || byte == '"' || byte == '\\' || byte >= 0xF0;
  return special;
}
constexpr std::array<bool, 256> special = make_special();

/* The position of the next byte from `at` on that cannot be copied unchanged. */
size_t next_special(std::string_view text, size_t at) {
  while (at < text.size() && !special[static_cast<unsigned char>(text[at])])
    at++;
  return at;
}

void append_control(char c, std::string &out) {
  switch (c) {
  case '\b':
    out += "\\b";
    break;
  case '\t':
    out += "\\t";
    break;
  case '\n':
    out += "\\n";
    break;
  case '\f':
    out += "\\f";
    break;
  case '\r':
    out += "\\r";
    break;
  default:
    append_escape(static_cast<unsigned char>(c), out);
  }
}

/* Copies the string that starts with the quote at `at`, with its escapes. Returns the position after it. */
size_t copy_string(std::string_view text, size_t at, std::string &out) {
  out += text[at++];
  while (at < text.size()) {
    size_t end = next_special(text, at);
    out.append(text, at, end - at);
    at = end;
    if (at >= text.size())
      break;
    if (text[at] == '"') {
      out += '"';
      return at + 1;
    }
    if (outside_basic_plane(text[at])) {
      at += append_surrogates(text, at, out);
    } else if (text[at] == '\\' && at + 5 < text.size() && text[at + 1] == 'u') {
      out += "\\u";
      for (size_t i = 2; i < 6; i++)
        out += static_cast<char>(std::toupper(static_cast<unsigned char>(text[at + i])));
      at += 6;
    } else {
      out.append(text, at, 2);
      at += 2;
    }
  }
  return at;
}

bool is_structure(char c) {
  return c == '{' || c == '}' || c == '[' || c == ']' || c == ',' || c == ':';
}

size_t skip_blanks(std::string_view text, size_t at) {
  while (at < text.size() && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r'))
    at++;
  return at;
}

/* The end of a value that must be left out; 0 = the value stays. */
size_t dropped(std::string_view text, size_t at, NullBehavior nulls) {
  if (nulls == NullBehavior::Keep)
    return 0;
  if (text.substr(at, 2) == "[]")
    return at + 2;
  return nulls == NullBehavior::Ignore && text.substr(at, 4) == "null" ? at + 4 : 0;
}

}  // namespace

void append_json_string(std::string_view text, std::string &out) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    size_t end = next_special(text, at);
    out.append(text, at, end - at);
    at = end;
    if (at >= text.size())
      break;
    if (outside_basic_plane(text[at])) {
      at += append_surrogates(text, at, out);
      continue;
    }
    if (text[at] == '"' || text[at] == '\\')
      (out += '\\') += text[at];
    else
      append_control(text[at], out);
    at++;
  }
  out += '"';
}

void append_repaired_json_string(std::string_view text, std::string &out) {
  out += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void append_compact_json(std::string_view text, NullBehavior nulls, std::string &out) {
  bool comma = false; /* a comma is needed before the next member or element */
  auto begin = [&] {
    if (comma && out.back() != '{') /* otherwise the previous member was left out */
      out += ',';
    comma = false;
  };
  for (size_t at = skip_blanks(text, 0); at < text.size(); at = skip_blanks(text, at)) {
    char c = text[at];
    if (c == ',') {
      comma = true;
      at++;
    } else if (c == '}' || c == ']' || c == ':') {
      comma = false; /* the last member was left out */
      out += c;
      at++;
    } else if (c == '{' || c == '[') {
      begin();
      out += c;
      at++;
    } else if (c == '"') {
      size_t before = out.size();
      bool had_comma = comma;
      begin();
      at = copy_string(text, at, out);
      size_t colon = skip_blanks(text, at);
      if (colon >= text.size() || text[colon] != ':')
        continue;
      if (size_t end = dropped(text, skip_blanks(text, colon + 1), nulls)) {
        out.resize(before);
        comma = had_comma;
        at = end;
      }
    } else { /* number, true, false, null */
      begin();
      size_t end = at;
      while (end < text.size() && !is_structure(text[end]) && text[end] != ' ')
        end++;
      out.append(text, at, end - at);
      at = end;
    }
  }
}

}  // namespace outbox
