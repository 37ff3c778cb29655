/* What an error of Kafka's is called in metrics. */
#include <gtest/gtest.h>

#include <vector>

#include "delivery/sinks/kafka_errors.h"

using namespace outbox;

TEST(KafkaErrors, EachHasAReasonThatMetricsCount) {
  struct {
    ob_reason reason;
    std::vector<rd_kafka_resp_err_t> errors;
  } const classes[] = {
      {OB_REASON_CONNECTION, {RD_KAFKA_RESP_ERR__TRANSPORT, RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN}},
      {OB_REASON_TIMEOUT, {RD_KAFKA_RESP_ERR__MSG_TIMED_OUT, RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT}},
      {OB_REASON_DNS, {RD_KAFKA_RESP_ERR__RESOLVE}},
      {OB_REASON_TLS, {RD_KAFKA_RESP_ERR__SSL}},
      {OB_REASON_AUTH, {RD_KAFKA_RESP_ERR__AUTHENTICATION, RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED}},
      {OB_REASON_TOO_LARGE, {RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE}},
      {OB_REASON_TOPIC, {RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED}},
      {OB_REASON_INVALID, {RD_KAFKA_RESP_ERR_INVALID_RECORD, RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION}},
      {OB_REASON_BROKER, {RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS, RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR}},
      {OB_REASON_OTHER, {RD_KAFKA_RESP_ERR__FATAL, RD_KAFKA_RESP_ERR__FAIL}},
  };
  for (auto &each : classes)
    for (rd_kafka_resp_err_t error : each.errors)
      EXPECT_EQ(kafka_reason(error), each.reason) << rd_kafka_err2name(error);
}
