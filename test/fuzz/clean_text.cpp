/* clean_text.cpp: whatever a peer says becomes one line of UTF-8 without control characters. */
#include "test/fuzz/fuzz.h"

#include "delivery/base/clean_text.h"
#include "delivery/base/text.h"
#include "test/fuzz/utf8.h"

using namespace outbox;

void fuzz::one_input(std::string_view data) {
  std::string clean = clean_text(data);
  auto characters = utf8_characters(clean);
  HOLDS(characters);
  for (uint32_t c : *characters)
    HOLDS(c >= 0x20 && (c < 0x7F || c > 0x9F) && c != 0x2028 && c != 0x2029);
  HOLDS(clean.size() <= 3 * data.size());
  HOLDS(clean_text(clean) == clean);
  HOLDS(trim(clean) == clean && clean.find("  ") == clean.npos);

  for (size_t length = 0; length <= std::min<size_t>(clean.size(), 20); length++) {
    size_t kept = utf8_prefix(clean, length);
    HOLDS(kept <= length && kept + 4 > length && utf8_characters(clean.substr(0, kept)));
  }
  char field[16];
  copy_text(field, clean);
  HOLDS(utf8_characters(field));
}
