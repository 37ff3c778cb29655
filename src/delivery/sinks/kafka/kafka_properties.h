/*
 * kafka_properties.h: which librdkafka properties a user may set, where, and who. Options are librdkafka's names
 * with `_` for `.`; the library itself says which exist and what values they take.
 */
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "delivery/options/options.h"
#include "delivery/sinks/kafka/kafka_security.h"

namespace outbox {

struct KafkaProperty {
  std::string option; /* linger_ms */
  std::string name;   /* linger.ms */
  std::string range;  /* "0 .. 900000", "none, gzip, ..."; may be empty */
};

/* Null when a producer has no such property. */
const KafkaProperty *find_kafka_property(const std::string &option);

/* By the end of its name ("sasl.password"). */
bool is_secret_kafka_property(std::string_view name);

/* False when unknown; throws BadInput when misplaced, not allowed or of a bad value. */
bool check_kafka_property(ob_scope scope, const std::string &option, const std::string &value, bool superuser);

/* Adds those of `options` that are properties. */
void add_kafka_properties(const Options &options, KafkaProperties &to);

/* The options that may be set in `scope`. Static strings. */
void kafka_property_names(ob_scope scope, std::vector<const char *> &names);

}  // namespace outbox
