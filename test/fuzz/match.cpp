/* match.cpp: pairs printed as JSON are read as they were; what is read has the documented form. */
#include "test/fuzz/fuzz.h"

#include "delivery/delivery.h"
#include "delivery/formats/json_text.h"
#include "delivery/options/match.h"

using namespace outbox;

namespace {

std::string printed(const FlatObject &headers) {
  std::string text = "{";
  for (const auto &[name, value] : headers) {
    text += text.size() > 1 ? " , " : " ";
    append_json_string(name, text);
    text += " : ";
    append_json_string(value, text);
  }
  return text + " }";
}

}  // namespace

void fuzz::one_input(std::string_view data) {
  std::string text = without_nul(std::string(data));
  FlatObject headers;
  bool good = accepted([&] { headers = parse_match("match", text); });

  std::vector<ob_match> pairs(text.size() / 6);
  std::string room(text.size(), '\0');
  size_t n = 0;
  ob_error error{};
  HOLDS(ob_match_pairs(text.c_str(), pairs.data(), &n, room.data(), &error) == good);
  if (!good)
    return;

  HOLDS(!headers.empty() && n == headers.size() && n <= pairs.size());
  HOLDS(parse_match("match", printed(headers)) == headers);
  size_t at = 0;
  for (const auto &[name, value] : headers) {
    HOLDS(!name.empty() && (name + value).find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos);
    HOLDS(name == std::string_view(pairs[at].name.data, pairs[at].name.len));
    HOLDS(value == std::string_view(pairs[at].value.data, pairs[at].value.len));
    at++;
  }
}
