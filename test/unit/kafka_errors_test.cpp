/* The meaning of each Kafka error, and its label in metrics. */
#include <algorithm>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "delivery/base/clean_text.h"
#include "delivery/base/secret_mask.h"
#include "sinks/kafka/kafka_errors.h"

#include "sinks/kafka/kafka_diagnosis.h"

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

/* Errors of consumers, transactions and administration: producers do not get them, so they are unclear. */
static const std::string foreign =
    " _BAD_COMPRESSION _PARTITION_EOF _FS _NODE_UPDATE _WAIT_COORD _UNKNOWN_GROUP _IN_PROGRESS _PREV_IN_PROGRESS "
    "_EXISTING_SUBSCRIPTION _ASSIGN_PARTITIONS _REVOKE_PARTITIONS _CONFLICT _UNKNOWN_PROTOCOL _WAIT_CACHE "
    "_KEY_SERIALIZATION _VALUE_SERIALIZATION _KEY_DESERIALIZATION _VALUE_DESERIALIZATION _READ_ONLY _NOENT "
    "_INVALID_TYPE _MAX_POLL_EXCEEDED _UNKNOWN_BROKER _NOT_CONFIGURED _APPLICATION _ASSIGNMENT_LOST _NOOP "
    "_AUTO_OFFSET_RESET _LOG_TRUNCATION OFFSET_OUT_OF_RANGE INVALID_MSG_SIZE STALE_CTRL_EPOCH "
    "OFFSET_METADATA_TOO_LARGE COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR "
    "ILLEGAL_GENERATION INCONSISTENT_GROUP_PROTOCOL INVALID_GROUP_ID UNKNOWN_MEMBER_ID INVALID_SESSION_TIMEOUT "
    "REBALANCE_IN_PROGRESS INVALID_COMMIT_OFFSET_SIZE GROUP_AUTHORIZATION_FAILED TOPIC_ALREADY_EXISTS "
    "INVALID_PARTITIONS INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT INVALID_CONFIG NOT_CONTROLLER "
    "INVALID_TXN_STATE INVALID_TRANSACTION_TIMEOUT CONCURRENT_TRANSACTIONS TRANSACTION_COORDINATOR_FENCED "
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED SECURITY_DISABLED OPERATION_NOT_ATTEMPTED LOG_DIR_NOT_FOUND "
    "REASSIGNMENT_IN_PROGRESS DELEGATION_TOKEN_AUTH_DISABLED DELEGATION_TOKEN_NOT_FOUND "
    "DELEGATION_TOKEN_OWNER_MISMATCH DELEGATION_TOKEN_REQUEST_NOT_ALLOWED DELEGATION_TOKEN_AUTHORIZATION_FAILED "
    "DELEGATION_TOKEN_EXPIRED INVALID_PRINCIPAL_TYPE NON_EMPTY_GROUP GROUP_ID_NOT_FOUND "
    "FETCH_SESSION_ID_NOT_FOUND INVALID_FETCH_SESSION_EPOCH LISTENER_NOT_FOUND TOPIC_DELETION_DISABLED "
    "STALE_BROKER_EPOCH OFFSET_NOT_AVAILABLE MEMBER_ID_REQUIRED PREFERRED_LEADER_NOT_AVAILABLE "
    "GROUP_MAX_SIZE_REACHED FENCED_INSTANCE_ID ELIGIBLE_LEADERS_NOT_AVAILABLE ELECTION_NOT_NEEDED "
    "NO_REASSIGNMENT_IN_PROGRESS GROUP_SUBSCRIBED_TO_TOPIC UNSTABLE_OFFSET_COMMIT RESOURCE_NOT_FOUND "
    "DUPLICATE_RESOURCE UNACCEPTABLE_CREDENTIAL INCONSISTENT_VOTER_SET INVALID_UPDATE_VERSION "
    "FEATURE_UPDATE_FAILED PRINCIPAL_DESERIALIZATION_FAILURE FENCED_MEMBER_EPOCH UNRELEASED_INSTANCE_ID "
    "UNSUPPORTED_ASSIGNOR STALE_MEMBER_EPOCH MISMATCHED_ENDPOINT_TYPE UNSUPPORTED_ENDPOINT_TYPE "
    "UNKNOWN_CONTROLLER_ID UNKNOWN_SUBSCRIPTION_ID TELEMETRY_TOO_LARGE INVALID_REGISTRATION "
    "TRANSACTION_ABORTABLE INVALID_RECORD_STATE SHARE_SESSION_NOT_FOUND INVALID_SHARE_SESSION_EPOCH "
    "FENCED_STATE_EPOCH INVALID_VOTER_KEY DUPLICATE_VOTER VOTER_NOT_FOUND INVALID_REGULAR_EXPRESSION "
    "STREAMS_INVALID_TOPOLOGY STREAMS_INVALID_TOPOLOGY_EPOCH STREAMS_TOPOLOGY_FENCED SHARE_SESSION_LIMIT_REACHED ";

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
    decided++;
    EXPECT_NE(at == kafka_errors.end(), foreign.find(" " + std::string(known[i].name) + " ") == foreign.npos)
        << known[i].name << " is not decided";
    if (at == kafka_errors.end())
      EXPECT_EQ(kafka_outcome(known[i].code), Outcome::RetryBlameSink) << known[i].name;
    else
      EXPECT_STREQ(at->name, known[i].name);
  }
  EXPECT_GT(decided, 150u);
  EXPECT_TRUE(std::is_sorted(kafka_errors.begin(), kafka_errors.end(),
                             [](const KafkaError &a, const KafkaError &b) { return a.code < b.code; }));
}

