/*
 * secret_mask.cpp: an error page often repeats the request, credentials included, in the encoding of the page. So
 * the text is decoded layer by layer (at most eight), the secret is searched in each layer, and the bytes of the
 * original that it stands for are masked. The last layer alone would not do: in a text that is not encoded, the
 * backslash of "CORP\name-and-password" takes the first letter of the secret with it when it is decoded. The caller
 * masks before it cuts: a cut secret would no longer be found.
 */
#include "delivery/base/secret_mask.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "delivery/base/base64.h"
#include "delivery/base/text.h"

namespace outbox {
namespace {

constexpr size_t shortest_needle = 4;
constexpr size_t shortest_part_of_url = 8; /* shorter ones match in other texts */
constexpr size_t shortest_beginning = 12;  /* so do shorter beginnings of a secret */

/* A byte of the decoded text, and the range of the original that it was decoded from. */
struct Unit {
  char byte;
  uint32_t from, to;
};
using Units = std::vector<Unit>;

/* An escape's decoded bytes, and its length in units. */
struct Escape {
  size_t length;
  std::string means;
};

int digit(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : 99;
}

void append_utf8(uint32_t code, std::string &out) {
  auto add = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xC0 | code >> 6);
    add(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    add(0xE0 | code >> 12);
    add(0x80 | (code >> 6 & 0x3F));
    add(0x80 | (code & 0x3F));
  } else {
    add(0xF0 | (code >> 18 & 7));
    add(0x80 | (code >> 12 & 0x3F));
    add(0x80 | (code >> 6 & 0x3F));
    add(0x80 | (code & 0x3F));
  }
}

/* Recognizes escapes. */
class Reader {
public:
  explicit Reader(const Units &units) : units_(units) {}

  char at(size_t i) const { return i < units_.size() ? units_[i].byte : '\0'; }

  /* Reads between `least` and `most` digits starting at `i`. */
  std::optional<uint32_t> number(size_t i, int base, size_t least, size_t most, size_t &end) const {
    uint32_t value = 0;
    for (end = i; end < i + most && end < units_.size() && digit(at(end)) < base; end++)
      value = value * static_cast<uint32_t>(base) + static_cast<uint32_t>(digit(at(end)));
    return end - i >= least ? std::optional(value) : std::nullopt;
  }

  std::optional<Escape> escape(size_t i) const {
    size_t end;
    switch (at(i)) {
    case '%':
      if (auto byte = number(i + 1, 16, 2, 2, end))
        return Escape{3, std::string(1, static_cast<char>(*byte))};
      return std::nullopt;
    case '\\':
      return backslash(i);
    case '&':
      return entity(i);
    default:
      return std::nullopt;
    }
  }

private:
  std::optional<Escape> backslash(size_t i) const {
    size_t end;
    char next = at(i + 1);
    if (next == 'u')
      if (auto code = number(i + 2, 16, 4, 4, end)) {
        Escape escape{6, {}};
        size_t low_end;
        auto low = at(i + 6) == '\\' && at(i + 7) == 'u' ? number(i + 8, 16, 4, 4, low_end) : std::nullopt;
        if (*code >= 0xD800 && *code < 0xDC00 && low) {
          append_utf8(0x10000 + ((*code & 0x3FF) << 10 | (*low & 0x3FF)), escape.means);
          escape.length = 12;
        } else {
          append_utf8(*code, escape.means);
        }
        return escape;
      }
    if (next == 'x')
      if (auto byte = number(i + 2, 16, 2, 2, end))
        return Escape{4, std::string(1, static_cast<char>(*byte))};
    if (next == '\\' || next == '/' || next == '"' || next == '\'')
      return Escape{2, std::string(1, next)};
    if (next == 'n' || next == 'r' || next == 't')
      return Escape{2, "\n"};
    return std::nullopt;
  }

  std::optional<Escape> entity(size_t i) const {
    static constexpr std::array<std::pair<std::string_view, char>, 5> named = {
        {{"amp;", '&'}, {"lt;", '<'}, {"gt;", '>'}, {"quot;", '"'}, {"apos;", '\''}}};
    size_t end;
    if (at(i + 1) == '#') {
      bool hex = (at(i + 2) | 0x20) == 'x';
      auto code = number(i + (hex ? 3 : 2), hex ? 16 : 10, 1, 7, end);
      if (!code || at(end) != ';')
        return std::nullopt;
      Escape escape{end + 1 - i, {}};
      append_utf8(*code, escape.means);
      return escape;
    }
    for (auto &[name, byte] : named) {
      size_t same = 0;
      while (same < name.size() && at(i + 1 + same) == name[same])
        same++;
      if (same == name.size())
        return Escape{1 + same, std::string(1, byte)};
    }
    return std::nullopt;
  }

