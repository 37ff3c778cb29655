/*
 * match.h: the option "match": the headers that an event must have, such as '{"tenant": "42", "region": "eu"}'. All
 * of them must match, and values are compared exactly.
 */
#pragma once

#include "delivery/no_postgres.h"

#include "delivery/options/flat_object.h"

namespace outbox {

/* Throws BadInput about option `option`. The result is never empty. */
FlatObject parse_match(const std::string &option, const std::string &text);

}  // namespace outbox
