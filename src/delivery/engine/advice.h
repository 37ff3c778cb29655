/* advice.h: options that are valid and yet a typical mistake, for outbox.doctor(): facts and what to do. */
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "delivery/options/options.h"

namespace outbox {

struct Advice {
  const char *check;  /* static string, one word: the doctor's row is "sink NAME CHECK" */
  std::string detail; /* without values of the user mapping */
  std::string hint;   /* a statement, or a comment that begins with "-- "; ${server} is the sink's quoted name */
};

/* "ALTER SERVER ${server} OPTIONS (ADD tls 'true');", or SET if the option is given. */
std::string set_option(const Options &server, const char *name, const std::string &value);
/* The same for options of the user mapping, which is created if it is null. */
std::string set_in_mapping(const Options *mapping,
                           std::initializer_list<std::pair<const char *, const char *>> values);

/* "localhost", or a loopback address. Names are not resolved. */
bool is_this_machine(std::string_view host);

}  // namespace outbox
