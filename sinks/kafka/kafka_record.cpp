/*
 * kafka_record.cpp: one function makes the record for submitting, for the check at enqueue time (which has no
 * payload, only its length) and for previews. The timestamp is the time of sending by default: a topic's retention
 * and its message.timestamp.before.max.ms judge by it, so a record that is sent late with the time of its event would
 * be deleted at once, or refused. It is never later than the clock, which brokers refuse as well. The default record
 * costs 446 instructions; with two headers of the event 590.
 */
#include "kafka_record.h"

#include <algorithm>
#include <charconv>
#include <chrono>

#include "delivery/base/base64.h"
#include "delivery/base/clean_text.h"
#include "delivery/base/text.h"
#include "delivery/base/time_text.h"
#include "delivery/formats/json_text.h"

namespace outbox {
namespace {

constexpr OptionName PARTITION{"partition"};

constexpr const char *default_headers = "event_type:header:eventType"; /* otherwise no record says what happened */

/* ---- options ---- */

bool legal_in_topic(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
         c == '-';
}
bool legal_in_topic(std::string_view text) {
  return text.size() <= 249 && std::all_of(text.begin(), text.end(), [](char c) { return legal_in_topic(c); });
}
bool legal_topic(std::string_view topic) {
  return !topic.empty() && topic != "." && topic != ".." && legal_in_topic(topic);
}
constexpr const char *topic_rule =
    "A Kafka topic's name has 1 to 249 characters: letters, digits, \".\", \"_\" and \"-\".";

/* Topics that brokers let no client write. */
bool is_kafkas_own(std::string_view topic) {
  return topic.starts_with("__") && (topic == "__consumer_offsets" || topic == "__transaction_state" ||
                                     topic == "__share_group_state" || topic == "__cluster_metadata");
}
constexpr const char *own_rule = "Kafka itself writes this topic, and a broker takes no records for it.";

Template parse_topic(const std::string &name, const std::string &value) {
  if (is_kafkas_own(value))
    throw_bad_value(name, value, own_rule);
  Template topic = Template::parse(name, value);
  std::string literals = topic.literals();
  bool looks_like_variable = literals.find_first_of("${}") != literals.npos;
  /* A variable adds at least one character. */
  if (topic.has_variables() ? !legal_in_topic(literals + "v") : !legal_topic(value))
    throw_bad_value(name, value, topic_rule,
                    looks_like_variable ? "Variables are written like ${aggregate_type}." : std::string());
  return topic;
}

/* Returns false if the text is not a partition number. */
bool to_partition(std::string_view text, int32_t &partition) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), partition);
  return error == std::errc() && end == text.data() + text.size() && partition >= 0;
}
constexpr const char *partition_rule = "A partition is a whole number from 0 to 2147483647.";

Template parse_partition(const std::string &name, const std::string &value) {
  Template partition = Template::parse(name, value);
  int32_t number;
  std::string digits = partition.literals();
  bool good = digits.find_first_not_of("0123456789") == digits.npos &&
              (partition.has_variables() || to_partition(value, number));
  if (!good)
    throw_bad_value(name, value, partition_rule);
  return partition;
}

/* A constant key is allowed, but not one that looks like a forgotten ${...}. */
Template parse_key(const std::string &name, const std::string &value) {
  Template key = Template::parse(name, value);
  if (Field field; Field::find(value, field))
    throw_bad_value(name, value, "Every record would have this very text as its key.",
                    "For what the event has there, write ${" + value + "}.");
  return key;
}

}  // namespace

std::vector<Row<KafkaRecordOptions>> KafkaRecordOptions::rows() {
  using Of = KafkaRecordOptions;
  std::vector<Row<FormatOptions>> format = FormatOptions::rows();
  for (Row<FormatOptions> &each : format)
    if (std::string_view(each.name.text) == ADDITIONAL_PLACEMENT.text) {
      each.takes = "`column:PLACE[:alias], ...`; a place is `header`, `envelope` or `partition`";
      each.fallback = std::string("of `debezium`: `") + default_headers + "`";
    }
  return joined<Of>(
      row(TOPIC, &Of::topic, parse_topic,
          "Topic of an event: a [template](docs/kafka-reference.md#topic-key-partition-timestamp)."),
      row("key", &Of::key, parse_key, "Key of the record: a template; NULL when a variable has no value.")
          .otherwise("`${partition_key}`"),
      row(PARTITION, &Of::partition, parse_partition, "A number, or a template that makes one.")
          .otherwise("a hash of the key, as in Java's clients"),
      row(TIMESTAMP, &Of::created_at, Choice<bool>{{{"now", false}, {"created_at", true}}},
          "Time of the record: the time of sending, or when the event was "
          "[enqueued](docs/kafka-reference.md#topic-key-partition-timestamp)."),
      format.front(),
      row("key_format", &Of::key_format,
          Choice<KeyFormat>{{{"raw", KeyFormat::Raw},
                             {"json", KeyFormat::Json},
                             {"connect_json", KeyFormat::ConnectJson},
                             {"base64", KeyFormat::Base64}}},
          "How the key is written; `base64` sends the decoded bytes: "
          "[keys and values](docs/kafka-reference.md#keys-and-values)."),
      std::vector(format.begin() + 1, format.end()));
}

