/*
 * kafka_library.h: which versions of librdkafka will do. The one that is loaded may be another than the one whose
 * headers we were compiled with.
 */
#pragma once

#include <librdkafka/rdkafka.h>

#include <string>

#include "../delivery.h"

namespace outbox {

/* As RD_KAFKA_VERSION has them. */
constexpr int oldest_librdkafka = 0x020002ff;
constexpr int recommended_librdkafka = 0x020c00ff;
static_assert(RD_KAFKA_VERSION >= oldest_librdkafka, "outbox needs librdkafka 2.0.2 or later");

/* `version` and `name`: what rd_kafka_version() and rd_kafka_version_str() say. */
ob_library_fitness judge_librdkafka(int version, const std::string &name, ob_error &advice);

/* Throws BadInput when the loaded one is too old. */
void require_librdkafka();

}  // namespace outbox
