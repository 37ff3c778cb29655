/* entry.h: the entry of an event, and the code that makes it. */
#pragma once

#include <string>
#include <vector>

#include "command.h"
#include "delivery/engine/preview.h"
#include "delivery/engine/send_queue.h"
#include "delivery/formats/record_maker.h"
#include "delivery/net/peer_kind.h"
#include "redis_options.h"

namespace outbox::redis {

/* An entry in parts. Points into the event and into itself; reuse one object for many events. */
struct Entry {
  struct Field {
    std::string_view name, value;
  };
  std::string stream;
  std::vector<Field> fields;
  size_t payload_bytes = 0;

  Record record;
};

/* As it waits in the queue of a sink, or was sent. */
struct Message : QueuedEvent {
  std::string stream;
  Command command; /* XADD */

  size_t size() const { return sizeof(Message) + stream.size() + command.bytes().size(); }
};

class EntryMaker : public RecordMaker {
public:
  using Content = Entry;
  static constexpr SizeTexts too_large{"an entry of Redis", "Its payload has",
                                       "Raise option \"max_message\" of the sink and, above 512 MB, "
                                       "proto-max-bulk-len of the server, or send a reference to the data."};

  /* The options must outlive it. */
  explicit EntryMaker(const RedisOptions &options);

  /* Throws BadInput if the event cannot be sent with these options. */
  void make(const ob_event &event, Entry &entry) const;
  Message message(const ob_event &event, const Entry &entry) const {
    return {QueuedEvent(event), entry.stream, command(entry)};
  }
  /* The check at enqueue time, when only the payload's length is known. Returns the least size of the payload. */
  size_t check(const ob_event &event) const;
  /* "*" stands for what depends on the event. */
  std::string stream_glob() const { return options_.stream.glob(); }
  bool stream_varies() const { return options_.stream.has_variables(); }

private:
  void add_headers(Entry &entry) const;
  Command command(const Entry &entry) const;

  const RedisOptions &options_;
  const std::string maxlen_; /* as it is sent; empty: streams are not trimmed */
};

Preview preview_of(const Entry &entry);

using RedisConfig = PeerConfig<RedisOptions, EntryMaker>;

}  // namespace outbox::redis
