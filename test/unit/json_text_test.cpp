/* Test vectors: the output of Kafka Connect's JsonConverter 4.1.0, for compact JSON after Debezium 3.3.1's expansion.
 */
#include "delivery/formats/json_text.h"

#include <gtest/gtest.h>

using namespace outbox;

namespace {

std::string string_of(std::string_view text) {
  std::string out = "before ";
  append_json_string(text, out);
  return out.substr(7);
}

std::string compact(std::string_view text, NullBehavior nulls = NullBehavior::Keep) {
  std::string out = "before ";
  append_compact_json(text, nulls, out);
  return out.substr(7);
}

TEST(JsonText, AStringIsEscapedAsJacksonDoes) {
  EXPECT_EQ(string_of(""), R"("")");
  EXPECT_EQ(string_of("k1"), R"("k1")");
  EXPECT_EQ(string_of("\"\\/"), R"("\"\\/")");
  EXPECT_EQ(string_of("\b\t\n\f\r"), R"("\b\t\n\f\r")");
  EXPECT_EQ(string_of(std::string_view("\0\x01\x1f\x7f", 4)), "\"\\u0000\\u0001\\u001F\x7f\"");
  EXPECT_EQ(string_of("é\u0080\u2028\uFEFF<>&'"), "\"é\u0080\u2028\uFEFF<>&'\"") << "raw UTF-8";
  EXPECT_EQ(string_of("a😀b"), R"("a\uD83D\uDE00b")") << "outside the basic plane";
  EXPECT_EQ(string_of("\U00010000\U0010FFFF"), R"("\uD800\uDC00\uDBFF\uDFFF")");
  EXPECT_EQ(string_of("\xf0\x9f"), "\"\xf0\x9f\"") << "half a character stays what it is";
  EXPECT_EQ(string_of(R"({"a": 1})"), R"("{\"a\": 1}")");
}

TEST(JsonText, CompactLosesNothing) {
  EXPECT_EQ(compact(R"({"a": null, "b": [], "c": {}, "d": [null, 1], "e": {"f": null}})"),
            R"({"a":null,"b":[],"c":{},"d":[null,1],"e":{"f":null}})");
  EXPECT_EQ(compact(R"({"n": 12.50, "m": 0.0001, "big": 123456789012345678901234567890, "neg": -1})"),
            R"({"n":12.50,"m":0.0001,"big":123456789012345678901234567890,"neg":-1})");
  EXPECT_EQ(compact(R"([1, "a", true, false, null, [[], [1]]])"), R"([1,"a",true,false,null,[[],[1]]])");
  for (const char *same : {"{}", "[]", "42", R"("x y")", "null", "true"})
    EXPECT_EQ(compact(same), same);
  EXPECT_EQ(compact(R"({"a, b": ": {", "c\" : ": "[ ]"})"), R"({"a, b":": {","c\" : ":"[ ]"})")
      << "strings keep their blanks";
  EXPECT_EQ(compact(R"({"a": "\u001f\n\\ \"", "😀": "é/"})"), R"({"a":"\u001F\n\\ \"","\uD83D\uDE00":"é/"})");
}

TEST(JsonText, NullsAndEmptyArraysMayBeLeftOut) {
  using enum NullBehavior;
  struct {
    const char *text, *ignore, *optional_bytes;
  } vectors[] = {
      {R"({"a": null, "b": [], "c": {}, "d": [null, 1], "e": {"f": null}})", R"({"c":{},"d":[null,1],"e":{}})",
       R"({"a":null,"c":{},"d":[null,1],"e":{"f":null}})"},
      {R"({"a": null, "b": 1})", R"({"b":1})", R"({"a":null,"b":1})"},
      {R"({"a": 1, "b": null, "c": 2})", R"({"a":1,"c":2})", R"({"a":1,"b":null,"c":2})"},
      {R"({"a": 1, "b": []})", R"({"a":1})", R"({"a":1})"},
      {R"({"a": [], "b": [], "c": 3})", R"({"c":3})", R"({"c":3})"},
      {R"({"a": {"b": []}, "c": []})", R"({"a":{}})", R"({"a":{}})"},
      {R"([{"a": null}, {"a": []}, {"a": "null"}])", R"([{},{},{"a":"null"}])", R"([{"a":null},{},{"a":"null"}])"},
      {R"({"x": [[1], []]})", R"({"x":[[1],[]]})", R"({"x":[[1],[]]})"},
      {R"({"a": [1], "nullable": "[]"})", R"({"a":[1],"nullable":"[]"})", R"({"a":[1],"nullable":"[]"})"},
  };
  for (auto &each : vectors) {
    EXPECT_EQ(compact(each.text, Ignore), each.ignore);
    EXPECT_EQ(compact(each.text, OptionalBytes), each.optional_bytes);
  }
}

}  // namespace
