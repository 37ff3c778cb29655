/*
 * kafka_library.h: which versions of librdkafka will do. The one that is loaded may be another than the one whose
 * headers we were compiled with.
 * Versions that are merely old get no warning: their known faults in sending end a producer, which is then
 * replaced.
 */
#pragma once

#include <librdkafka/rdkafka.h>

#include <string>

#include "delivery/delivery.h"

/* Not in versions that are too old for us. Weak, so that the database server starts with one of those, and
 * require_librdkafka() gets to say what is wrong. */
#pragma weak rd_kafka_interceptor_add_on_broker_state_change

/* Only from 2.3 on: to be called after a look at rd_kafka_version(). */
#pragma weak rd_kafka_AdminOptions_set_include_authorized_operations
#pragma weak rd_kafka_DescribeTopics
#pragma weak rd_kafka_DescribeTopics_result_topics
#pragma weak rd_kafka_TopicCollection_destroy
#pragma weak rd_kafka_TopicCollection_of_topic_names
#pragma weak rd_kafka_TopicDescription_authorized_operations
#pragma weak rd_kafka_TopicDescription_name
#pragma weak rd_kafka_event_DescribeTopics_result

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
