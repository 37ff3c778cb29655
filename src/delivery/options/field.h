/*
 * field.h: the parts of an event by the names that options use: ${aggregate_id} in a template, a column in a list
 * of headers, `header.tenant` for a header of the event.
 */
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "delivery/kind.h"
#include "delivery/options/options.h"

namespace outbox {

/* Null if the event has no header of this name. */
const ob_header *find_header(const ob_event &event, std::string_view name);

class Field {
public:
  /* Returns false if there is no such field. Also accepts Debezium's column names. */
  static bool find(std::string_view name, Field &out);
  /* A list of all fields for a HINT: "aggregate_type, aggregate_id, …". */
  static std::string known(std::string_view before, std::string_view after);
  /* The field, or one of `others`, that was probably meant; empty if none is similar. */
  static std::string_view closest_match(std::string_view name, std::vector<std::string_view> others = {});

  /* Appends the field's text. Returns false, with nothing appended, if the event has no value (NULL, no such header).
   */
  bool append(const ob_event &event, std::string &out) const;

  /* For a text column, the event's text; otherwise null. */
  const ob_text *text(const ob_event &event) const { return kind_ == Text ? &(event.*text_) : nullptr; }
  /* For a header field, the event's header; otherwise null, as if the event had none of that name. */
  const ob_header *header(const ob_event &event) const { return is_header() ? find_header(event, name_) : nullptr; }

  bool is_header() const { return kind_ == Header; }
  bool is_number() const { return kind_ == Seq || kind_ == Position || kind_ == Timeline; }
  const std::string &name() const { return name_; } /* for a header without the prefix `header.` */

private:
  enum Kind { Text, Id, Seq, Position, CreatedAt, Database, Timeline, Header };
  struct Known {
    std::string_view name;
    Kind kind;
    const ob_text ob_event::*text;
  };
  static const Known known_[];

  Kind kind_ = Text;
  const ob_text ob_event::*text_ = nullptr;
  std::string name_;
};

/* ob_set_origin() for the code of this library. */
void set_origin(const char *database, uint32_t timeline);

}  // namespace outbox
