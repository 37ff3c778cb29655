/*
 * kafka_properties.cpp: librdkafka defines which properties exist and which values they take: each option is tried
 * on a configuration object. Only superusers may set a URL that is fetched (OIDC): token endpoints are often within
 * the private network, so no network guard checks it, and the response of an internal endpoint would appear in an
 * error text.
 */
#include "kafka_properties.h"

#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>

#include "delivery/base/text.h"
#include "delivery/engine/sink_options.h"
#include "delivery/options/pem.h"
#include "kafka_token.h"

namespace outbox {

/* Properties that the sink sets itself, with the reason. */
struct Owned {
  std::string_view name;
  const char *reason;
};
static constexpr Owned owned[] = {
    {"builtin.features", "It only describes the library."},
    {"delivery.report.only.error", "Without reports of success no event could be marked as delivered."},
    {"enable.gapless.guarantee", "It would stop the sink for good after one failed event."},
    {"enable.idempotence", "It is always on: retries would reorder and duplicate events without it."},
    {"enabled_events", "The sink's event loop depends on it."},
    {"internal.termination.signal", "Signals belong to the database server."},
    {"log.queue", "The database server writes the log from its main thread only."},
    {"log.thread.name", "The database server writes the log from its main thread only."},
    {"delivery.timeout.ms", "Events queued behind one that timed out could overtake it."},
    {"message.timeout.ms", "Events queued behind one that timed out could overtake it."},
    {"metadata.broker.list", "Use option \"bootstrap_servers\"."},
    {"plugin.library.paths", "It would load code into the database server."},
    {"queuing.strategy", "Events of one key must keep their order."},
    {"ssl.key.password", "A key has no password. To remove it: openssl pkey -in protected.pem -out key.pem"},
    {"statistics.interval.ms", "The sink reads no statistics: look at outbox.sinks and outbox.metrics()."},
    {"transaction.timeout.ms", "Events are not sent in Kafka transactions."},
    {"transactional.id", "Events are not sent in Kafka transactions."},
};

/* Narrower ranges than librdkafka's, because its threads and buffers are those of the database server. */
struct Limit {
  std::string_view name;
  int64_t least, most;
};
static constexpr Limit limits[] = {
    /* So much memory a broker can make the server allocate for one answer. */
    {"receive.message.max.bytes", 1000, 100'000'000},
    /* Each refresh costs CPU: at 1 ms, more than statistics at 1 ms. */
    {"topic.metadata.refresh.interval.ms", 100, 3'600'000},
};

static bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

/* By the end of the name, so that properties of newer versions are covered. */
bool is_secret_kafka_property(std::string_view name) {
  for (std::string_view end : {"password", "passphrase", "secret", "key.pem", "oauthbearer.config"})
    if (ends_with(name, end))
      return true;
  return false;
}

static bool may_be_in_mapping(std::string_view name) {
  return is_secret_kafka_property(name) || name == "sasl.username" || name == "ssl.certificate.pem" ||
         name == "sasl.oauthbearer.client.id" || name == "sasl.oauthbearer.client.credentials.client.id";
}

static bool is_mechanism(std::string_view name) {
  return name == "sasl.mechanism" || name == "sasl.mechanisms";
}

/* Why only a superuser may set the property; null if every owner may. Files are read, commands run and addresses
 * reached as the database server's operating-system user. Brokers may be named by any sink owner, but URLs may not:
 * no network guard checks them. */
static const char *superuser_reason(std::string_view name, std::string_view value) {
  if (is_mechanism(name) && value == "GSSAPI")
    return "It runs kinit, and uses the Kerberos tickets of the database server.";
  if (name.substr(0, 14) == "sasl.kerberos.")
    return "It becomes part of a command that the database server runs.";
  if (name.substr(0, 11) == "ssl.engine." || name == "ssl.providers")
    return "It loads code into the database server.";
  if (ends_with(name, ".url"))
    return "The address is fetched from within the database server's network.";
  if (ends_with(name, ".metadata.authentication.type"))
    return "It takes the identity that the cloud has given to the database server's machine.";
  for (std::string_view end : {".location", ".file", ".keytab", ".path", ".paths", ".dir", ".stores"})
    if (ends_with(name, end))
      return "The file is read with the rights of the database server.";
  return nullptr;
}

/* librdkafka prints its properties as a table: name | C, P or * | range | default | importance | description. */
static std::map<std::string, KafkaProperty, std::less<>> read_table() {
  std::map<std::string, KafkaProperty, std::less<>> table;
  char *text = nullptr;
  size_t length = 0;
  FILE *memory = open_memstream(&text, &length);
  if (!memory)
    throw std::bad_alloc();
  rd_kafka_conf_properties_show(memory);
  fclose(memory);
  std::unique_ptr<char, decltype(&free)> owner(text, free);

  for (std::string_view line : split({text, length}, '\n')) {
    auto columns = split(line, '|');
    if (columns.size() < 6 || (columns[1] != "*" && columns[1] != "P") ||
        line.find("see dedicated API") != line.npos) /* properties that are callbacks or pointers */
      continue;
    KafkaProperty property{std::string(columns[0]), std::string(columns[0]), std::string(columns[2])};
    for (char &c : property.option)
      if (c == '.')
        c = '_';
    std::string key = property.option;
    table.emplace(std::move(key),
                  std::move(property)); /* the global property comes before the topic's of the same name */
  }
  return table;
}

static const std::map<std::string, KafkaProperty, std::less<>> &table() {
  static const auto &known = *new auto(read_table()); /* never destroyed, so no destructor runs at exit */
  return known;
}

const KafkaProperty *find_kafka_property(const std::string &option) {
  auto at = table().find(option);
  return at == table().end() ? nullptr : &at->second;
}

static const Owned *find_owned(std::string_view name) {
  for (const Owned &each : owned)
    if (each.name == name)
      return &each;
  return nullptr;
}

static std::string expected(const KafkaProperty &property, const std::string &from_library) {
  size_t dots = property.range.find(" .. ");
  if (dots != property.range.npos)
    return "Expected a number from " + property.range.substr(0, dots) + " to " + property.range.substr(dots + 4) +
           ".";
  if (!property.range.empty())
    return "Expected one of: " + property.range + ".";
  return from_library + ".";
}

[[noreturn]] static void bad_value(const KafkaProperty &property, const std::string &value, std::string detail) {
  if (is_secret_kafka_property(property.name))
    throw BadInput(OB_BAD_VALUE, property.option, "invalid value for option \"" + property.option + "\"");
  throw BadInput(OB_BAD_VALUE, property.option,
                 "invalid value for option \"" + property.option + "\": \"" + value + "\"", std::move(detail));
}

static void check_value(const KafkaProperty &property, const std::string &value) {
  if (check_token_property(property.name, property.option, value))
    return;
  std::unique_ptr<rd_kafka_conf_t, decltype(&rd_kafka_conf_destroy)> scratch(rd_kafka_conf_new(),
                                                                             rd_kafka_conf_destroy);
  char text[512] = "";
  if (rd_kafka_conf_set(scratch.get(), property.name.c_str(), value.c_str(), text, sizeof text) != RD_KAFKA_CONF_OK) {
    if (std::string_view(text).find("not supported in this build") != std::string_view::npos)
      throw BadInput(OB_BAD_VALUE, property.option, "option \"" + property.option + "\" is not supported here",
                     std::string(text) + ".", "Use a librdkafka that was built with it.");
    bad_value(property, value, expected(property, text));
  }

  if (ends_with(property.name, "key.pem"))
    check_key_pem(property.option, value);
  else if (ends_with(property.name, ".pem"))
    check_certificates_pem(property.option, value);
  if (std::string known = kafka_mechanisms(); is_mechanism(property.name)) {
    auto list = split(known, ',');
    if (std::find(list.begin(), list.end(), value) == list.end())
      bad_value(property, value, "Expected one of: " + known + ".");
  }

  for (const Limit &limit : limits)
    if (limit.name == property.name)
      parse_int(property.option, value, limit.least, limit.most);
  /* Stricter than librdkafka, because the producer is idempotent. */
  if ((property.name == "acks" || property.name == "request.required.acks") && value != "all" && value != "-1")
    bad_value(property, value, "Expected \"all\": an event counts as delivered when every in-sync replica has it.");
  if (property.name == "max.in.flight" || property.name == "max.in.flight.requests.per.connection")
    parse_int(property.option, value, 1, 5);
  if (property.name == "retries" || property.name == "message.send.max.retries")
    parse_int(property.option, value, 1, INT32_MAX);
}

bool check_kafka_property(ob_scope scope, const std::string &option, const std::string &value, bool superuser) {
  const KafkaProperty *property = find_kafka_property(option);
  if (!property)
    return false;
  if (const Owned *own = find_owned(property->name))
    throw BadInput(OB_BAD_VALUE, option, "option \"" + option + "\" cannot be set", own->reason);
  if (scope == OB_SERVER && is_secret_kafka_property(property->name))
    throw_secret_in_server(option);
  if (scope == OB_USER_MAPPING && !may_be_in_mapping(property->name))
    throw_not_for_mapping(option);
  if (const char *reason = superuser_reason(property->name, value); reason && !superuser)
    throw_superuser_only(option, reason);
  check_value(*property, value);
  return true;
}

void add_kafka_properties(const Options &options, KafkaProperties &to) {
  for (const auto &[option, value] : options)
    if (const KafkaProperty *property = find_kafka_property(option))
      to[is_mechanism(property->name) ? "sasl.mechanism" : property->name] = value;
}

void kafka_property_names(ob_scope scope, std::vector<const char *> &names) {
  for (const auto &[option, property] : table()) {
    if (find_owned(property.name))
      continue;
    if (scope == OB_SERVER ? !is_secret_kafka_property(property.name) : may_be_in_mapping(property.name))
      names.push_back(option.c_str());
  }
}

}  // namespace outbox