TEST(KafkaErrors, AnAttemptIsSpentOnlyOnWhatMayBeTheEventsFault) {
  std::vector<std::string> spent;
  for (const KafkaError &each : kafka_errors) {
    auto error = static_cast<rd_kafka_resp_err_t>(each.code);
    Outcome outcome = kafka_outcome(error);
    EXPECT_EQ(outcome == Outcome::Sent, each.code == 0) << each.name;
    EXPECT_EQ(kafka_reason(error) == OB_REASON_NONE, each.code == 0) << each.name;
    if (outcome == Outcome::Retry)
      spent.push_back(each.name);
    /* Unclear, so that the circuit decides: by default no error is the event's fault. */
    if (each.fault == KafkaFault::Unclear) {
      EXPECT_EQ(outcome, Outcome::RetryBlameSink) << each.name;
    }
  }
  EXPECT_EQ(spent, (std::vector<std::string>{"_UNKNOWN_PARTITION", "UNSUPPORTED_FOR_MESSAGE_FORMAT"}));
  EXPECT_EQ(kafka_outcome(static_cast<rd_kafka_resp_err_t>(9999)), Outcome::RetryBlameSink) << "of a version to come";
}

/* Readers of errors see the broker's name, and not to which address it resolves. */
TEST(KafkaErrors, AreExplainedWithoutAnAddress) {
  const KafkaDiagnosis diagnosis;
  EXPECT_EQ(
      diagnosis.explain("b:9092/1: Connect to ipv4#10.0.0.1:9092 failed: Connection refused (after 9ms in state "
                        "CONNECT)"),
      "connection refused: is the broker running, and is this its port? (librdkafka: b:9092/1: Connect to it "
      "failed: Connection refused)");
  EXPECT_EQ(diagnosis.explain("b:9092/1: Connect to ipv6#[fd00::1]:9092 failed: Connection timed out"),
            "b:9092/1: Connect to it failed: Connection timed out");
  EXPECT_EQ(diagnosis.explain("b:9092/1: Connect to ipv4#10.0.0.1:90"), "b:9092/1: Connect to it");
}

/* librdkafka would have it that the broker is too old. */
TEST(KafkaErrors, ABrokerThatDoesNotAnswerIsNamed) {
  EXPECT_EQ(KafkaDiagnosis()
                .explain("b:9092/bootstrap: ApiVersionRequest failed: Local: Timed out: probably due to "
                         "broker version < 0.10 (see api.version.request configuration) (after 9ms in "
                         "state APIVERSION_QUERY)")
                .substr(0, 66),
            "the broker takes the connection and does not answer: is it running");
}

/* Options with which something was delivered are right, unless the broker has changed. */
TEST(KafkaErrors, AConnectionThatIsClosedIsExplainedByWrongOptionsOnlyUntilSomethingWasDelivered) {
  for (const char *text : {"b:9092/1: Disconnected (after 3ms in state UP)",
                           "b:9092/1: Disconnected (after 3ms in state APIVERSION_QUERY)",
                           "b:9092/1: Disconnected while requesting ApiVersion: might be caused by incorrect "
                           "security.protocol configuration"}) {
    EXPECT_NE(KafkaDiagnosis().explain(text).find("perhaps its port wants TLS or SASL"), std::string::npos) << text;
    const std::string then = KafkaDiagnosis().explain(text, true);
    EXPECT_EQ(then.find("SASL"), std::string::npos) << then;
    EXPECT_NE(then.find("closes the connection"), std::string::npos) << then;
  }
}

/* librdkafka cuts a broker's text in its buffer. The text repeats the secret, which makes it short once it is masked:
 * wherever it was cut, the beginning of a secret at its end would be seen. */
TEST(KafkaErrors, ASecretThatIsCutIsMasked) {
  const std::string secret = "zqx7-horse-battery-staple";
  SecretMask mask;
  mask.add(secret);
  for (size_t length : {450, 511})
    for (size_t before = 0; before <= secret.size(); before++) {
      std::string text = "b:9092/1: SASL authentication error: " + std::string(before, 'x');
      while (text.size() < length)
        text += " " + secret;
      if (length == 511) /* a shorter one is whole */
        text.resize(length);
      const std::string shown = text_to_show(KafkaDiagnosis().explain(text), mask);
      EXPECT_EQ(shown.find("zqx7"), shown.npos) << before << ": " << shown;
      EXPECT_NE(shown.find("***"), shown.npos) << shown;
    }
}

TEST(KafkaErrors, AConnectionThatWorkedAndWasClosedIsNoFailureToConnect) {
  for (const char *text : {"b:9092/1: Disconnected (after 6041ms in state UP, 1 identical error(s) suppressed)",
                           "b:9092/1: Disconnected (after 2000ms in state UP)",
                           "sasl_plaintext://b:9092/1: Disconnected (after 3ms in state UP)",
                           "sasl_ssl://b:9092/1: Disconnected: connection closed by peer: receive 0 after POLLIN "
                           "(after 540000ms in state UP)"})
    EXPECT_TRUE(is_ordinary_close(text)) << text;
  for (const char *text :
       {"b:9092/1: Disconnected (after 3ms in state UP)",
        "b:9092/1: Disconnected (after 9000ms in state APIVERSION_QUERY)",
        "sasl_ssl://b:9092/1: Disconnected (after 3ms in state AUTH_REQ)",
        "b:9092/1: Connect to ipv4#10.0.0.1:9092 failed: Connection refused (after 9000ms in state "
        "CONNECT)",
        "b:9092/1: Receive failed: Connection reset by peer (after 9000ms in state UP)", "Disconnected",
        "Disconnected (after ", ""})
    EXPECT_FALSE(is_ordinary_close(text)) << text;
}
