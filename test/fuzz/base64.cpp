/* base64.cpp: a decoder that takes what the encoder writes, with and without padding, and only the alphabet. */
#include "test/fuzz/fuzz.h"

#include <algorithm>

#include "delivery/base/base64.h"

using namespace outbox;

void fuzz::one_input(std::string_view data) {
  std::string encoded, decoded = "before", again;
  append_base64(data, encoded);
  HOLDS(encoded.size() == (data.size() + 2) / 3 * 4);
  HOLDS(append_base64_decoded(encoded, decoded) && decoded == "before" + std::string(data));
  while (encoded.ends_with('='))
    encoded.pop_back();
  decoded.clear();
  HOLDS(append_base64_decoded(encoded, decoded) && decoded == data);

  decoded = "before";
  if (!append_base64_decoded(data, decoded)) {
    HOLDS(decoded == "before");
    return;
  }
  HOLDS(decoded.starts_with("before"));
  HOLDS(std::all_of(data.begin(), data.end(),
                    [](unsigned char c) { return isalnum(c) || c == '+' || c == '/' || c == '='; }));
  append_base64(decoded.substr(6), again);
  HOLDS(again.size() == (data.size() + 3) / 4 * 4);
  /* The last character may have bits that stand for nothing. */
  size_t same = std::min(data.find('='), data.size());
  same = same % 4 == 0 ? same : same - 1;
  HOLDS(again.substr(0, same) == data.substr(0, same));
}
