/*
 * record_maker.h: the base of the classes that make a kind's messages of records (record.h). It has the format of the
 * record, and checks events that are enqueued, when only the length of the payload is known.
 */
#pragma once

#include <memory>

#include "delivery/formats/format_options.h"
#include "delivery/options/headers.h"

namespace outbox {

class RecordMaker {
public:
  /* Only at enqueue time: throws BadInput for an event that can be sent, but is probably a mistake of its writer. */
  void check_new(const ob_event &event) const;
  /* The largest payload that can fit into `value` bytes. */
  size_t max_payload(size_t value) const;

protected:
  /* `sends_null`: an event without a payload is sent, too. */
  RecordMaker(const FormatOptions &options, bool sends_null) : format_(options.make()), sends_null_(sends_null) {}
  ~RecordMaker() = default;

  /* Throws BadInput if the event cannot be sent. Returns the least size of its message: `size_of` makes the message
   * of the event that it is given, and returns its size. */
  template <class SizeOf> size_t least_size(const ob_event &event, SizeOf size_of) const {
    check_headers(event);
    format_->check(event);
    const bool reads = format_->reads_payload(event);
    ob_event without = event;
    if (reads && event.payload.data)
      without.payload = {"", 0};
    const size_t least = size_of(without), times = format_->shrinks();
    return reads && times > 0 ? least + event.payload.len / times : least;
  }

  const std::unique_ptr<const RecordFormat> format_;

private:
  const bool sends_null_;
};

}  // namespace outbox
