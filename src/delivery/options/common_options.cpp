/* common_options.cpp: the server side routes by `events`, `aggregates` and `match`; here they are only checked. */
#include "delivery/options/common_options.h"

#include "delivery/base/text.h"
#include "delivery/options/retry.h"

namespace outbox {
namespace {

void check_globs(const std::string &name, const std::string &value) {
  for (std::string_view glob : split(value, ','))
    if (glob.empty())
      throw_bad_value(name, value, "Expected a comma-separated list of patterns, and one of them is empty.",
                      "Example: 'order.*, customer.created'. The default '*' takes everything.");
  if (value.find(';') != value.npos)
    throw_bad_value(name, value, "Patterns are separated by commas, not by semicolons.",
                    "Example: 'order.*, customer.created'.");
}

/* The server side, which asks for each delay, gets the text. */
void check_retry(const std::string &name, const std::string &value) {
  RetryPolicy::parse(name, value);
}

/* True for 'block'. */
bool parse_on_dead_letter(const std::string &name, const std::string &value) {
  if (value != "continue" && value != "block")
    throw_bad_value(name, value, "Expected \"continue\" or \"block\".");
  return value == "block";
}

}  // namespace

const OptionTable<CommonOptions> &CommonOptions::table() {
  using Of = CommonOptions;
  static const auto &table = *new OptionTable<Of>(
      row("events", &Of::events, Text{check_globs, "globs, separated by commas"}, "Event types to take.")
          .in_form(OptionForm::List),
      row("aggregates", &Of::aggregates, Text{check_globs, "globs, separated by commas"}, "Aggregate types to take.")
          .in_form(OptionForm::List),
      row("match", &Of::match, As{parse_match, "`{\"tenant\": \"42\", \"region\": \"eu\"}`"},
          "Headers that an event must have: "
          "[an endpoint for each customer](docs/webhooks.md#an-endpoint-for-each-customer).")
          .otherwise("headers do not matter"),
      row(ORDERED, &Of::ordered, Boolean{},
          "Keep the order of each key: a failing event holds up the later ones of its key."),
      row(ON_DEAD_LETTER, &Of::blocks_on_dead_letter, As{parse_on_dead_letter, "`continue`, `block`"},
          "What a dead letter does to its key. `continue`: later events are delivered. `block`: later events wait "
          "until a user redrives, deletes or moves the dead letter.")
          .in_form(OptionForm::Word)
          .otherwise("`continue`"),
      row(RETRY, &Of::retry, Text{check_retry, "`15s*3, 5m*5`, or `100ms..5min`"},
          "The delays before a failed event is tried again, the last one again and again; `100ms..5min`: the delay doubles "
          "from the first to the last.")
          .in_form(OptionForm::List)
          .otherwise("`100ms..5min`; webhooks: `5s, 5m, 30m, 2h, 5h, 10h, 14h, 20h, 24h`"),
      row("max_attempts", &Of::max_attempts, Integer{1, 10'000},
          "After this number of failed attempts the event is a dead letter.")
          .otherwise("10"),
      row("retention", &Of::retention, Duration{std::chrono::milliseconds(0), std::chrono::hours(24 * 3650)},
          "How long delivered events are kept; 0: they are deleted at once.")
          .otherwise("the setting `outbox.retention`"),
      row("max_payload", &Of::max_payload, Size{1024, OB_LARGEST_PAYLOAD},
          "The largest payload of an event as it is sent, JSON as text; a number alone is bytes. "
          "[Size](docs/enqueue.md#size) says what becomes of a larger event, and what a large one costs.")
          .otherwise("`16MB`, or the sink's largest message if that is larger"));
  return table;
}

CommonOptions CommonOptions::of(const Options &server) {
  CommonOptions made;
  table().read(server, OB_SERVER, made);
  return made;
}

void CommonOptions::check_together() const {
  if (!ordered && blocks_on_dead_letter)
    throw BadInput(OB_BAD_VALUE, ON_DEAD_LETTER, "option \"on_dead_letter\" cannot be \"block\" in an unordered sink",
                   "Without order no event waits for another.", "Leave out on_dead_letter, or ordered 'false'.");
}

}  // namespace outbox