  const Units &units_;
};

/* Removes one layer of encoding; false when there was none. */
bool decode_once(Units &units) {
  Units decoded;
  decoded.reserve(units.size());
  Reader reader(units);
  for (size_t i = 0; i < units.size();) {
    auto escape = reader.escape(i);
    if (!escape) {
      decoded.push_back(units[i++]);
      continue;
    }
    for (char byte : escape->means)
      decoded.push_back({byte, units[i].from, units[i + escape->length - 1].to});
    i += escape->length;
  }
  bool fewer = decoded.size() != units.size();
  units = std::move(decoded);
  return fewer;
}

Units units_of(std::string_view text) {
  Units units;
  units.reserve(text.size());
  for (uint32_t i = 0; i < text.size(); i++)
    units.push_back({text[i], i, i + 1});
  return units;
}

/* The text as it is, then with one layer of encoding less each. Blanks and "+" are removed: lines are folded and
 * joined on the way, and forms encode a blank as "+". */
std::vector<Units> layers_of(std::string_view text) {
  constexpr size_t most_encodings = 8;
  std::vector<Units> layers;
  Units units = units_of(text);
  do
    layers.push_back(units);
  while (layers.size() <= most_encodings && decode_once(units));
  for (Units &layer : layers)
    std::erase_if(layer,
                  [](const Unit &unit) { return static_cast<unsigned char>(unit.byte) <= ' ' || unit.byte == '+'; });
  return layers;
}

std::string bytes_of(const Units &units) {
  std::string bytes;
  bytes.reserve(units.size());
  for (const Unit &unit : units)
    bytes += unit.byte;
  return bytes;
}

/* The length of the text without an incomplete escape at its end: the shortest one, since an earlier "&" may be the
 * secret's own. The caller goes on from there. */
size_t without_half_escape(std::string_view text) {
  constexpr size_t longest = 11; /* a surrogate pair without its last digit */
  size_t from = text.size() - std::min(text.size(), longest);
  for (size_t at = text.size(); at-- > from;) {
    std::string_view rest = text.substr(at);
    constexpr std::string_view hex = "0123456789abcdefABCDEF";
    bool half = (rest[0] == '%' && rest.find_first_not_of(hex, 1) == rest.npos && rest.size() < 3) ||
                (rest[0] == '\\' && rest.find_first_not_of("0123456789abcdefABCDEFux\\", 1) == rest.npos) ||
                (rest[0] == '&' && rest.find(';') == rest.npos && rest.size() < 10);
    if (half)
      return at;
  }
  return text.size();
}

/* How many bytes at the end of the text are the beginning of the needle. */
size_t beginning_at_end(std::string_view text, std::string_view needle) {
  for (size_t n = std::min(text.size(), needle.size() - 1); n >= shortest_needle; n--)
    if (text.substr(text.size() - n) == needle.substr(0, n))
      return n;
  return 0;
}

/* The part of a text's base64 that depends on the secret alone, when `before` bytes precede the secret in its group
 * of three. */
std::string base64_within(std::string_view secret, size_t before) {
  std::string encoded;
  append_base64(std::string(before, '\0').append(secret), encoded);
  size_t first = before == 0 ? 0 : before + 1; /* skip characters that also depend on other bytes */
  size_t last = (before + secret.size()) * 8 / 6;
  return encoded.substr(first, last - std::min(first, last));
}

std::string url_safe(std::string text) {
  std::replace(text.begin(), text.end(), '+', '-');
  std::replace(text.begin(), text.end(), '/', '_');
  return text;
}

/* UTF-8 that was decoded as Latin-1. */
std::string misread(std::string_view text) {
  std::string read;
  for (char byte : text)
    append_utf8(static_cast<unsigned char>(byte), read);
  return read;
}

}  // namespace

void SecretMask::add_needle(std::string_view needle, Telling tells) {
  for (const Units &layer : layers_of(needle)) {
    std::string decoded = bytes_of(layer);
    if (decoded.size() < shortest_needle)
      continue;
    const size_t size = decoded.size(), half = std::max(shortest_beginning, (size + 1) / 2),
                 telling = tells == Telling::FirstHalf ? std::min(half, size) : size;
    auto same =
        std::find_if(needles_.begin(), needles_.end(), [&](const Needle &known) { return known.bytes == decoded; });
    if (same == needles_.end())
      needles_.push_back({std::move(decoded), telling});
    else
      same->telling = std::min(same->telling, telling);
  }
}

