/* The option "match": the meaning of its notation, and the size of the buffers of the delivery API. */
#include "delivery/options/match.h"

#include <gtest/gtest.h>

#include <utility>

#include "delivery/delivery.h"
#include "delivery/options/options.h"

namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

/* Through the delivery API, with exactly the memory that it requires. */
Pairs pairs_of(const std::string &match) {
  std::vector<ob_match> pairs((match.size() + 1) / 4);
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

TEST(Match, PairsAndQuotes) {
  EXPECT_EQ(pairs_of("a=b"), (Pairs{{"a", "b"}}));
  EXPECT_EQ(pairs_of("a=b,c=d,e=f"), (Pairs{{"a", "b"}, {"c", "d"}, {"e", "f"}}));
  EXPECT_EQ(pairs_of(" tenant = 42 ,\tregion\n=\r\neu "), (Pairs{{"tenant", "42"}, {"region", "eu"}}));
  EXPECT_EQ(pairs_of("name=Ann Lee"), (Pairs{{"name", "Ann Lee"}}));
  EXPECT_EQ(pairs_of("a=\"\",b=\"\""), (Pairs{{"a", ""}, {"b", ""}}));
  EXPECT_EQ(pairs_of("\"a\"=\" b \""), (Pairs{{"a", " b "}}));
  EXPECT_EQ(pairs_of("\"a,=\"\"*;\"=\"\"\"\""), (Pairs{{"a,=\"*;", "\""}}));
  EXPECT_EQ(pairs_of("A=1,a=1"), (Pairs{{"A", "1"}, {"a", "1"}}));
}

TEST(Match, IsRefused) {
  for (const char *bad : {"",           " ",        ",",       "a",           "a=",       "=b",       "a=b,",
                          ",a=b",       "a=b,,c=d", "a=b,a=c", "a=b,\"a\"=b", "a=b;c=d",  "a=*",      "a*=b",
                          "a=b=c",      "a=b\"",    "\"a=b",   "a=\"b",       "a=\"b\"c", "\"a\"b=c", "\"\"=b",
                          "a\n=\"\n\"", "a,b=c",    "a==b",    "=",           "==",       "\"",       "a=\"b\"\""})
    EXPECT_EQ(pairs_of(bad), (Pairs{{"error", std::string("invalid value for option \"match\": \"") + bad + "\""}}));
}

/* Any short text is either refused or parsed within the required memory. */
TEST(Match, EveryShortText) {
  const std::string alphabet = "a=,\" b";
  size_t taken = 0;
  for (size_t number = 0; number < 6 * 6 * 6 * 6 * 6; number++) {
    std::string text;
    for (size_t rest = number, i = 0; i < 5; i++, rest /= alphabet.size())
      text += alphabet[rest % alphabet.size()];
    Pairs found = pairs_of(text);
    if (found.front().first == "error")
      continue;
    taken++;
    for (const auto &[name, value] : found)
      EXPECT_FALSE(name.empty()) << text;
  }
  EXPECT_GT(taken, 100u);
}

}  // namespace
