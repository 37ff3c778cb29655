/*
 * match.h: the option "match", which names the headers that an event must have: 'tenant=42, region=eu'.
 *
 * Pairs are separated by commas, all must hold, values are compared as they are. What holds a comma, an equals sign
 * or another character of the notation, blanks at an end, or nothing at all, stands in double quotes, and a double
 * quote within them is written twice: 'name="Smith, John"', 'note="a ""b"""', 'tenant=""'.
 */
#pragma once

#include <string>
#include <vector>

#include "delivery/no_postgres.h"

namespace outbox {

struct MatchPair {
  std::string name, value;
};

/* Throws BadInput, in the name of option `option`. Never empty. */
std::vector<MatchPair> parse_match(const std::string &option, const std::string &text);

}  // namespace outbox
