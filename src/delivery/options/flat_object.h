/*
 * flat_object.h: an option whose value is a JSON object of texts, such as '{"tenant": "42"}'. Several options have
 * this form, and each of them checks the names and texts further.
 */
#pragma once

#include <map>
#include <string>

namespace outbox {

/* The text of each name. That of a number or a boolean is its JSON. */
using FlatObject = std::map<std::string, std::string>;

/* `noun`: what a name is the name of, such as "header". `example` is for the hint. Throws a BadInput about `option`,
 * which shows names, and no value: it may be secret. */
FlatObject parse_flat_object(const std::string &option, const std::string &text, const char *noun,
                             const char *example);

}  // namespace outbox
