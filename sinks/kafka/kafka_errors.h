/* kafka_errors.h: what an error of librdkafka or a broker means for the event that got it. */
#pragma once

#include <librdkafka/rdkafka.h>

#include <span>

#include "delivery/engine/sink.h"

namespace outbox {

/* The subject of an error. */
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
  const char *name; /* librdkafka's name without RD_KAFKA_RESP_ERR_ */
  KafkaFault fault;
  ob_reason reason;
};

/* All errors that a producer can get, sorted by code. */
extern const std::span<const KafkaError> kafka_errors;

/* Unclear for a code that is not in the table. */
KafkaFault kafka_fault(rd_kafka_resp_err_t error);

Outcome kafka_outcome(rd_kafka_resp_err_t error);

/* Never OB_REASON_NONE. */
ob_reason kafka_reason(rd_kafka_resp_err_t error);

/* All messages of the topic fail with it, and none of them can have been sent. */
inline bool is_topic_failure(rd_kafka_resp_err_t error) {
  return error != RD_KAFKA_RESP_ERR_NO_ERROR && kafka_fault(error) == KafkaFault::Topic;
}

/* A broker refuses a whole batch because of some of its events. */
inline bool is_batch_refusal(rd_kafka_resp_err_t error) {
  return kafka_fault(error) == KafkaFault::Batch;
}

}  // namespace outbox
