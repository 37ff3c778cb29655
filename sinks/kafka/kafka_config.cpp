/*
 * kafka_config.cpp: translates options and our defaults into librdkafka properties. `linger.ms` is 0: the next
 * batch accumulates while a request is in flight (p50 from commit to consumer at 1,000 events/s: 0.6 ms; with
 * linger.ms 1: 1.7 ms). `message.timeout.ms` is 0: events queued behind a timed-out one would overtake it.
 * `max.in.flight.requests.per.connection` is 1: with more, librdkafka 2.0.2 took the success of a later batch for
 * that of an earlier, failed one (4 of 1,000 events on a new topic were acknowledged and never stored); 1 costs
 * nothing measurable (0.389 against 0.397 of librdkafka's own throughput).
 */
#include "kafka_config.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "delivery/base/text.h"
#include "delivery/base/thread.h"
#include "delivery/options/headers.h"
#include "kafka_properties.h"

namespace outbox {

static bool good_port(std::string_view port) {
  unsigned number = 0;
  auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  return error == std::errc() && end == port.data() + port.size() && number >= 1 && number <= 65535;
}

/* host, host:port or [v6]:port, optionally with a protocol in front. */
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

const OptionTable<KafkaOptions> &KafkaOptions::table() {
  using Of = KafkaOptions;
  static const auto &table = *new OptionTable<Of>(
      row(BOOTSTRAP_SERVERS, &Of::bootstrap_servers, Text{check_brokers, "`host:port`, separated by commas"},
          "Brokers to start from.")
          .in_form(OptionForm::List)
          .otherwise("required"),
      KafkaRecordOptions::rows(), KafkaTokenOptions::rows(), BrokerGuard::allow_networks(&Of::networks));
  return table;
}

KafkaOptions KafkaOptions::parse(const Options &server, const Options *mapping) {
  KafkaOptions made;
  table().read(server, OB_SERVER, made);
  made.complete_record(server);
  if (made.bootstrap_servers.empty())
    throw BadInput(OB_MISSING_OPTION, BOOTSTRAP_SERVERS, "option \"bootstrap_servers\" is required",
                   "A Kafka sink needs a broker to start from.",
                   "Example: OPTIONS (bootstrap_servers 'localhost:9092').");
  if (mapping) {
    table().read(*mapping, OB_USER_MAPPING, made);
    made.check_mapping();
  }
  return made;
}

/* Properties whose defaults in librdkafka suit another purpose. A user's options override these. */
static constexpr std::pair<const char *, const char *> defaults[] = {
    {"client.id", "outbox"},
    /* One request in flight per broker, so that a later batch never overtakes a failed one. The next batch
       accumulates meanwhile, so lingering would only add latency. */
    {"max.in.flight.requests.per.connection", "1"},
    {"linger.ms", "0"},
    /* As in Kafka's own clients, because KafkaJS, kafka-python and aiokafka read lz4, snappy and zstd only with a
       package that is not installed with them. Per event of 300 bytes librdkafka takes 1.3 to 1.8 µs of CPU without
       compression, 2.3 with lz4 or snappy, 3.0 with zstd, and 13.5 with gzip, which all clients read. */
    {"compression.type", "none"},
    /* These events are claimed: enough to fill batches, few enough to send again after a crash. */
    {"queue.buffering.max.messages", "50000"},
    {"queue.buffering.max.kbytes", "65536"},
    /* The same partitions as Java's producers. */
    {"partitioner", "murmur2_random"},
    {"socket.nagle.disable", "true"},
    {"socket.keepalive.enable", "true"},
    /* For this long an unknown topic may be one that the brokers have not announced yet. Its events wait in
       librdkafka's queue and can fill it; after that they wait in the table. */
    {"topic.metadata.propagation.max.ms", "2000"},
    /* A peer that takes the connection and says nothing is seen after this time, as in Java's producers; librdkafka's
       own is 30 s, for each broker in turn. */
    {"socket.connection.setup.timeout.ms", "10000"},
    /* A request whose answer was lost is sent again after this time, as in Java's producers; librdkafka's own is 60
       s. A broker gives up waiting for replicas earlier, so that it can say so. */
    {"socket.timeout.ms", "30000"},
    {"request.timeout.ms", "20000"},
    {"reconnect.backoff.ms", "100"},
    {"reconnect.backoff.max.ms", "1000"},
};
static constexpr std::pair<const char *, const char *> always[] = {
    {"enable.idempotence", "true"},
    /* No timeout: events queued behind a timed-out event would overtake it. A sink without a broker waits. */
    {"message.timeout.ms", "0"},
    {"log.queue", "true"},
    {"statistics.interval.ms", "0"},
};
/* Properties that only newer versions know. */
static constexpr std::pair<const char *, const char *> when_known[] = {
    {"enable.metrics.push", "false"},
    {"metadata.recovery.strategy", "rebootstrap"},
};

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
  char text[512] = "";
  /* A user's values were checked one by one before, so this text contains no secret. */
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
  const bool own_tokens = has_own_tokens(properties_);
  for (const auto &[name, value] : properties_)
    if (!own_tokens || !is_token_property(name))
      set(conf.get(), name.c_str(), value.c_str());
  if (own_tokens)
    expect_tokens(conf.get());
  for (auto [name, value] : always)
    set(conf.get(), name, value);
  return conf;
}

