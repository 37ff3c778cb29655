/*
 * kafka_library.h: which versions of librdkafka are supported. The loaded version may differ from that of the
 * headers at compile time. Versions that are merely old get no warning: their known defects in sending end a
 * producer, which is then replaced.
 */
#pragma once

#include <librdkafka/rdkafka.h>

#include <string>

#include "delivery/kind.h"

/* Missing in versions that are too old. Weak, so that the database server still starts with such a version and
 * require_librdkafka() can report it. */
#pragma weak rd_kafka_interceptor_add_on_broker_state_change

/* Available since 2.3: check rd_kafka_version() before a call. */
#pragma weak rd_kafka_AdminOptions_set_include_authorized_operations
#pragma weak rd_kafka_DescribeTopics
#pragma weak rd_kafka_DescribeTopics_result_topics
#pragma weak rd_kafka_TopicCollection_destroy
#pragma weak rd_kafka_TopicCollection_of_topic_names
#pragma weak rd_kafka_TopicDescription_authorized_operations
#pragma weak rd_kafka_TopicDescription_name
#pragma weak rd_kafka_event_DescribeTopics_result

namespace outbox {

/* In the format of RD_KAFKA_VERSION. */
constexpr int oldest_librdkafka = 0x020002ff;
constexpr int recommended_librdkafka = 0x020c00ff;
static_assert(RD_KAFKA_VERSION >= oldest_librdkafka, "outbox needs librdkafka 2.0.2 or later");

/* `version` and `name` are the results of rd_kafka_version() and rd_kafka_version_str(). */
ob_fitness check_librdkafka(int version, const std::string &name, ob_error &advice);

/* The loaded librdkafka. */
void describe_librdkafka(ob_client_library &out);

/* Throws BadInput if the loaded version is too old. */
void require_librdkafka();

}  // namespace outbox
