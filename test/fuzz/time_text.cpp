/* time_text.cpp: a time that is written is read as it was, by the C library. */
#include "test/fuzz/fuzz.h"

#include <algorithm>
#include <ctime>

#include "delivery/base/time_text.h"
#include "delivery/base/uuid.h"

using namespace outbox;

void fuzz::one_input(std::string_view data) {
  Input input(data);
  for (int64_t given = input.number(); !input.empty() || given != 0; given = input.number()) {
    HOLDS(floor_ms(given) == given / 1000 - (given % 1000 < 0 ? 1 : 0) &&
          (given < 0 || floor_ms(given) * 1000 <= given));
    constexpr int64_t from = -62'167'219'200'000'000, end = 253'402'300'800'000'000; /* 0000-01-01, 10000-01-01 */
    HOLDS(is_writable_time(given) == (given >= from && given < end));
    int64_t us =
        is_writable_time(given) ? given : from + static_cast<int64_t>(static_cast<uint64_t>(given) % (end - from));
    std::string text = "at ";
    append_time(us, text);
    HOLDS(text.size() == 3 + 27 && text.ends_with('Z'));
    tm parts{};
    const char *rest = strptime(text.c_str() + 3, "%Y-%m-%dT%H:%M:%S.", &parts);
    HOLDS(rest && std::string_view(rest).size() == 7);
    HOLDS(timegm(&parts) * 1'000'000 + std::stoll(std::string(rest, 6)) == us);
  }
  uint8_t id[16] = {};
  std::copy_n(data.begin(), std::min<size_t>(data.size(), 16), id);
  std::string text = uuid_text(id), digits;
  HOLDS(text.size() == 36);
  for (size_t i = 0; i < text.size(); i++) {
    bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    HOLDS(dash == (text[i] == '-'));
    if (!dash)
      digits += text[i];
  }
  for (size_t i = 0; i < 16; i++)
    HOLDS(std::stoul(digits.substr(2 * i, 2), nullptr, 16) == id[i]);
}
