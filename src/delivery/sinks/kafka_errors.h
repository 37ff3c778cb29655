/* kafka_errors.h: what an error of librdkafka or of a broker means for the event that it hit. */
#pragma once

#include <librdkafka/rdkafka.h>

#include "../sink.h"

namespace outbox {

Result kafka_result(rd_kafka_resp_err_t error);

/* Why; never OB_REASON_NONE. */
ob_reason kafka_reason(rd_kafka_resp_err_t error);

/* The topic cannot be written at all, by any event: missing, or no rights. */
bool is_topic_failure(rd_kafka_resp_err_t error);

/* A broker refuses a batch as a whole for what some of its events are. */
bool is_batch_refusal(rd_kafka_resp_err_t error);

}  // namespace outbox
