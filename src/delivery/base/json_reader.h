/*
 * json_reader.h: reads JSON value by value. No tree of values is made: the destructor of nlohmann::json's objects and
 * arrays allocates, so it would end the process when memory is short.
 */
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace outbox {

struct JsonValue {
  enum class Kind { Text, Number, Boolean, Null, Object, Array }; /* of an object and an array: it begins */
  Kind kind;
  std::string text; /* of a text its characters, of a number and a boolean its JSON */
};

/* The keys that lead to a value; of an element of an array an empty one. */
using JsonPath = std::vector<std::string>;

/* Calls `on_value` for each value, in their order. Returns the position of the first byte that is not valid JSON;
 * nothing if the text is valid. A number too large for a double is valid, has no text, and ends the reading. */
std::optional<size_t> read_json(const std::string &text,
                                const std::function<void(const JsonPath &, const JsonValue &)> &on_value);

}  // namespace outbox
