/*
 * placement.cpp: parses the option once, when the sink is opened or checked; adding the parts to a record then
 * costs no parsing per event.
 */
#include "delivery/formats/placement.h"

#include <algorithm>

#include "delivery/base/text.h"
#include "delivery/base/text_view.h"
#include "delivery/options/headers.h"
#include "delivery/options/options.h"

namespace outbox {
namespace {

constexpr const char *syntax =
    "Expected a comma-separated list of column:place or column:place:alias, where place is "
    "header, envelope or partition.";
constexpr const char *example = "Example: 'event_type:header:eventType, header.tenant:envelope'.";

[[noreturn]] void bad(const std::string &option, const std::string &what, std::string detail, std::string hint = {}) {
  throw BadInput(OB_BAD_VALUE, option, "invalid value for option \"" + option + "\": " + what, std::move(detail),
                 std::move(hint));
}

std::string in_quotes(std::string_view text) {
  return "\"" + std::string(text) + "\"";
}

Placement parse_one(const std::string &option, std::string_view text) {
  std::vector<std::string_view> parts = split(text, ':');
  if (parts.size() < 2 || parts.size() > 3)
    bad(option, in_quotes(text), syntax, example);

  Placement placement{};
  if (!Field::find(parts[0], placement.field)) {
    std::string_view near = Field::closest_match(parts[0]);
    bad(option, "unknown column " + in_quotes(parts[0]), {},
        (near.empty() ? "" : "Perhaps you meant \"" + std::string(near) + "\". ") + "Known columns are " +
            Field::known("", "") + ".");
  }
  if (parts[1] == "header")
    placement.place = Place::Header;
  else if (parts[1] == "envelope")
    placement.place = Place::Envelope;
  else if (parts[1] == "partition")
    placement.place = Place::Partition;
  else
    bad(option, "unknown place " + in_quotes(parts[1]), syntax, example);

  if (placement.place == Place::Partition) {
    if (parts.size() == 3)
      bad(option, in_quotes(text), "A partition has no alias.");
    return placement;
  }
  std::string_view column = placement.field.is_header() ? std::string_view(placement.field.name()) : parts[0];
  placement.alias = parts.size() == 3 ? parts[2] : column;
  if (placement.alias.empty())
    bad(option, in_quotes(text), "The alias is empty.");
  check_header(placement.alias, {});
  if (placement.place == Place::Envelope && placement.alias == "payload")
    bad(option, in_quotes(text), "In the envelope \"payload\" is the payload.", "Give it another alias.");
  return placement;
}

bool conflict(const Placement &one, const Placement &other) {
  return one.place == other.place && one.alias == other.alias;
}

}  // namespace

std::vector<Placement> parse_placements(const std::string &option, const std::string &text) {
  std::vector<Placement> placements;
  if (text.empty())
    return placements;
  for (std::string_view part : split(text, ',')) {
    Placement placement = parse_one(option, part);
    for (const Placement &before : placements)
      if (conflict(before, placement)) {
        if (placement.place == Place::Partition)
          bad(option, "two columns are the partition", "A record goes to one partition.", "Leave one of them out.");
        bad(option, in_quotes(placement.alias) + " is given twice",
            placement.place == Place::Header ? "Two headers would have this name."
                                             : "Two members of the envelope would have this name.",
            "Give one of them an alias: column:place:alias.");
      }
    placements.push_back(std::move(placement));
  }
  return placements;
}

ob_text field_value(const Field &field, const ob_event &event, Record &record) {
  if (const ob_text *text = field.text(event))
    return *text;
  if (const ob_header *header = field.header(event))
    return header->value;
  std::string &text = record.text();
  return field.append(event, text) ? as_text(text) : ob_text{nullptr, 0};
}

HeaderList::HeaderList(const std::vector<Placement> &placements, std::vector<std::string> reserved)
    : not_own_(std::move(reserved)) {
  for (const Placement &placement : placements) {
    if (placement.place == Place::Header) {
      bool same = placement.alias == placement.field.name() && !placement.field.is_header(); /* id:header */
      if (!same && !keeps(placement.alias))
        bad("additional_placement", in_quotes(placement.alias) + " is given twice",
            "The format itself sends a header of this name.", "Give the column another alias: column:header:alias.");
      placed_.push_back(placement);
      if (!placement.is_default)
        not_own_.push_back(placement.alias);
    }
    if (placement.field.is_header())
      not_own_.push_back(placement.field.name());
  }
}

void HeaderList::write_placed(const ob_event &event, Record &record, bool nulls) const {
  for (const Placement &placement : placed_) {
    if (placement.is_default && find_header(event, placement.alias))
      continue;
    ob_text value = field_value(placement.field, event, record);
    if (!value.data && !nulls)
      continue;
    const ob_header *header = placement.field.header(event);
    record.add_header(placement.alias, value, header && header->binary);
  }
}

bool HeaderList::keeps(std::string_view name) const {
  return std::none_of(not_own_.begin(), not_own_.end(), [name](const std::string &other) { return other == name; });
}

void HeaderList::write_own(const ob_event &event, Record &record, std::string_view except) const {
  for (const ob_header &header : headers_of(event)) {
    std::string_view name = view(header.name);
    if (keeps(name) && (except.empty() || !name.starts_with(except)))
      record.headers.push_back(header);
  }
}

}  // namespace outbox
