/* kafka_limit.h: how large a message a topic takes. Only asked when a broker has refused one, to say so in words. */
#pragma once

#include <librdkafka/rdkafka.h>

#include <cstdint>
#include <string>

namespace outbox {

/* The answer comes to the queue, as an event of type RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT: always, and soon. */
void ask_topic_limit(rd_kafka_t *client, const std::string &topic, rd_kafka_queue_t *queue);

/* max.message.bytes of the topic; 0 when the broker does not say. */
uint64_t read_topic_limit(rd_kafka_event_t *answer);

}  // namespace outbox
