/* html.cpp: escapes text for HTML, and encodes links. */
#include "html.h"

namespace console {

void Html::escape(std::string_view text) {
  for (const char c : text) {
    switch (c) {
    case '&':
      text_ += "&amp;";
      break;
    case '<':
      text_ += "&lt;";
      break;
    case '>':
      text_ += "&gt;";
      break;
    case '"':
      text_ += "&quot;";
      break;
    case '\'':
      text_ += "&#39;";
      break;
    default:
      /* A control character has no meaning in HTML, and the page must not hide that it is there. */
      if (const auto byte = static_cast<unsigned char>(c); (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f)
        text_ += "\xef\xbf\xbd";
      else
        text_ += c;
    }
  }
}

static void encode(std::string &out, std::string_view text) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  for (const char c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                          c == '_' || c == '.' || c == '~';
    if (is_plain) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += '%';
      out += digits[byte >> 4];
      out += digits[byte & 15];
    }
  }
}

Link::Link(Path path, std::initializer_list<std::pair<std::string_view, std::string_view>> query)
    : text_(path.text()) {
  for (const auto &[name, value] : query)
    add(name, value);
}

Link &Link::add(std::string_view name, std::string_view value) {
  if (value.empty())
    return *this;
  text_ += text_.find('?') == std::string::npos ? '?' : '&';
  encode(text_, name);
  text_ += '=';
  encode(text_, value);
  return *this;
}

}  // namespace console