void SecretMask::add_forms(std::string_view secret, size_t shortest, Telling telling) {
  if (secret.size() < std::max(shortest, shortest_needle))
    return;
  add_needle(secret, telling);
  if (std::string other = misread(secret); other != secret)
    add_needle(other, telling);
  std::string whole;
  append_base64(secret, whole); /* with padding */
  for (std::string encoded : {whole, base64_within(secret, 0), base64_within(secret, 1), base64_within(secret, 2)}) {
    add_needle(encoded, telling);
    add_needle(url_safe(std::move(encoded)), telling);
  }
}

void SecretMask::add(std::string_view secret, size_t shortest) {
  add_forms(secret, shortest, Telling::FirstHalf);
}

/* Masks the part as it is sent, and as the endpoint's code sees it after decoding. */
void SecretMask::add_part_of_url(std::string_view part, size_t shortest) {
  add_whole(part, shortest);
  if (Units decoded = units_of(part); decode_once(decoded))
    add_whole(bytes_of(decoded), shortest);
}

/* A label of the host can be the token. Certificates and resolvers repeat it in lower case. */
void SecretMask::add_host(std::string_view host) {
  constexpr size_t last_labels = 2;
  std::string lower(host);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
  for (std::string_view text : {host, std::string_view(lower)}) {
    add_whole(text);
    for (auto dots = std::count(text.begin(), text.end(), '.'); dots >= static_cast<long>(last_labels); dots--) {
      size_t end = text.find('.');
      add_whole(text.substr(0, end), shortest_part_of_url);
      text.remove_prefix(end + 1);
    }
  }
}

void SecretMask::add_url(std::string_view url) {
  add_part_of_url(url, shortest_needle);
  size_t scheme = url.find("://");
  url.remove_prefix(scheme == url.npos ? 0 : scheme + 3);
  size_t path = std::min(url.find_first_of("/?#"), url.size());
  std::string_view authority = url.substr(0, path);
  add_host(authority.substr(0, authority.starts_with('[') ? authority.size() : authority.find(':')));
  url.remove_prefix(path);
  add_part_of_url(url, shortest_needle);
  while (!url.empty()) {
    size_t end = std::min(url.find_first_of("/?&="), url.size());
    add_part_of_url(url.substr(0, end), shortest_part_of_url);
    url.remove_prefix(std::min(end + 1, url.size()));
  }
}

void SecretMask::add_header(std::string_view value) {
  constexpr size_t shortest_part = 8;
  add_whole(value);
  size_t blank = value.rfind(' ');
  if (blank != value.npos)
    add(value.substr(blank + 1));
  for (std::string_view rest = value; !rest.empty();) {
    size_t end = std::min(rest.find_first_of(" ,;=\""), rest.size());
    add(rest.substr(0, end), shortest_part);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  std::string decoded;
  constexpr size_t scheme = 6; /* "Basic " */
  if (blank == scheme - 1 && append_base64_decoded(trim(value.substr(scheme)), decoded))
    if (size_t colon = decoded.find(':'); colon != decoded.npos)
      add_basic(decoded.substr(0, colon), decoded.substr(colon + 1));
}

void SecretMask::add_basic(const std::string &user, const std::string &password) {
  std::string both = user + ":" + password, encoded;
  append_base64(both, encoded);
  add_whole(both); /* its beginning is the user's name */
  add_whole(encoded);
  add(password.empty() ? user : password);
}

std::string SecretMask::masked(std::string_view text, bool cut) const {
  if (needles_.empty() || text.empty())
    return std::string(text);
  std::vector<std::pair<uint32_t, uint32_t>> found; /* ranges of the original text */
  for (const Units &units : layers_of(text)) {
    std::string bytes = bytes_of(units);
    for (const auto &[needle, telling] : needles_) {
      const std::string_view beginning(needle.data(), telling);
      for (size_t at = 0; (at = bytes.find(beginning, at)) != bytes.npos; at++) {
        const auto end = std::mismatch(needle.begin(), needle.end(), bytes.begin() + at, bytes.end()).second;
        found.emplace_back(units[at].from, units[end - bytes.begin() - 1].to);
      }
    }
    for (size_t length = cut ? bytes.size() : 0; length > 0;) {
      std::string_view read(bytes.data(), length);
      for (const Needle &needle : needles_)
        if (size_t n = beginning_at_end(read, needle.bytes); n > 0)
          found.emplace_back(units[length - n].from, static_cast<uint32_t>(text.size()));
      size_t before = without_half_escape(read);
      length = before < length ? before : 0;
    }
  }
  std::sort(found.begin(), found.end());

  std::string clean;
  uint32_t end = 0;
  for (auto &[from, to] : found) {
    if (clean.empty() || from > end)
      clean.append(text.substr(end, from - end)) += "***";
    end = std::max(end, to);
  }
  return clean.append(text.substr(end));
}

}  // namespace outbox
