/* kafka_security.h: whether the options that concern TLS and authentication make sense together. What each may be by
 * itself, kafka_properties.h knows. */
#pragma once

#include <map>
#include <string>

#include "delivery/options/options.h"

namespace outbox {

/* By librdkafka's names: "sasl.mechanism", also where the user wrote another spelling of it. */
using KafkaProperties = std::map<std::string, std::string, std::less<>>;

/* `whole`: user mapping included; else only what can be known without it is judged. Throws BadInput. */
void check_kafka_security(const KafkaProperties &given, bool whole);

/* A key and its certificate, where both are there: they belong together. Throws BadInput. */
void check_kafka_key(const KafkaProperties &given);

/* "PLAIN, SCRAM-SHA-256, ...": what the library was built with. */
std::string kafka_mechanisms();

/* Whether librdkafka was built with this ("oidc", "sasl_scram"). */
bool kafka_has_feature(std::string_view feature);

}  // namespace outbox
