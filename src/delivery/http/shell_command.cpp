#include "delivery/http/shell_command.h"

#include <cstdint>

#include "delivery/base/base64.h"

namespace outbox {

/* The code point at `at`, which moves behind it; false for what is not UTF-8. */
static bool next_code_point(std::string_view text, size_t &at, uint32_t &code) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char lead = byte(at);
  size_t more = lead < 0x80 ? 0 : lead >= 0xc2 && lead < 0xe0 ? 1 : lead >= 0xe0 && lead < 0xf0 ? 2 : 3;
  if ((lead >= 0x80 && lead < 0xc2) || lead > 0xf4 || at + more >= text.size())
    return false;
  code = more == 0 ? lead : lead & (0x3fu >> more);
  for (size_t i = 1; i <= more; i++) {
    if ((byte(at + i) & 0xc0) != 0x80)
      return false;
    code = code << 6 | (byte(at + i) & 0x3fu);
  }
  at += more + 1;
  constexpr uint32_t least[] = {0, 0x80, 0x800, 0x10000};
  return code >= least[more] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
}

/* Controls are keys to a terminal (of C1, too), a line's end would be one to the shell, and what turns the direction
 * of writing shows another command than the one that runs. */
static bool is_printable(uint32_t code) {
  bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
  bool turns = (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) || code == 0x200e ||
               code == 0x200f || code == 0x061c;
  return !control && !turns;
}

bool is_printable(std::string_view text) {
  uint32_t code;
  for (size_t at = 0; at < text.size();)
    if (!next_code_point(text, at, code) || !is_printable(code))
      return false;
  return true;
}

static std::string base64(std::string_view bytes) {
  std::string text;
  append_base64(bytes, text);
  return text;
}

/* One word. Between single quotes nothing has a meaning but the quote. */
static std::string quoted(std::string_view value) {
  if (!is_printable(value))
    return "\"$(echo " + base64(value) + " | base64 -d)\"";
  std::string word = "'";
  for (char c : value)
    if (c == '\'')
      word += "'\\''";
    else
      word += c;
  return word + '\'';
}

ShellCommand &ShellCommand::option(std::string_view name) {
  line_.append(" ").append(name);
  return *this;
}

ShellCommand &ShellCommand::option(std::string_view name, std::string_view value) {
  line_.append(" ").append(name).append(" ").append(quoted(value));
  return *this;
}

ShellCommand &ShellCommand::option_of_variable(std::string_view name, std::string_view prefix,
                                               std::string_view variable, std::string_view meaning) {
  line_.append(" ").append(name).append(" ");
  if (!prefix.empty())
    line_.append(quoted(prefix));
  line_.append("\"${").append(variable).append(":?").append(meaning).append("}\"");
  return *this;
}

void ShellCommand::input(std::string_view bytes) {
  input_ = "echo " + base64(bytes) + " | base64 -d | ";
}

}  // namespace outbox
