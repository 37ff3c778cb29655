/* The option "match": the meaning of its JSON, and the size of the buffers of the delivery API. */
#include "delivery/options/match.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "delivery/delivery.h"
#include "delivery/options/options.h"

namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

/* Through the delivery API, with exactly the memory that it requires. */
Pairs pairs_of(const std::string &match) {
  std::vector<ob_match> pairs(match.size() / 6);
  std::vector<char> room(match.size());
  size_t n = 0;
  ob_error error;
  if (!ob_match_pairs(match.c_str(), pairs.data(), &n, room.data(), &error))
    return {{"error", error.message}};
  Pairs found;
  for (size_t i = 0; i < n; i++)
    found.emplace_back(std::string(pairs[i].name.data, pairs[i].name.len),
                       std::string(pairs[i].value.data, pairs[i].value.len));
  return found;
}

TEST(Match, PairsOfAJsonObject) {
  EXPECT_EQ(pairs_of(R"({"a":1})"), (Pairs{{"a", "1"}})) << "the shortest";
  EXPECT_EQ(pairs_of(R"({"a":1,"b":2,"c":3})"), (Pairs{{"a", "1"}, {"b", "2"}, {"c", "3"}}));
  EXPECT_EQ(pairs_of(" {\n\"tenant\" :\t\"42\", \"region\": \"eu\" } "), (Pairs{{"region", "eu"}, {"tenant", "42"}}));
  EXPECT_EQ(pairs_of(R"({"a": true, "b": 42.0})"), (Pairs{{"a", "true"}, {"b", "42.0"}})) << "as they are sent";
  EXPECT_EQ(pairs_of(R"({"a": "", "b": " b "})"), (Pairs{{"a", ""}, {"b", " b "}}));
  EXPECT_EQ(pairs_of(R"({"a,=\"*;": "\"\u00e9\ud83d\ude00"})"), (Pairs{{"a,=\"*;", "\"\u00e9\U0001f600"}}));
  EXPECT_EQ(pairs_of(R"({"A": "1", "a": "1"})"), (Pairs{{"A", "1"}, {"a", "1"}}));
}

TEST(Match, IsRefused) {
  for (const char *bad : {"",
                          " ",
                          "{}",
                          "tenant=42",
                          "\"a\"",
                          "[]",
                          R"(["a","b"])",
                          R"({"a"})",
                          R"({"a":})",
                          R"({"a":"b")",
                          R"({"a":"b"}x)",
                          R"({"":"b"})",
                          R"({"a":null})",
                          R"({"a":{"b":"c"}})",
                          R"({"a":["b"]})",
                          R"({"a":"b","a":"b"})",
                          R"({"a":"b\n"})",
                          R"({"a\r":"b"})",
                          R"({"a":"\u0000"})",
                          R"({"a":1e400})"})
    EXPECT_EQ(pairs_of(bad), (Pairs{{"error", "invalid value for option \"match\""}})) << bad;
}

/* Any short text is either refused or parsed within the required memory. */
TEST(Match, EveryShortObject) {
  const std::string alphabet = "1\":,a";
  size_t taken = 0;
  for (size_t number = 0; number < 5 * 5 * 5 * 5 * 5 * 5; number++) {
    std::string text;
    for (size_t rest = number, i = 0; i < 6; i++, rest /= alphabet.size())
      text += alphabet[rest % alphabet.size()];
    Pairs found = pairs_of("{\"" + text + "}");
    if (found.front().first == "error")
      continue;
    taken++;
    for (const auto &[name, value] : found)
      EXPECT_FALSE(name.empty()) << text;
  }
  EXPECT_GT(taken, 10u);
}

}  // namespace
