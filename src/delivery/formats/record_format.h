/* record_format.h: the interface of a format, which writes a record's value and headers. The sink writes the rest. */
#pragma once

#include "delivery/formats/record.h"

namespace outbox {

/* The media type of the payload. */
inline std::string_view media_type(const ob_event &event) {
  if (event.content_type.len > 0)
    return view(event.content_type);
  return event.payload_is_bytes ? "application/octet-stream" : "application/json";
}

class RecordFormat {
public:
  virtual ~RecordFormat() = default;
  void write(const ob_event &event, Record &record) const {
    write_event(event, record);
    if (event.is_test)
      record.add_header("outbox-probe", as_text("true"));
  }
  /* Throws BadInput if write() can never produce a valid record. Does not read the payload. */
  virtual void check(const ob_event & /*event*/) const {}
  /* Throws BadInput if write() would succeed, but the event is probably a mistake of its writer. */
  virtual void check_new(const ob_event & /*event*/) const {}
  /* False if write() passes the payload through without reading it. */
  virtual bool reads_payload(const ob_event & /*event*/) const { return false; }
  /* The value is at least as long as the payload divided by this; 0: no lower limit is known. */
  virtual size_t shrinks() const { return 1; }

private:
  virtual void write_event(const ob_event &event, Record &record) const = 0;
};

}  // namespace outbox
