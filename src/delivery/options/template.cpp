/*
 * template.cpp: a template is a list of literals and fields; rendering appends to a buffer that the caller reuses.
 */
#include "delivery/options/template.h"

#include <algorithm>

#include "delivery/base/text.h"
#include "delivery/base/text_view.h"
#include "delivery/options/options.h"

namespace outbox {

void throw_unknown_variable(const std::string &option, std::string_view wanted,
                            const std::vector<std::string_view> &others) {
  /* A variable of Debezium's route.topic.replacement. */
  std::string_view near = wanted == "routedByValue" ? "aggregate_type" : Field::closest_match(wanted, others);
  std::string hint = near.empty() ? std::string() : "Perhaps you meant ${" + std::string(near) + "}. ";
  hint += "Known variables are ";
  for (std::string_view other : others)
    hint.append("${").append(other).append("}, ");
  throw BadInput(OB_BAD_VALUE, option,
                 "unknown variable \"" + std::string(wanted) + "\" in the template of option \"" + option + "\"", {},
                 hint + Field::known("${", "}") + ".");
}

void throw_no_value(const std::string &option, const std::string &variable) {
  throw BadInput(OB_BAD_VALUE, option, "event has no value for " + variable,
                 "Option \"" + option + "\" of the sink needs one.", "Give the event one, or change the option.");
}

Template Template::parse(const std::string &name, std::string_view text) {
  Template parsed;
  while (!text.empty()) {
    size_t at = text.find("${");
    if (at != 0)
      parsed.parts_.push_back({false, {}, std::string(text.substr(0, at))});
    if (at == text.npos)
      break;
    size_t end = text.find('}', at);
    if (end == text.npos)
      throw BadInput(OB_BAD_VALUE, name, "template of option \"" + name + "\" has a variable that does not end",
                     "There is no \"}\" after \"" + std::string(text.substr(at, 40)) + "\".");
    std::string_view wanted = text.substr(at + 2, end - at - 2);
    Field field;
    if (!Field::find(wanted, field))
      throw_unknown_variable(name, wanted);
    parsed.parts_.push_back({true, std::move(field), std::string(text.substr(at, end + 1 - at))});
    text.remove_prefix(end + 1);
  }
  return parsed;
}

Template Template::of(Field field) {
  Template made;
  std::string text = "${" + field.name() + "}";
  made.parts_.push_back({true, std::move(field), std::move(text)});
  return made;
}

bool Template::render(const ob_event &event, std::string &out) const {
  out.clear();
  for (const Part &part : parts_) {
    const ob_text *text = part.variable ? part.field.text(event) : nullptr; /* the fast path, for text columns */
    if (!part.variable)
      out += part.text;
    else if (text && text->data)
      out.append(text->data, text->len);
    else if (!part.field.append(event, out))
      return false;
  }
  return true;
}

static bool is_uri_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("-._~!$&'()*+,;=:@/").find(c) != std::string_view::npos;
}

bool Template::render_uri(const ob_event &event, std::string &out) const {
  return render_encoded(event, is_uri_character, out);
}

bool Template::render_encoded(const ob_event &event, bool (*keep)(char), std::string &out) const {
  std::string value;
  out.clear();
  for (const Part &part : parts_) {
    if (!part.variable) {
      out += part.text;
      continue;
    }
    value.clear();
    if (!part.field.append(event, value))
      return false;
    for (char c : value) {
      if (keep(c))
        out += c;
      else
        append_percent_encoded(c, out);
    }
  }
  return true;
}

std::string Template::missing(const ob_event &event, bool or_empty) const {
  std::string value;
  for (const Part &part : parts_) {
    value.clear();
    if (part.variable && (!part.field.append(event, value) || (or_empty && value.empty())))
      return part.text;
  }
  return {};
}

std::string Template::literals() const {
  std::string all;
  for (const Part &part : parts_)
    if (!part.variable)
      all += part.text;
  return all;
}

std::string Template::variables() const {
  std::string list;
  for (const Part &part : parts_)
    if (part.variable)
      list.append(list.empty() ? "" : ", ").append(part.text, 2, part.text.size() - 3);
  return list;
}

bool Template::has_variables() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const Part &part) { return part.variable; });
}

std::string Template::text() const {
  std::string all;
  for (const Part &part : parts_)
    all += part.text;
  return all;
}

std::string Template::glob() const {
  std::string all;
  for (const Part &part : parts_)
    all += part.variable ? "*" : part.text;
  return all;
}

}  // namespace outbox
