/*
 * field.cpp: one table of names for templates, header lists and CloudEvents attributes, so that a field has the
 * same meaning everywhere.
 */
#include "delivery/options/field.h"

#include <charconv>
#include <new>

#include "delivery/base/closest_match.h"
#include "delivery/base/text_view.h"
#include "delivery/base/time_text.h"
#include "delivery/base/uuid.h"

namespace outbox {

static constexpr std::string_view header_prefix = "header.";

const Field::Known Field::known_[] = {
    {"aggregate_type", Text, &ob_event::aggregate_type},
    {"aggregate_id", Text, &ob_event::aggregate_id},
    {"event_type", Text, &ob_event::event_type},
    {"partition_key", Text, &ob_event::key},
    {"dedup_key", Text, &ob_event::dedup_key},
    {"content_type", Text, &ob_event::content_type},
    {"id", Id, nullptr},
    {"seq", Seq, nullptr},
    {"position", Position, nullptr},
    {"created_at", CreatedAt, nullptr},
    {"database", Database, nullptr},
    {"timeline", Timeline, nullptr},
};

struct Alias {
  std::string_view theirs, ours;
};
static constexpr Alias debezium[] = {
    {"aggregatetype", "aggregate_type"}, {"aggregateid", "aggregate_id"}, {"type", "event_type"}};

/* Where events come from. Written before threads start; never destroyed. */
struct Origin {
  std::string database;
  uint32_t timeline = 0;
};
static Origin &origin() {
  static Origin &known = *new Origin;
  return known;
}

bool Field::find(std::string_view name, Field &out) {
  if (name.starts_with(header_prefix) && name.size() > header_prefix.size()) {
    out.kind_ = Header;
    out.name_ = name.substr(header_prefix.size());
    return true;
  }
  for (const Alias &alias : debezium)
    if (alias.theirs == name)
      name = alias.ours;
  for (const Known &known : known_)
    if (known.name == name) {
      out.kind_ = known.kind;
      out.text_ = known.text;
      out.name_ = name;
      return true;
    }
  return false;
}

std::string Field::known(std::string_view before, std::string_view after) {
  std::string list;
  for (const Known &known : known_)
    list.append(before).append(known.name).append(after).append(", ");
  return list.append(before).append(header_prefix).append("NAME").append(after);
}

std::string_view Field::closest_match(std::string_view name, std::vector<std::string_view> names) {
  for (const Known &known : known_)
    names.push_back(known.name);
  return outbox::closest_match(name, names);
}

const ob_header *find_header(const ob_event &event, std::string_view name) {
  for (const ob_header &header : headers_of(event))
    if (view(header.name) == name)
      return &header;
  return nullptr;
}

static void append_number(int64_t number, std::string &out) {
  char digits[24];
  out.append(digits, std::to_chars(digits, std::end(digits), number).ptr);
}

static bool append_text(const ob_text &text, std::string &out) {
  if (!text.data)
    return false;
  out.append(text.data, text.len);
  return true;
}

bool Field::append(const ob_event &event, std::string &out) const {
  switch (kind_) {
  case Text:
    return append_text(event.*text_, out);
  case Id: {
    char text[36];
    uuid_text(event.id, text);
    out.append(text, sizeof text);
    return true;
  }
  case Seq:
    if (event.has_seq)
      append_number(event.seq, out);
    return event.has_seq;
  case Position:
    append_number(event.position, out);
    return true;
  case CreatedAt:
    if (!is_writable_time(event.created_at_us)) /* an infinite timestamp */
      return false;
    append_time(event.created_at_us, out);
    return true;
  case Database:
    out += origin().database;
    return !origin().database.empty();
  case Timeline:
    if (origin().timeline != 0)
      append_number(origin().timeline, out);
    return origin().timeline != 0;
  case Header:
    const ob_header *found = header(event);
    return found && append_text(found->value, out);
  }
  return false;
}

void set_origin(const char *database, uint32_t timeline) {
  origin() = {database, timeline};
}

}  // namespace outbox
