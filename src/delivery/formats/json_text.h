/*
 * json_text.h: JSON as Kafka Connect's JsonConverter (Jackson) writes it, byte for byte: the partition of a JSON key
 * is a hash of these bytes. White space only within strings; what lies outside the basic plane as two \u escapes.
 * No number loses a digit.
 */
#pragma once

#include <string>
#include <string_view>

namespace outbox {

/* Appends the text as a JSON string, quotes included. */
void append_json_string(std::string_view text, std::string &out);

/* A JSON string of text that need not be UTF-8: bytes that are none become U+FFFD. */
void append_repaired_json_string(std::string_view text, std::string &out);

/* What becomes of an object's members without a value. Debezium: table.json.payload.null.behavior. */
enum class NullBehavior {
  Keep,         /* nothing is dropped */
  Ignore,       /* nulls and empty arrays are left out */
  OptionalBytes /* empty arrays are left out */
};

/* Appends the text of a jsonb, compact. The text is trusted: PostgreSQL's own output. */
void append_compact_json(std::string_view text, NullBehavior nulls, std::string &out);

}  // namespace outbox
