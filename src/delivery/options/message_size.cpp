/* message_size.cpp: the text of the error, the same for all kinds. */
#include "delivery/options/message_size.h"

namespace outbox {

void check_message_size(size_t size, size_t most, const SizeTexts &words) {
  if (size > most)
    throw BadInput(OB_TOO_LARGE, MAX_MESSAGE, std::string("event is too large for ") + words.message,
                   std::string(words.has) + " " + std::to_string(size) + " bytes, and at most " +
                       std::to_string(most) + " are allowed.",
                   words.hint);
}

}  // namespace outbox
