/*
 * placement.h: where parts of an event go beside the payload, in the words of Debezium's
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
};

/* Throws BadInput in the name of the option. */
std::vector<Placement> parse_placements(const std::string &option, const std::string &text);

/* The field's text, in the event or in a text of the record's; data == NULL when there is none. */
ob_text field_value(const Field &field, const ob_event &event, Record &record);

/* The headers that a record has beside those of its format: the placed ones, then the event's own. */
class HeaderList {
public:
  /* `reserved`: what the format itself sets, and no header of the event may say again. */
  HeaderList(const std::vector<Placement> &placements, std::vector<std::string> reserved);

  /* `nulls`: what the event does not have is a header without a value, and else none. */
  void write_placed(const ob_event &event, Record &record, bool nulls) const;
  /* The headers of the event but for reserved and placed ones, and for those whose names begin with `except`. */
  void write_own(const ob_event &event, Record &record, std::string_view except = {}) const;

private:
  bool keeps(std::string_view name) const;

  std::vector<Placement> placed_;
  std::vector<std::string> not_own_;
};

}  // namespace outbox