std::string KafkaConfig::user() const {
  for (const auto &[name, value] : properties_)
    if (name == "sasl.username")
      return value;
  return {};
}

bool KafkaConfig::lets_topics_be_created() const {
  auto found = properties_.find("allow.auto.create.topics");
  return found == properties_.end() || found->second != "false";
}

/* Throws BadInput if librdkafka refuses. Its threads inherit the blocked signals. */
static rd_kafka_t *new_kafka(rd_kafka_conf_t *conf) {
  char text[512] = "";
  SignalsBlocked blocked;
  rd_kafka_t *kafka = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
  if (!kafka)
    throw BadInput(OB_BAD_VALUE, {}, "librdkafka refuses the options of the sink", std::string(text) + ".");
  return kafka;
}

/* librdkafka before 2.13 frees the interceptors of a configuration that it refuses, and freeing the configuration
 * frees them again. So this first tries a copy without interceptors and brokers. */
static void try_conf(const rd_kafka_conf_t *conf) {
  KafkaConf copy(rd_kafka_conf_dup(conf), rd_kafka_conf_destroy);
  rd_kafka_conf_set(copy.get(), "bootstrap.servers", nullptr, nullptr, 0);
  rd_kafka_t *kafka = new_kafka(copy.get());
  (void)copy.release();
  rd_kafka_destroy(kafka);
}

static std::string brokers_of(const rd_kafka_conf_t *conf) {
  size_t size = 0;
  if (rd_kafka_conf_get(conf, "bootstrap.servers", nullptr, &size) != RD_KAFKA_CONF_OK)
    return {};
  std::string text(size, '\0');
  rd_kafka_conf_get(conf, "bootstrap.servers", text.data(), &size);
  return text;
}

/* A client without any broker, because no thread could be started for one, would never look for one: it would be
 * open, and nothing would move. Adding the brokers again finds those that it has, and counts them. */
rd_kafka_t *start_kafka(KafkaConf conf) {
  const std::string brokers = brokers_of(conf.get());
  try_conf(conf.get());
  rd_kafka_t *kafka = new_kafka(conf.release()); /* takes ownership, or rarely leaks it */
  if (rd_kafka_brokers_add(kafka, brokers.c_str()) == 0) {
    rd_kafka_destroy(kafka);
    throw BadInput(
        OB_INTERNAL, BOOTSTRAP_SERVERS, "librdkafka has no broker to start from",
        "For each of \"bootstrap_servers\", the protocol is not that of \"security_protocol\", or no thread "
        "could be started.");
  }
  rd_kafka_set_log_queue(kafka, nullptr);
  return kafka;
}

KafkaConfig::KafkaConfig(const Options &server, const Options *mapping, Owner owner)
    : KafkaConfig(KafkaOptions::parse(server, mapping), server, mapping, owner) {}

KafkaConfig::KafkaConfig(const KafkaOptions &options, const Options &server, const Options *mapping, Owner owner)
    : KafkaMessages(options, server), guard_(BrokerGuard::of(options.networks, owner)) {
  add_kafka_properties(server, properties_);
  if (mapping)
    add_kafka_properties(*mapping, properties_);
  check_kafka_security(properties_, mapping != nullptr);
  check_kafka_tokens(properties_, options, server, mapping);
  if (mapping) {
    check_kafka_key(properties_);
    tokens_ = kafka_token_source(properties_, options);
  }

  const KafkaConf all = conf();
  max_bytes_ = 1024 * get_number(all.get(), "queue.buffering.max.kbytes");
  const uint64_t messages = get_number(all.get(), "queue.buffering.max.messages");
  max_messages_ = static_cast<uint32_t>(messages == 0 ? 100'000 : std::min<uint64_t>(messages, 1'000'000));
}

}  // namespace outbox
