/* flat_object.cpp: the errors of all options of this form say the same. */
#include "delivery/options/flat_object.h"

#include "delivery/base/clean_text.h"
#include "delivery/base/json_reader.h"
#include "delivery/options/options.h"

namespace outbox {

FlatObject parse_flat_object(const std::string &option, const std::string &text, const char *noun,
                             const char *example) {
  using Kind = JsonValue::Kind;
  const std::string hint = std::string("Write it as ") + example + ".";
  auto member = [noun](const std::string &name) { return std::string(noun) + " \"" + clean_text(name) + "\""; };
  bool is_object = false, too_large = false;
  std::string twice, no_text;
  FlatObject object;
  auto error_at = read_json(text, [&](const JsonPath &path, const JsonValue &item) {
    too_large |= item.kind == Kind::Number && item.text.empty();
    if (path.empty()) {
      is_object = item.kind == Kind::Object;
    } else if (path.size() == 1) {
      if (!object.emplace(path[0], item.text).second)
        twice = member(path[0]);
      if (item.kind != Kind::Text && item.kind != Kind::Number && item.kind != Kind::Boolean)
        no_text = member(path[0]);
    }
  });
  if (error_at || !is_object || too_large)
    refuse_value(option, "Expected a flat JSON object.", hint);
  if (!no_text.empty())
    refuse_value(option, "The value of " + no_text + " is neither text nor a number nor a boolean.", hint);
  if (!twice.empty())
    refuse_value(option, "It has " + twice + " twice.", "Leave one of them out.");
  return object;
}

}  // namespace outbox
