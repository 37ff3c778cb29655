/* nats_message.h: the message of an event, and the code that makes it. */
#pragma once

#include <string>

#include "delivery/engine/preview.h"
#include "delivery/engine/send_queue.h"
#include "delivery/formats/record_maker.h"
#include "delivery/net/peer_kind.h"
#include "nats_options.h"

namespace outbox::nats {

/* JetStream stores the length of headers in two bytes. */
constexpr size_t longest_headers = 65'535;

/* A message in parts. Points into the event and into itself; reuse one object for many events. */
struct Content {
  std::string subject;
  std::string headers; /* as they are sent, with the empty line at their end */
  ob_text body{};

  size_t size() const { return headers.size() + body.len; }
  Record record;
};

/* As it waits in the queue of a sink, or was sent. */
struct Message : QueuedEvent {
  std::string subject;
  std::string data;             /* headers and body, as they are sent */
  size_t headers_size;          /* of data */
  int64_t first_tried_after_us; /* Unix time: created_at of its event; INT64_MIN: it was tried before */

  size_t size() const { return sizeof(Message) + subject.size() + data.size(); }
};

/* Throws BadInput for columns that cannot be headers of NATS. `cloud_events`: in binary mode. */
void check_placements(const std::vector<Placement> &placements, bool cloud_events);

class MessageMaker : public RecordMaker {
public:
  using Content = nats::Content;
  static constexpr SizeTexts too_large{"a NATS message", "With its headers it has",
                                       "Raise option \"max_message\" of the sink and max_payload of the "
                                       "server, or send a reference to the data."};

  /* The options must outlive it. */
  explicit MessageMaker(const NatsOptions &options);

  /* Throws BadInput if the event cannot be sent with these options. */
  void make(const ob_event &event, Content &content) const;
  Message message(const ob_event &event, const Content &content) const;
  /* The check at enqueue time, when only the payload's length is known. Returns the least size of the message. */
  size_t check(const ob_event &event) const;

  /* The subject, if it is the same for all events; else the part before the first token that varies, with > after it:
   * what a stream for them must overlap. */
  std::string subject_filter() const;
  const std::string &stream() const { return options_.stream; } /* empty: any */

private:
  void add_headers(Content &content) const;
  /* In binary mode. */
  bool is_cloud_event() const { return options_.format == Format::CloudEvents; }

  const NatsOptions &options_;
};

/* Byte for byte what is sent. */
Preview preview_of(const Content &content);

using NatsConfig = PeerConfig<NatsOptions, MessageMaker>;

}  // namespace outbox::nats
