/* advice.h: options that are valid and yet a typical mistake, for outbox.doctor(): facts and what to do. */
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "delivery/options/options.h"

namespace outbox {

/* Stands for the sink's quoted name in a hint. No option contains it. */
constexpr char the_sink = '\0';

struct Advice {
  const char *check;         /* static string, one word: the doctor's row is "advice NAME CHECK" */
  std::string detail;        /* without values of the user mapping */
  std::string hint;          /* a statement, or a comment that begins with "-- " */
  bool may_be_meant = false; /* some have a good reason for it: the row's status is ok, and no warning */
};

/* "ALTER SERVER the_sink OPTIONS (ADD tls 'true');", or SET if the option is given. */
std::string set_option(const Options &server, OptionName name, const std::string &value);
/* The same for options of the user mapping, which is created if it is null. */
std::string set_in_mapping(const Options *mapping, std::initializer_list<std::pair<OptionName, const char *>> values);

/* "localhost", or a loopback address. Names are not resolved. */
bool is_this_machine(std::string_view host);

}  // namespace outbox
