/* kafka_errors.h: what an error of librdkafka or of a broker means for the event that it hit. */
#pragma once

#include <librdkafka/rdkafka.h>

#include <span>

#include "delivery/engine/sink.h"

namespace outbox {

/* What an error says something about. */
enum class KafkaFault {
  None,     /* nothing: it was stored */
  Event,    /* this event, which may succeed later: an attempt is spent */
  Never,    /* this event, which can never succeed: it becomes a dead letter */
  Batch,    /* some event of the batch: its events are sent again, one at a time */
  Topic,    /* the topic: all of its events in librdkafka wait */
  Leader,   /* the topic, which its brokers cannot store now: its events wait */
  Sink,     /* all brokers, or the sink's options: the circuit opens */
  Producer, /* librdkafka's own state, or a purge: the event is sent again */
  Unclear   /* the event or the broker, as every error not listed: the events of other keys decide which */
};

struct KafkaError {
  int code;
  const char *name; /* of librdkafka, without RD_KAFKA_RESP_ERR_ */
  KafkaFault fault;
  ob_reason reason;
};

/* All that a producer may meet, by code. */
extern const std::span<const KafkaError> kafka_errors;

/* One that is not in the table is unclear. */
KafkaFault kafka_fault(rd_kafka_resp_err_t error);

Outcome kafka_outcome(rd_kafka_resp_err_t error);

/* Why; never OB_REASON_NONE. */
ob_reason kafka_reason(rd_kafka_resp_err_t error);

/* All that librdkafka holds of the topic fails with it, and nothing of it can have been sent. */
inline bool is_topic_failure(rd_kafka_resp_err_t error) {
  return error != RD_KAFKA_RESP_ERR_NO_ERROR && kafka_fault(error) == KafkaFault::Topic;
}

/* A broker refuses a batch as a whole for what some of its events are. */
inline bool is_batch_refusal(rd_kafka_resp_err_t error) {
  return kafka_fault(error) == KafkaFault::Batch;
}

}  // namespace outbox
