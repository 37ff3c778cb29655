/*
 * placement.h: where fields of an event go besides the payload, in the syntax of Debezium's
 * table.fields.additional.placement: 'event_type:header:eventType, header.tenant:envelope'.
 */
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "delivery/formats/record.h"
#include "delivery/options/field.h"

namespace outbox {

enum class Place { Header, Envelope, Partition };

struct Placement {
  Field field;
  Place place;
  std::string alias;
  bool is_default = false; /* not given by a user: an event's own header of this name goes instead */
};

/* An empty text places nothing. Throws BadInput about option `option`. */
std::vector<Placement> parse_placements(const std::string &option, const std::string &text);

/* The field's text, which points into the event or into `record`; data == NULL if the event has no value. */
ob_text field_value(const Field &field, const ob_event &event, Record &record);

/* The headers of a record in addition to its format's: first the placed fields, then the event's own headers. */
class HeaderList {
public:
  /* `reserved`: names that the format itself writes; an event's header of such a name is left out. */
  HeaderList(const std::vector<Placement> &placements, std::vector<std::string> reserved);

  /* `nulls`: a field without a value becomes a header without a value; otherwise it is left out. */
  void write_placed(const ob_event &event, Record &record, bool nulls) const;
  /* Writes the event's headers, except reserved and placed ones and those whose names start with `except`. */
  void write_own(const ob_event &event, Record &record, std::string_view except = {}) const;

private:
  bool keeps(std::string_view name) const;

  std::vector<Placement> placed_;
  std::vector<std::string> not_own_;
};

}  // namespace outbox
