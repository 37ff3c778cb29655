/*
 * clean_text.cpp: a peer's text may hold invalid UTF-8 and terminal control characters. PostgreSQL refuses the
 * former in a text column, and the latter could forge lines of the server's log.
 */
#include "delivery/base/clean_text.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "delivery/base/secret_mask.h"
#include "delivery/base/text.h"

namespace outbox {

/* How many bytes of valid UTF-8 a blank, a control character or a separator of lines (U+2028, U+2029) takes at `at`;
 * 0 for any other character. The controls U+0080 to U+009F have two bytes; to terminals U+009B is ESC [. */
static size_t blank_at(std::string_view text, size_t at) {
  auto byte = [&](size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U; };
  if (byte(0) <= 0x20 || byte(0) == 0x7f)
    return 1;
  if (byte(0) == 0xC2 && byte(1) < 0xA0)
    return 2;
  return byte(0) == 0xE2 && byte(1) == 0x80 && (byte(2) == 0xA8 || byte(2) == 0xA9) ? 3 : 0;
}

std::string clean_text(std::string_view text) {
  using json = nlohmann::json;
  // Writing and parsing JSON replaces every invalid byte with U+FFFD.
  std::string valid =
      json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace)).get_ref<const std::string &>();
  std::string clean;
  for (size_t at = 0; at < valid.size();) {
    size_t blank = blank_at(valid, at);
    if (blank == 0)
      clean += valid[at];
    else if (!clean.empty() && clean.back() != ' ')
      clean += ' ';
    at += std::max<size_t>(blank, 1);
  }
  return std::string(trim(clean));
}

/* clean_text() lets none of them through. */
static constexpr char peer_begins = '\x01', peer_ends = '\x02', cut_peer_ends = '\x03';

std::string peer_text(std::string_view text, bool cut) {
  constexpr size_t longest = 8192; /* masking takes time and memory by the length */
  std::string marked(1, peer_begins);
  for (char c : text.substr(0, longest))
    marked += c >= peer_begins && c <= cut_peer_ends ? ' ' : c;
  return marked += cut || text.size() > longest ? cut_peer_ends : peer_ends;
}

std::string shown_name(std::string_view name) {
  return "\"" + clean_text(shortened(name)) + "\"";
}

std::string in_quotes(std::string_view text) {
  return "\"" + peer_text(text) + "\"";
}

std::string text_to_show(std::string_view text, const SecretMask &secrets) {
  constexpr size_t shown = 300;
  constexpr char ends[] = {peer_ends, cut_peer_ends, '\0'};
  const std::string masked = secrets.masked(text);
  std::string whole;
  for (std::string_view rest = masked; !rest.empty();) {
    const size_t begin = std::min(rest.find(peer_begins), rest.size());
    whole += rest.substr(0, begin);
    rest.remove_prefix(std::min(begin + 1, rest.size()));
    const size_t end = std::min(rest.find_first_of(ends), rest.size());
    const bool was_cut = end < rest.size() && rest[end] == cut_peer_ends;
    const std::string_view said = rest.substr(0, end);
    whole += shortened(trim(was_cut ? secrets.masked(said, true) : std::string(said)), shown);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return clean_text(whole);
}

}  // namespace outbox
