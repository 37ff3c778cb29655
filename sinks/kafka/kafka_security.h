/* kafka_security.h: checks that the options for TLS and authentication fit together. kafka_properties.h checks each
 * one alone. */
#pragma once

#include <map>
#include <string>

#include "delivery/options/options.h"

namespace outbox {

/* By librdkafka's names; all spellings of a property have one name, such as "sasl.mechanism". */
using KafkaProperties = std::map<std::string, std::string, std::less<>>;

/* `whole`: `given` includes the user mapping; otherwise only what does not depend on it is checked. Throws BadInput.
 */
void check_kafka_security(const KafkaProperties &given, bool whole);

/* Key and certificate must belong together if both are given. Throws BadInput. */
void check_kafka_key(const KafkaProperties &given);

/* The mechanisms that librdkafka was built with: "PLAIN, SCRAM-SHA-256, ...". */
std::string kafka_mechanisms();

/* Whether librdkafka was built with a feature ("oidc", "sasl_scram"). */
bool kafka_has_feature(std::string_view feature);

}  // namespace outbox
