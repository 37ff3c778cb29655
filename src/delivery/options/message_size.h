/* message_size.h: the check of the option max_message, which most kinds of sink have. */
#pragma once

#include <cstddef>

#include "delivery/options/options.h"

namespace outbox {

inline constexpr OptionName MAX_MESSAGE{"max_message"};

/* How a kind says that an event is too large. */
struct SizeTexts {
  const char *message; /* "a NATS message" */
  const char *has;     /* "With its headers it has" */
  const char *hint;
};

/* Throws BadInput if a message of `size` bytes is larger than `most`. */
void check_message_size(size_t size, size_t most, const SizeTexts &words);

}  // namespace outbox
