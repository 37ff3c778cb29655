/* rabbitmq_message.h: the message of an event, and the code that makes it. */
#pragma once

#include <array>
#include <string>
#include <vector>

#include "amqp_frames.h"
#include "delivery/engine/preview.h"
#include "delivery/engine/send_queue.h"
#include "delivery/formats/record_maker.h"
#include "delivery/net/peer_kind.h"
#include "rabbitmq_options.h"

namespace outbox::rabbitmq {

/* A message in parts. Points into the event and into itself; reuse one object for many events. */
struct Content {
  std::string exchange, routing_key;
  amqp_basic_properties_t properties{};
  ob_text body{};
  size_t headers_size = 0; /* bytes of all names and values */

  Record record;
  std::vector<amqp_table_entry_t> headers;
};

/* As it waits in the queue of a sink, or was sent. */
struct Message : QueuedEvent {
  std::array<char, 36> id;
  std::string exchange, routing_key;
  std::string properties; /* encoded */
  std::string body;

  size_t size() const {
    return sizeof(Message) + exchange.size() + routing_key.size() + properties.size() + body.size();
  }
};

class MessageMaker : public RecordMaker {
public:
  using Content = rabbitmq::Content;
  static constexpr SizeTexts too_large{"a RabbitMQ message", "Its body has",
                                       "Raise option \"max_message\" of the sink and max_message_size of the "
                                       "broker, or send a reference to the data."};

  /* The options must outlive it. */
  explicit MessageMaker(const RabbitOptions &options);

  /* Throws BadInput if the event cannot be sent with these options. */
  void make(const ob_event &event, Content &content) const;
  Message message(const ob_event &event, const Content &content) const;
  /* The check at enqueue time, when only the payload's length is known. Returns the least size of the body. */
  size_t check(const ob_event &event) const;
  /* "*" stands for what depends on the event. */
  std::string exchange_glob() const { return options_.exchange->glob(); }
  bool exchange_varies() const { return options_.exchange->has_variables(); }

private:
  void add_headers(Content &content) const;

  const RabbitOptions &options_;
};

Preview preview_of(const Content &content);

using RabbitConfig = PeerConfig<RabbitOptions, MessageMaker>;

}  // namespace outbox::rabbitmq
