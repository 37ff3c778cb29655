/*
 * match.h: the option "match": the headers that an event must have, such as 'tenant=42, region=eu'.
 *
 * Pairs are separated by commas, all of them must match, and values are compared exactly. A name or value that is
 * empty, starts or ends with a blank, or contains a comma, an equals sign or another character of the notation is
 * written in double quotes; a double quote within them is doubled: 'name="Smith, John"', 'note="a ""b"""',
 * 'tenant=""'.
 */
#pragma once

#include <string>
#include <vector>

#include "delivery/no_postgres.h"

namespace outbox {

struct MatchPair {
  std::string name, value;
};

/* Throws BadInput about option `option`. The result is never empty. */
std::vector<MatchPair> parse_match(const std::string &option, const std::string &text);

}  // namespace outbox
