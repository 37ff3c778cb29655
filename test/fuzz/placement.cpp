/* placement.cpp: lists of columns and places: what is accepted has the documented form, and each name once. */
#include "test/fuzz/fuzz.h"

#include <memory>
#include <set>

#include "delivery/formats/placement.h"
#include "test/fuzz/event.h"

using namespace outbox;

void fuzz::one_input(std::string_view data) {
  Input input(data.substr(0, 8192)); /* each is compared with each: a list that a user writes */
  std::string text = without_nul(input.line());
  std::vector<Placement> placements;
  if (!accepted([&] { placements = parse_placements("placement", text); }))
    return;
  HOLDS(placements.empty() == text.empty());
  std::set<std::pair<int, std::string>> names;
  std::string printed;
  for (const Placement &placement : placements) {
    HOLDS(names.emplace(static_cast<int>(placement.place), placement.alias).second);
    HOLDS(placement.alias.empty() == (placement.place == Place::Partition));
    HOLDS(placement.alias.find_first_of("\r\n") == std::string::npos);
    printed += (printed.empty() ? "" : ", ") + std::string(placement.field.is_header() ? "header." : "") +
               placement.field.name();
    printed += placement.place == Place::Header     ? ":header"
               : placement.place == Place::Envelope ? ":envelope"
                                                    : ":partition";
    /* An alias is trimmed when it is read; the name of a header, which it is without one, may begin with a blank. */
    if (placement.place != Place::Partition && placement.alias != placement.field.name())
      printed += ":" + placement.alias;
  }
  std::vector<Placement> again = parse_placements("placement", printed);
  HOLDS(again.size() == placements.size());
  for (size_t i = 0; i < again.size(); i++)
    HOLDS(again[i].alias == placements[i].alias && again[i].place == placements[i].place &&
          again[i].field.name() == placements[i].field.name());

  Event event(input);
  Record record;
  std::unique_ptr<HeaderList> list;
  if (!accepted([&] { list = std::make_unique<HeaderList>(placements, std::vector<std::string>{"id"}); }))
    return;
  if (!accepted([&] { list->write_placed(event.raw, record, true), list->write_own(event.raw, record); }))
    return; /* a value with a line break */
  size_t placed = 0;
  for (const Placement &placement : placements)
    placed += placement.place == Place::Header;
  HOLDS(record.headers.size() >= placed && record.headers.size() <= placed + event.raw.n_headers);
}
