/* nats_message.h: the message of an event, and the code that makes it. */
#pragma once

#include <string>

#include "delivery/engine/preview.h"
#include "delivery/formats/record_maker.h"
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

/* Throws BadInput for columns that cannot be headers of NATS. `cloud_events`: in binary mode. */
void check_placements(const std::vector<Placement> &placements, bool cloud_events);

class MessageMaker : public RecordMaker {
public:
  /* The options must outlive it. */
  explicit MessageMaker(const NatsOptions &options);

  /* Throws BadInput if the event cannot be sent with these options. */
  void make(const ob_event &event, Content &content) const;
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

}  // namespace outbox::nats
