/* kafka_errors.h: what an error of librdkafka or of a broker means for the event that it hit. */
#pragma once

#include <librdkafka/rdkafka.h>

#include "../sink.h"

namespace outbox {

Result kafka_result(rd_kafka_resp_err_t error);

}  // namespace outbox