void KafkaRecordOptions::complete_record(const Options &server) {
  check_format(server);
  if (format == Format::Debezium && !find_option(server, ADDITIONAL_PLACEMENT)) {
    placements = parse_placements(ADDITIONAL_PLACEMENT, default_headers);
    for (Placement &placement : placements)
      placement.is_default = true;
  }
  for (const Placement &placement : placements)
    if (placement.place == Place::Partition) {
      refuse_without_meaning(server, PARTITION,
                             "Option \"additional_placement\" names a column that is the partition.");
      partition = Template::of(placement.field);
      partition_is_column = true;
    }
}

KafkaRecordOptions KafkaRecordOptions::parse(const Options &server) {
  static const auto &table = *new OptionTable<KafkaRecordOptions>(rows());
  KafkaRecordOptions made;
  table.read(server, OB_SERVER, made);
  made.complete_record(server);
  return made;
}

KafkaRecordMaker::KafkaRecordMaker(const KafkaRecordOptions &options)
    : RecordMaker(options, true), options_(options) {}

/* ---- events ---- */

/* Makes text for an error message: a header's value may be arbitrary bytes. */
static std::string shown(const std::string &text) {
  bool plain = std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
  return plain ? text : clean_text(text);
}

/* Brokers refuse timestamps in the future, and Kafka has none before 1970: such events get the time of sending (0).
 */
static int64_t sendable(int64_t created_at_us) {
  using namespace std::chrono;
  int64_t now = duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
  return created_at_us > 0 && created_at_us <= now ? created_at_us / 1000 : 0;
}

void KafkaRecordMaker::make_key(const ob_event &event, Record &record) const {
  if (!options_.key) {
    record.key = event.key;
  } else if (const Field *field = options_.key->single()) {
    record.key = field_value(*field, event, record);
  } else {
    std::string &text = record.text();
    record.key = options_.key->render(event, text) ? as_text(text) : ob_text{nullptr, 0};
  }
  if (options_.key_format == KeyFormat::Raw || !record.key.data)
    return;

  std::string &written = record.text();
  if (options_.key_format == KeyFormat::Base64) {
    if (!append_base64_decoded(view(record.key), written))
      throw BadInput(OB_BAD_VALUE, "key", "key of the event is not base64",
                     "Option \"key_format\" of the sink is \"base64\", and the key is \"" +
                         shortened(view(record.key)) + "\".",
                     "Give the event a partition_key in base64, or change the option.");
  } else if (options_.key_format == KeyFormat::Json) {
    append_json_string(view(record.key), written);
  } else {
    written += R"({"schema":{"type":"string","optional":false},"payload":)";
    append_json_string(view(record.key), written);
    written += '}';
  }
  record.key = as_text(written);
}

void KafkaRecordMaker::make_partition(const ob_event &event, Record &record) const {
  std::string &text = record.text();
  if (!options_.partition->render(event, text)) {
    if (options_.partition_is_column)
      return;
    throw_no_value(PARTITION, options_.partition->missing(event));
  }
  if (!to_partition(text, record.partition))
    throw BadInput(OB_BAD_VALUE, PARTITION, "\"" + shown(shortened(text)) + "\" is not a partition", partition_rule,
                   "Change what the event has for it, or the options of the sink.");
}

void KafkaRecordMaker::make_topic(const ob_event &event, Record &record) const {
  if (!options_.topic.render(event, record.topic))
    throw_no_value(TOPIC, options_.topic.missing(event));
  if (!legal_topic(record.topic) || is_kafkas_own(record.topic))
    throw BadInput(OB_BAD_VALUE, TOPIC, "\"" + shown(record.topic) + "\" is not a legal topic name",
                   is_kafkas_own(record.topic) ? own_rule : topic_rule,
                   "Change the event's " + options_.topic.variables() + ", or option \"topic\" of the sink.");
}

void KafkaRecordMaker::make(const ob_event &event, Record &record) const {
  format_->check(event);
  record.begin();
  make_topic(event, record);
  make_key(event, record);
  record.partition = -1;
  if (options_.partition)
    make_partition(event, record);
  record.timestamp_ms = options_.created_at ? sendable(event.created_at_us) : 0;
  format_->write(event, record);
}

size_t KafkaRecordMaker::check(const ob_event &event) const {
  static thread_local Record &made = *new Record; /* never destroyed, so no destructor runs at exit */

  return least_size(event, [&](const ob_event &without) {
    make(without, made);
    return made.size();
  });
}

}  // namespace outbox
