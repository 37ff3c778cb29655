#include "kafka_errors.h"

namespace outbox {

/* Of newer versions than the oldest supported. */
static constexpr auto unknown_topic_id = static_cast<rd_kafka_resp_err_t>(100);
static constexpr auto invalid_different_record = static_cast<rd_kafka_resp_err_t>(-138);

Result kafka_result(rd_kafka_resp_err_t error) {
  switch (error) {
  case RD_KAFKA_RESP_ERR_NO_ERROR:
    return Result::Sent;

  case RD_KAFKA_RESP_ERR__TRANSPORT:
  case RD_KAFKA_RESP_ERR__RESOLVE:
  case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
  case RD_KAFKA_RESP_ERR__MSG_TIMED_OUT:
  case RD_KAFKA_RESP_ERR__TIMED_OUT:
  case RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE:
  case RD_KAFKA_RESP_ERR__AUTHENTICATION:
  case RD_KAFKA_RESP_ERR__SSL:
  case RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED:
  case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
    return Result::SinkDown;

  /* The broker answers but cannot store: another event would fare no better. */
  case RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS:
  case RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND:
  case RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE:
  case RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION:
  case RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT:
  case RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR:
    return Result::RetryBlameSink;

  case RD_KAFKA_RESP_ERR__PURGE_QUEUE:
  case RD_KAFKA_RESP_ERR__PURGE_INFLIGHT:
  case RD_KAFKA_RESP_ERR__DESTROY:
  case RD_KAFKA_RESP_ERR__NO_OFFSET: /* acknowledged, and maybe not stored */
  /* The producer's own state is broken, and the event is none the worse: a new producer sends it again. */
  case RD_KAFKA_RESP_ERR__FATAL:
  case RD_KAFKA_RESP_ERR__FENCED:
  case RD_KAFKA_RESP_ERR__STATE:
  case RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE:
  case RD_KAFKA_RESP_ERR__INCONSISTENT:
  case RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER:
  case RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID:
  case RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH:
    return Result::Released;

  case RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION: /* not a legal name */
    return Result::Rejected;

  default:
    return is_topic_failure(error) ? Result::Wait : is_batch_refusal(error) ? Result::Released : Result::Retry;
  }
}

ob_reason kafka_reason(rd_kafka_resp_err_t error) {
  switch (error) {
  case RD_KAFKA_RESP_ERR__MSG_TIMED_OUT:
  case RD_KAFKA_RESP_ERR__TIMED_OUT:
  case RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE:
  case RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT:
    return OB_REASON_TIMEOUT;
  case RD_KAFKA_RESP_ERR__TRANSPORT:
  case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
    return OB_REASON_CONNECTION;
  case RD_KAFKA_RESP_ERR__RESOLVE:
    return OB_REASON_DNS;
  case RD_KAFKA_RESP_ERR__SSL:
    return OB_REASON_TLS;
  case RD_KAFKA_RESP_ERR__AUTHENTICATION:
  case RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED:
  case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
    return OB_REASON_AUTH;
  case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
  case RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE:
    return OB_REASON_TOO_LARGE;
  case RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION:
  case RD_KAFKA_RESP_ERR__INVALID_ARG:
  case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
    return OB_REASON_INVALID;
  default:
    return is_topic_failure(error)       ? OB_REASON_TOPIC
           : is_batch_refusal(error)     ? OB_REASON_INVALID
           : static_cast<int>(error) > 0 ? OB_REASON_BROKER /* its own word; librdkafka's are negative */
                                         : OB_REASON_OTHER;
  }
}

bool is_topic_failure(rd_kafka_resp_err_t error) {
  switch (error) {
  case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
  case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
  case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
    return true;
  default:
    return error == unknown_topic_id;
  }
}

bool is_batch_refusal(rd_kafka_resp_err_t error) {
  switch (error) {
  case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
  case RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE:
  case RD_KAFKA_RESP_ERR_INVALID_RECORD:
  case RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP:
  case RD_KAFKA_RESP_ERR_POLICY_VIOLATION:
    return true;
  default:
    return error == invalid_different_record;
  }
}

}  // namespace outbox
