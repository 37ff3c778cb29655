/*
 * kafka_properties.h: which librdkafka properties may be set as options, where and by whom. An option is
 * librdkafka's name with `_` for `.`; librdkafka defines which exist and which values they take.
 */
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "delivery/options/options.h"
#include "kafka_security.h"

namespace outbox {

struct KafkaProperty {
  std::string option; /* linger_ms */
  std::string name;   /* linger.ms */
  std::string range;  /* "0 .. 900000", "none, gzip, ..."; may be empty */
};

/* Returns null if producers have no such property. */
const KafkaProperty *find_kafka_property(const std::string &option);

/* Decided by the end of the name ("sasl.password"). */
bool is_secret_kafka_property(std::string_view name);

/* Returns false if unknown; throws BadInput if misplaced, not allowed or of an invalid value. */
bool check_kafka_property(ob_scope scope, const std::string &option, const std::string &value, bool superuser);

/* Adds those of `options` that are librdkafka properties. */
void add_kafka_properties(const Options &options, KafkaProperties &to);

/* Appends the options that may be set in `scope`. Static strings. */
void kafka_property_names(ob_scope scope, std::vector<const char *> &names);

}  // namespace outbox
