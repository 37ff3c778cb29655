/* template.cpp: a template says what a search for ${...} by hand says, for each event. */
#include "test/fuzz/fuzz.h"

#include <algorithm>
#include <optional>

#include "delivery/base/closest_match.h"
#include "delivery/options/template.h"
#include "test/fuzz/event.h"

using namespace outbox;

namespace {

bool keep_letters(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

std::string decoded(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); i++)
    if (text[i] == '%') {
      bytes += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      bytes += text[i];
    }
  return bytes;
}

}  // namespace

void fuzz::one_input(std::string_view data) {
  Input input(data);
  std::string text = without_nul(input.line());
  Event event(input);
  Template parsed;
  if (!accepted([&] { parsed = Template::parse("topic", text); }))
    return;

  std::string literals, glob, variables;
  std::optional<std::string> rendered = "", encoded = "";
  for (std::string_view rest = text; !rest.empty();) {
    size_t at = std::min(rest.find("${"), rest.size());
    literals += rest.substr(0, at);
    glob += rest.substr(0, at);
    if (rendered)
      *rendered += rest.substr(0, at);
    if (at == rest.size())
      break;
    size_t end = rest.find('}', at);
    HOLDS(end != rest.npos);
    std::string_view name = rest.substr(at + 2, end - at - 2);
    Field field;
    HOLDS(Field::find(name, field));
    variables += (variables.empty() ? "" : ", ") + std::string(name);
    glob += '*';
    std::string value;
    if (!field.append(event.raw, value))
      rendered.reset();
    else if (rendered)
      *rendered += value;
    rest.remove_prefix(end + 1);
  }
  HOLDS(parsed.literals() == literals && parsed.glob() == glob && parsed.variables() == variables);
  HOLDS(parsed.has_variables() == !variables.empty());
  HOLDS(!parsed.single() || (literals.empty() && glob == "*"));
  std::string out = "before";
  HOLDS(parsed.render(event.raw, out) == rendered.has_value());
  HOLDS(!rendered || out == *rendered);
  HOLDS(parsed.missing(event.raw).empty() == rendered.has_value());
  bool whole = parsed.render_encoded(event.raw, keep_letters, out);
  HOLDS(whole == rendered.has_value() &&
        (!whole || literals.find('%') != std::string::npos || decoded(out) == *rendered));
  HOLDS(parsed.render_uri(event.raw, out) == rendered.has_value());
}
