/* secret.cpp: the system's random numbers. */
#include "secret.h"

#include <sys/random.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

namespace console {

std::string random_name() {
  unsigned char bytes[32];
  if (getentropy(bytes, sizeof(bytes)) != 0)
    throw std::runtime_error("the system gives no random numbers");
  constexpr std::string_view digits = "0123456789abcdef";
  std::string name;
  for (const unsigned char byte : bytes) {
    name += digits[byte >> 4];
    name += digits[byte & 15];
  }
  return name;
}

bool is_same(std::string_view one, std::string_view other) {
  if (one.size() != other.size())
    return false;
  unsigned char differ = 0;
  for (size_t i = 0; i < one.size(); i++)
    differ |= static_cast<unsigned char>(one[i]) ^ static_cast<unsigned char>(other[i]);
  return differ == 0;
}

void wipe(std::string &text) {
  explicit_bzero(text.data(), text.size());
  text.clear();
}

}  // namespace console
