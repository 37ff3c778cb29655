/*
 * json_text.h: writes JSON byte for byte as Kafka Connect's JsonConverter (Jackson) does, because the partition of
 * a JSON key is a hash of these bytes. White space occurs only within strings; characters outside the basic
 * multilingual plane become two \u escapes. Numbers keep all digits.
 */
#pragma once

#include <string>
#include <string_view>

namespace outbox {

/* Appends the text as a JSON string, quotes included. */
void append_json_string(std::string_view text, std::string &out);

/* Appends a JSON string of text that may be invalid UTF-8: invalid bytes become U+FFFD. */
void append_repaired_json_string(std::string_view text, std::string &out);

/* How members without a value are written. Debezium: table.json.payload.null.behavior. */
enum class NullBehavior {
  Keep,         /* all members are kept */
  Ignore,       /* nulls and empty arrays are left out */
  OptionalBytes /* empty arrays are left out */
};

/* Appends the text of a jsonb without white space. The text must be PostgreSQL's own output: it is not validated. */
void append_compact_json(std::string_view text, NullBehavior nulls, std::string &out);

}  // namespace outbox
