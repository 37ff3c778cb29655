/* match.cpp: pairs printed in quotes are read as they were; what is read has the documented form. */
#include "test/fuzz/fuzz.h"

#include <set>

#include "delivery/delivery.h"
#include "delivery/options/match.h"

using namespace outbox;

namespace {

std::string quoted(const std::string &word) {
  std::string text = "\"";
  for (char c : word)
    text.append(c == '"' ? 2 : 1, c);
  return text + '"';
}

}  // namespace

void fuzz::one_input(std::string_view data) {
  std::string text = without_nul(std::string(data));
  /* Any words, in quotes, are read as they are. */
  std::string name = text.substr(0, text.size() / 2), value = text.substr(text.size() / 2);
  if (!name.empty() && text.find_first_of("\r\n") == std::string::npos) {
    std::vector<MatchPair> one = parse_match("match", quoted(name) + "=" + quoted(value));
    HOLDS(one.size() == 1 && one[0].name == name && one[0].value == value);
  }
  std::vector<MatchPair> pairs;
  bool good = accepted([&] { pairs = parse_match("match", text); });

  std::vector<ob_match> plain((text.size() + 1) / 4 + 1);
  std::string room(text.size(), '\0');
  size_t n = 0;
  ob_error error{};
  if (text.size() >= 3 || !good) /* "room for (strlen + 1) / 4": what is accepted has three characters at least */
    HOLDS(ob_match_pairs(text.c_str(), plain.data(), &n, room.data(), &error) == good);
  if (!good)
    return;

  HOLDS(!pairs.empty() && n == pairs.size() && n <= (text.size() + 1) / 4);
  std::set<std::string> names;
  std::string printed;
  for (const MatchPair &pair : pairs) {
    HOLDS(!pair.name.empty() && names.insert(pair.name).second);
    HOLDS(pair.name.find_first_of("\r\n") == std::string::npos &&
          pair.value.find_first_of("\r\n") == std::string::npos);
    printed += (printed.empty() ? "" : " , ") + quoted(pair.name) + " =" + quoted(pair.value);
  }
  size_t at = 0;
  for (const MatchPair &again : parse_match("match", printed)) {
    HOLDS(again.name == pairs[at].name && again.value == pairs[at].value);
    HOLDS(pairs[at].name == std::string_view(plain[at].name.data, plain[at].name.len));
    HOLDS(pairs[at].value == std::string_view(plain[at].value.data, plain[at].value.len));
    at++;
  }
  HOLDS(at == pairs.size());
}
