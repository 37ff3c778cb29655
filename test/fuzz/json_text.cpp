/* json_text.cpp: JSON made compact means what it meant; strings are read as they were; bytes become UTF-8. */
#include "test/fuzz/fuzz.h"

#include <nlohmann/json.hpp>

#include "delivery/formats/json_text.h"
#include "test/fuzz/utf8.h"

using namespace outbox;
using Json = nlohmann::json;

namespace {

/* As PostgreSQL writes a jsonb. */
void print(const Json &json, std::string &out) {
  bool first = true;
  auto begin = [&] { out += std::exchange(first, false) ? "" : ", "; };
  if (json.is_object()) {
    out += '{';
    for (auto &[name, value] : json.items()) {
      begin();
      out += Json(name).dump() + ": ";
      print(value, out);
    }
    out += '}';
  } else if (json.is_array()) {
    out += '[';
    for (auto &value : json) {
      begin();
      print(value, out);
    }
    out += ']';
  } else {
    out += json.dump();
  }
}

/* Without the members that have no value. */
Json without(const Json &json, NullBehavior nulls) {
  Json kept = json;
  if (json.is_object()) {
    kept = Json::object();
    for (auto &[name, value] : json.items())
      if (!(value.is_array() && value.empty()) && !(nulls == NullBehavior::Ignore && value.is_null()))
        kept[name] = without(value, nulls);
  } else if (json.is_array()) {
    kept = Json::array();
    for (auto &value : json)
      kept.push_back(without(value, nulls));
  }
  return kept;
}

}  // namespace

void fuzz::one_input(std::string_view data) {
  std::string out;
  append_json_string(data, out);
  HOLDS(out.size() >= data.size() + 2 && out.size() <= 6 * data.size() + 2);
  if (utf8_characters(data))
    HOLDS(Json::parse(out) == Json(std::string(data)));
  out.clear();
  append_repaired_json_string(data, out);
  HOLDS(utf8_characters(Json::parse(out).get<std::string>()));

  Json tree = Json::parse(data, nullptr, false);
  if (tree.is_discarded())
    return;
  std::string text;
  print(tree, text);
  HOLDS(Json::parse(text) == tree);
  for (NullBehavior nulls : {NullBehavior::Keep, NullBehavior::Ignore, NullBehavior::OptionalBytes}) {
    std::string compact, again;
    append_compact_json(text, nulls, compact);
    Json expected = nulls == NullBehavior::Keep ? tree : without(tree, nulls);
    HOLDS(Json::parse(compact, nullptr, false) == expected);
    append_compact_json(compact, NullBehavior::Keep, again);
    HOLDS(again == compact);
  }
}
