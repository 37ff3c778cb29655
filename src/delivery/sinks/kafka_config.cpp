#include "kafka_config.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>

#include "../formats/debezium.h"
#include "../headers.h"
#include "../text.h"
#include "kafka_properties.h"

namespace outbox {

static constexpr const char *default_topic = "outbox.event.${aggregate_type}";
static constexpr size_t id_header_bytes = 2 + 36;

/* ---- options ---- */

static bool good_port(std::string_view port) {
  unsigned number = 0;
  auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  return error == std::errc() && end == port.data() + port.size() && number >= 1 && number <= 65535;
}

/* host, host:port, [v6]:port, each perhaps with a protocol in front. */
static bool good_broker(std::string_view broker) {
  if (size_t scheme = broker.find("://"); scheme != broker.npos)
    broker.remove_prefix(scheme + 3);
  if (broker.empty() || broker.find_first_of(" \t/") != broker.npos)
    return false;
  size_t host_end = broker[0] == '[' ? broker.find(']') : 0;
  if (host_end == broker.npos)
    return false;
  size_t colon = broker.find(':', host_end);
  return colon == broker.npos || (colon > 0 && good_port(broker.substr(colon + 1)));
}

static void check_brokers(const std::string &name, const std::string &value) {
  for (std::string_view broker : split(value, ','))
    if (!good_broker(broker))
      throw BadInput(OB_BAD_VALUE, name, "invalid value for option \"" + name + "\": \"" + value + "\"",
                     "Expected a comma-separated list of host:port.",
                     "Example: 'kafka1.example:9092,kafka2.example:9092'.");
}

static bool legal_in_topic(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
         c == '-';
}
static bool legal_in_topic(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return legal_in_topic(c); });
}
static constexpr const char *topic_rule =
    "A Kafka topic's name has 1 to 249 characters: letters, digits, \".\", \"_\" and \"-\".";

static void check_topic(const std::string &name, const std::string &value) {
  std::string literals = Template::parse(name, value).literals();
  if (value.empty() || value == "." || value == ".." || literals.size() > 249 || !legal_in_topic(literals))
    throw BadInput(OB_BAD_VALUE, name, "invalid value for option \"" + name + "\": \"" + value + "\"", topic_rule);
}

static void check_format(const std::string &name, const std::string &value) {
  if (value != "debezium")
    throw BadInput(OB_BAD_VALUE, name, "invalid value for option \"" + name + "\": \"" + value + "\"",
                   "Expected one of: debezium.");
}

static bool parse_timestamp(const std::string &name, const std::string &value) {
  if (value != "created_at" && value != "now")
    throw BadInput(OB_BAD_VALUE, name, "invalid value for option \"" + name + "\": \"" + value + "\"",
                   "Expected \"created_at\" or \"now\".");
  return value == "created_at";
}
static void check_timestamp(const std::string &name, const std::string &value) {
  parse_timestamp(name, value);
}

const std::vector<OptionSpec> &KafkaConfig::options() {
  static const auto &specs = *new std::vector<OptionSpec>{
      {"bootstrap_servers", true, false, false, false, check_brokers,
       "Required: brokers to start from, host:port separated by commas."},
      {"topic", true, false, false, false, check_topic,
       "Topic of an event, with ${aggregate_type} and ${event_type}. Default 'outbox.event.${aggregate_type}'."},
      {"timestamp", true, false, false, false, check_timestamp,
       "Timestamp of the record: 'created_at' of the event, the default (never later than now), or 'now'."},
      {"format", true, false, false, false, check_format,
       "How an event is written: 'debezium', what Debezium's Outbox Event Router sends by default."},
  };
  return specs;
}

/* Where librdkafka's own defaults are for another purpose. A person's options come after these. */
static constexpr std::pair<const char *, const char *> defaults[] = {
    {"client.id", "outbox"},
    /* None: what timed out could be overtaken by what was queued behind it. A sink without a broker waits. */
    {"message.timeout.ms", "0"},
    /* One request on the way to a broker: a later batch never overtakes a failed one, and while it is on its way the
     * next batch gathers by itself, so that lingering would only add delay. */
    {"max.in.flight.requests.per.connection", "1"},
    {"linger.ms", "0"},
    {"compression.type", "lz4"},
    /* What is in here is claimed: enough to fill batches, little enough to re-send after a crash. */
    {"queue.buffering.max.messages", "50000"},
    {"queue.buffering.max.kbytes", "65536"},
    /* The partitions that Java's producers choose. */
    {"partitioner", "murmur2_random"},
    {"socket.nagle.disable", "true"},
    {"socket.keepalive.enable", "true"},
    {"reconnect.backoff.ms", "100"},
    {"reconnect.backoff.max.ms", "1000"},
};
static constexpr std::pair<const char *, const char *> always[] = {
    {"enable.idempotence", "true"},
    {"log.queue", "true"},
};
/* Properties of newer versions. */
static constexpr std::pair<const char *, const char *> when_known[] = {
    {"enable.metrics.push", "false"},
    {"metadata.recovery.strategy", "rebootstrap"},
};

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
  char text[512] = "";
  /* A person's values were checked one by one before, so that no text of this can hold a secret. */
  if (rd_kafka_conf_set(conf, name, value, text, sizeof text) != RD_KAFKA_CONF_OK)
    throw BadInput(OB_INTERNAL, name, "librdkafka refuses property \"" + std::string(name) + "\"",
                   std::string(text) + ".");
}

