/* text.h: small string functions. */
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace outbox {

inline std::string_view trim(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  size_t from = text.find_first_not_of(blanks);
  return from == text.npos ? std::string_view() : text.substr(from, text.find_last_not_of(blanks) - from + 1);
}

/* The parts between separators, trimmed. */
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t at = 0;;) {
    size_t end = text.find(separator, at);
    parts.push_back(trim(text.substr(at, end == text.npos ? end : end - at)));
    if (end == text.npos)
      return parts;
    at = end + 1;
  }
}

/* The length of the longest prefix of at most `max` bytes that does not cut a UTF-8 character. */
inline size_t utf8_prefix(std::string_view text, size_t max) {
  if (text.size() <= max)
    return text.size();
  while (max > 0 && (static_cast<unsigned char>(text[max]) & 0xC0) == 0x80)
    max--;
  return max;
}

/* The beginning of a text, for a message: at most `max` bytes, no character is cut. */
inline std::string shortened(std::string_view text, size_t max = 100) {
  return std::string(text.substr(0, utf8_prefix(text, max)));
}

/* Whether the text begins so, in capitals or not; `lower_case` has no capitals. */
inline bool begins_ignoring_case(std::string_view text, std::string_view lower_case) {
  return text.size() >= lower_case.size() &&
         std::equal(lower_case.begin(), lower_case.end(), text.begin(), [](char lower, char c) {
           return lower == c || (c >= 'A' && c <= 'Z' && lower == static_cast<char>(c | 0x20));
         });
}

/* A part of a sentence as a sentence; empty stays empty. */
inline std::string sentence(std::string text) {
  if (!text.empty()) {
    if (text[0] >= 'a' && text[0] <= 'z')
      text[0] = static_cast<char>(text[0] - 'a' + 'A');
    text += '.';
  }
  return text;
}

/* Marks a text of which only the beginning is kept. */
constexpr std::string_view cut_mark = " [cut]";

/* At most `max` bytes: a longer text is cut at a whole character, and marked. */
inline std::string marked_if_cut(std::string text, size_t max) {
  if (text.size() > max) {
    text.resize(utf8_prefix(text, max - cut_mark.size()));
    text += cut_mark;
  }
  return text;
}

/* Appends "%2F" for a byte that a URI or a CloudEvents header cannot contain. */
inline void append_percent_encoded(char c, std::string &out) {
  constexpr char hex[] = "0123456789ABCDEF";
  auto byte = static_cast<unsigned char>(c);
  ((out += '%') += hex[byte >> 4]) += hex[byte & 15];
}

/* Whether each % is followed by two hexadecimal digits. */
inline bool percent_encoding_ends(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdefABCDEF";
  for (size_t at = text.find('%'); at != text.npos; at = text.find('%', at + 1))
    if (at + 2 >= text.size() || digits.find(text[at + 1]) == digits.npos || digits.find(text[at + 2]) == digits.npos)
      return false;
  return true;
}

/* Copies text into a fixed-size field of the delivery API, truncated at a whole character. */
template <size_t N> void copy_text(char (&to)[N], std::string_view from) {
  size_t length = utf8_prefix(from, N - 1);
  std::copy_n(from.begin(), length, to);
  to[length] = '\0';
}

}  // namespace outbox
