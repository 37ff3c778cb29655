/* What each error of Kafka's says, and what it is called in metrics. */
#include <algorithm>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "delivery/sinks/kafka/kafka_errors.h"

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

TEST(KafkaErrors, EachOneThatTheLibraryKnowsIsDecidedUnderItsName) {
  const rd_kafka_err_desc *known;
  size_t n;
  rd_kafka_get_err_descs(&known, &n);
  size_t decided = 0;
  for (size_t i = 0; i < n; i++) {
    if (!known[i].name || known[i].code == RD_KAFKA_RESP_ERR__BEGIN || known[i].code == RD_KAFKA_RESP_ERR__END)
      continue;
    auto at = std::find_if(kafka_errors.begin(), kafka_errors.end(),
                           [&](const KafkaError &each) { return each.code == known[i].code; });
    ASSERT_NE(at, kafka_errors.end()) << known[i].name << " is not decided";
    EXPECT_STREQ(at->name, known[i].name);
    decided++;
  }
  EXPECT_GT(decided, 150u);
  EXPECT_TRUE(std::is_sorted(kafka_errors.begin(), kafka_errors.end(),
                             [](const KafkaError &a, const KafkaError &b) { return a.code < b.code; }));
}

TEST(KafkaErrors, AnAttemptIsSpentOnlyOnWhatMayBeTheEventsFault) {
  std::vector<std::string> spent;
  for (const KafkaError &each : kafka_errors) {
    auto error = static_cast<rd_kafka_resp_err_t>(each.code);
    Result result = kafka_result(error);
    EXPECT_EQ(result == Result::Sent, each.code == 0) << each.name;
    EXPECT_EQ(kafka_reason(error) == OB_REASON_NONE, each.code == 0) << each.name;
    if (result == Result::Retry)
      spent.push_back(each.name);
    /* Taken for unclear, so that the circuit judges: nothing is the event's by default. */
    if (each.fault == KafkaFault::Foreign || each.fault == KafkaFault::Unclear) {
      EXPECT_EQ(result, Result::RetryBlameSink) << each.name;
    }
  }
  EXPECT_EQ(spent, (std::vector<std::string>{"_UNKNOWN_PARTITION", "UNSUPPORTED_FOR_MESSAGE_FORMAT"}));
  EXPECT_EQ(kafka_result(static_cast<rd_kafka_resp_err_t>(9999)), Result::RetryBlameSink) << "of a version to come";
}