static uint64_t get_number(const rd_kafka_conf_t *conf, const char *name) {
  char text[64] = "";
  size_t size = sizeof text;
  if (rd_kafka_conf_get(conf, name, text, &size) != RD_KAFKA_CONF_OK)
    throw BadInput(OB_INTERNAL, name, "librdkafka does not know property \"" + std::string(name) + "\"");
  return strtoull(text, nullptr, 10);
}

KafkaConf KafkaConfig::conf() const {
  KafkaConf conf(rd_kafka_conf_new(), rd_kafka_conf_destroy);
  for (auto [name, value] : when_known)
    rd_kafka_conf_set(conf.get(), name, value, nullptr, 0);
  for (auto [name, value] : defaults)
    set(conf.get(), name, value);
  for (const auto &[name, value] : properties_)
    set(conf.get(), name.c_str(), value.c_str());
  for (auto [name, value] : always)
    set(conf.get(), name, value);
  return conf;
}

KafkaConfig::KafkaConfig(const Options &server, const Options *mapping) {
  auto brokers = server.find("bootstrap_servers");
  if (brokers == server.end())
    throw BadInput(OB_MISSING_OPTION, "bootstrap_servers", "option \"bootstrap_servers\" is required",
                   "A Kafka sink needs a broker to start from.",
                   "Example: OPTIONS (bootstrap_servers 'localhost:9092').");
  auto topic = server.find("topic");
  topic_ = Template::parse("topic", topic == server.end() ? default_topic : topic->second);

  auto timestamp = server.find("timestamp");
  created_at_ = timestamp == server.end() || parse_timestamp("timestamp", timestamp->second);

  add_kafka_properties(server, properties_);
  if (mapping)
    add_kafka_properties(*mapping, properties_);
  check_kafka_security(properties_, mapping != nullptr);

  KafkaConf all = conf();
  max_message_bytes_ = get_number(all.get(), "message.max.bytes");
  uint64_t messages = get_number(all.get(), "queue.buffering.max.messages");
  max_messages_ = static_cast<uint32_t>(messages == 0 ? 100'000 : std::min<uint64_t>(messages, 1'000'000));
}

/* ---- events ---- */

/* A broker refuses what lies in the future, and has no time before 1970: those get the time of sending. */
static int64_t sendable(int64_t created_at_ms) {
  using namespace std::chrono;
  int64_t now = duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
  return created_at_ms > 0 && created_at_ms <= now ? created_at_ms : 0;
}

void KafkaConfig::record(const ob_event &event, Record &record) const {
  topic_.render(event, record.topic);
  record.partition = -1;
  record.timestamp_ms = created_at_ ? sendable(event.created_at_ms) : 0;
  debezium_record(event, record);
}

void KafkaConfig::check_event(const ob_event &event) const {
  static thread_local Record &made = *new Record; /* never destroyed: nothing runs at exit */

  check_headers(event);
  record(event, made);
  const std::string &topic = made.topic;
  if (topic.empty() || topic.size() > 249 || topic == "." || topic == ".." || !legal_in_topic(topic))
    throw BadInput(OB_BAD_VALUE, "topic", "\"" + topic + "\" is not a legal topic name", topic_rule,
                   "Change the event's aggregate_type, or option \"topic\" of the sink.");

  if (size_t size = made.size(); size > max_message_bytes_)
    throw BadInput(OB_TOO_LARGE, "message_max_bytes", "event is too large for a Kafka message",
                   "With its key and headers it has " + std::to_string(size) + " bytes, and at most " +
                       std::to_string(max_message_bytes_) + " are allowed.",
                   "Raise option \"message_max_bytes\" of the sink and \"max.message.bytes\" of the topic, or send "
                   "a reference to the data.");
}

size_t KafkaConfig::max_payload() const {
  return max_message_bytes_ - id_header_bytes;
}

}  // namespace outbox
