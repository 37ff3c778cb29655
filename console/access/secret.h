/* secret.h: random names that nobody can guess, and comparing them. */
#pragma once

#include <string>
#include <string_view>

namespace console {

/* 256 random bits in hexadecimal digits. Throws std::runtime_error if the system has none. */
std::string random_name();
/* In a time that does not depend on where they differ. */
bool is_same(std::string_view one, std::string_view other);
/* Overwrites the text, so that it is in no memory that is given to others. */
void wipe(std::string &text);

}  // namespace console
