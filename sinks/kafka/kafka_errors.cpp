/*
 * kafka_errors.cpp: looks up an error in kafka_error_table.cpp. An unknown code is retried like a failure of the
 * event, and opens the circuit if nothing else succeeds.
 */
#include "kafka_errors.h"

#include <algorithm>

namespace outbox {

static const KafkaError *find(rd_kafka_resp_err_t error) {
  auto at = std::lower_bound(kafka_errors.begin(), kafka_errors.end(), static_cast<int>(error),
                             [](const KafkaError &each, int code) { return each.code < code; });
  return at != kafka_errors.end() && at->code == error ? &*at : nullptr;
}

KafkaFault kafka_fault(rd_kafka_resp_err_t error) {
  const KafkaError *known = find(error);
  return known ? known->fault : KafkaFault::Unclear;
}

Outcome kafka_outcome(rd_kafka_resp_err_t error) {
  switch (kafka_fault(error)) {
  case KafkaFault::None:
    return Outcome::Sent;
  case KafkaFault::Event:
    return Outcome::Retry;
  case KafkaFault::Never:
    return Outcome::Rejected;
  case KafkaFault::Topic:
  case KafkaFault::Leader:
    return Outcome::Deferred;
  case KafkaFault::Sink:
    return Outcome::SinkDown;
  case KafkaFault::Batch:
  case KafkaFault::Producer:
    return Outcome::Returned;
  case KafkaFault::Unclear:
    break;
  }
  return Outcome::RetryBlameSink;
}

ob_reason kafka_reason(rd_kafka_resp_err_t error) {
  const KafkaError *known = find(error);
  return known ? known->reason : error > 0 ? OB_REASON_BROKER : OB_REASON_OTHER;
}

}  // namespace outbox
