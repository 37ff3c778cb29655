/* record_format.h: what a format is: it makes value and headers of an event. The rest of the record is the sink's. */
#pragma once

#include "delivery/formats/record.h"

namespace outbox {

class RecordFormat {
public:
  virtual ~RecordFormat() = default;
  virtual void write(const ob_event &event, Record &record) const = 0;
  /* Throws BadInput when write() can never do it right. Does not read the payload. */
  virtual void check(const ob_event & /*event*/) const {}
  /* Throws BadInput when write() can do it, but the writer of the event has probably made a mistake. */
  virtual void check_new(const ob_event & /*event*/) const {}
  /* False when write() hands the payload through unread. */
  virtual bool reads_payload(const ob_event & /*event*/) const { return false; }
  /* The value has at least the payload's length divided by this; 0: nothing can be said. */
  virtual size_t shrinks() const { return 1; }
};

}  // namespace outbox
