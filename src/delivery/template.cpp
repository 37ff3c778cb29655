#include "template.h"

#include "options.h"
#include "sink.h"

namespace outbox {

struct Variable {
  std::string_view name;
  const ob_text ob_event::*field;
};
static constexpr Variable variables[] = {
    {"aggregate_type", &ob_event::aggregate_type},
    {"event_type", &ob_event::event_type},
};

static std::string known_variables() {
  std::string list;
  for (const Variable &variable : variables)
    list += (list.empty() ? "${" : ", ${") + std::string(variable.name) + "}";
  return list;
}

Template Template::parse(const std::string &name, std::string_view text) {
  Template parsed;
  while (!text.empty()) {
    size_t at = text.find("${");
    if (at != 0)
      parsed.parts_.push_back({nullptr, std::string(text.substr(0, at))});
    if (at == text.npos)
      break;
    size_t end = text.find('}', at);
    if (end == text.npos)
      throw BadInput(OB_BAD_VALUE, name, "template of option \"" + name + "\" has a variable that does not end",
                     "There is no \"}\" after \"" + std::string(text.substr(at, 40)) + "\".");
    std::string_view wanted = text.substr(at + 2, end - at - 2);
    const ob_text ob_event::*field = nullptr;
    for (const Variable &variable : variables)
      if (variable.name == wanted)
        field = variable.field;
    if (!field)
      throw BadInput(OB_BAD_VALUE, name,
                     "unknown variable \"" + std::string(wanted) + "\" in the template of option \"" + name + "\"",
                     {}, "Known variables are " + known_variables() + ".");
    parsed.parts_.push_back({field, {}});
    text.remove_prefix(end + 1);
  }
  return parsed;
}

void Template::render(const ob_event &event, std::string &out) const {
  out.clear();
  for (const Part &part : parts_)
    out += part.field ? view(event.*part.field) : std::string_view(part.literal);
}

std::string Template::literals() const {
  std::string all;
  for (const Part &part : parts_)
    all += part.literal;
  return all;
}

}  // namespace outbox
