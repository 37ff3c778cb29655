/*
 * stream.h: a parser of a stream of bytes sees the same whether they come at once or in pieces, and what it shows of
 * them is clean.
 */
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "delivery/base/clean_text.h"
#include "delivery/base/secret_mask.h"
#include "test/fuzz/fuzz.h"
#include "test/fuzz/utf8.h"

namespace fuzz {

/* The parts that were read, each as a text, and how reading ended: an empty text if the parser waits for more. */
struct Seen {
  std::vector<std::string> units;
  std::string error;
  bool operator==(const Seen &) const = default;
};

/* read_all(bytes, seen) gives the reader the bytes, and takes all that is complete; false after an error. */
template <class Reader, class ReadAll> Seen read_in_pieces(std::string_view stream, size_t piece, ReadAll read_all) {
  Reader reader;
  Seen seen;
  while (!stream.empty()) {
    /* Of its own, so that the address sanitizer sees what is read behind its end. */
    const std::vector<char> bytes(stream.begin(), stream.begin() + std::min(piece, stream.size()));
    stream.remove_prefix(bytes.size());
    if (!read_all(reader, std::string_view(bytes.data(), bytes.size()), seen))
      break;
  }
  return seen;
}

template <class Reader, class ReadAll>
Seen read_whole_and_in_pieces(std::string_view stream, size_t piece, ReadAll read_all) {
  Seen whole = read_in_pieces<Reader>(stream, std::max<size_t>(stream.size(), 1), read_all);
  HOLDS((read_in_pieces<Reader>(stream, piece, read_all) == whole));
  return whole;
}

/* As it is shown to people: one line of UTF-8. */
inline std::string shown(std::string_view text) {
  std::string line = outbox::text_to_show(text, {});
  auto characters = utf8_characters(line);
  HOLDS(characters);
  for (uint32_t c : *characters)
    HOLDS(c >= 0x20 && (c < 0x7F || c > 0x9F));
  return line;
}

}  // namespace fuzz
