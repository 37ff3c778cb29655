/*
 * redis_options.cpp: the table of options. Like a Kafka sink's brokers, hosts may be named by any owner of a sink: no
 * error text contains what the peer at an address has answered, unless it speaks the protocol of Redis.
 */
#include "redis_options.h"

namespace outbox::redis {

static Template parse_stream(const std::string &name, const std::string &value) {
  if (value.empty())
    throw_bad_value(name, value, "A stream has a name.");
  if (Field field; Field::find(value, field))
    throw_bad_value(name, value, "All events would go to a stream of this very name.",
                    "For what the event has there, write ${" + value + "}.");
  return Template::parse(name, value);
}

const OptionTable<RedisOptions> &RedisOptions::table() {
  using Of = RedisOptions;
  static const auto &table = *new OptionTable<Of>(
      row(HOSTS, &Of::hosts, As{parse_hosts, "`host` or `host:port`, separated by commas"},
          "A master and its replicas, tried in turn until one is the master. The default port is 6379.")
          .otherwise("required"),
      row(STREAM, &Of::stream, parse_stream,
          "Stream of an event: a template with the variables of "
          "[a Kafka topic](docs/kafka-reference.md#topic-key-partition-timestamp)."),
      FormatOptions::rows(),
      row(MAXLEN, &Of::maxlen, Integer{1, int64_t{1} << 53, "entries"},
          "Each stream is trimmed to about its latest entries (`MAXLEN ~`), read or not.")
          .otherwise("streams are not trimmed"),
      row("database", &Of::database, Integer{0, 65'535}, "Number of the database."),
      row(WAIT_REPLICAS, &Of::wait_replicas, Integer{1, 100},
          "An event is delivered when the master and this number of replicas have it in memory (WAIT); without the option "
          "when the master has it.")
          .otherwise("none"),
      row("max_in_flight", &Of::max_in_flight, Integer{1, 50'000, "unacknowledged messages"},
          "Entries without a reply, of different keys, per worker."),
      row(MAX_MESSAGE, &Of::max_message, Size{1024, 536'870'912},
          "Largest payload; keep it within the server's `proto-max-bulk-len`, whose default is the largest."),
      row(USER, &Of::user, Text{check_not_empty}, "Name to log in with.").in_user_mapping(),
      row(PASSWORD, &Of::password, Text{check_not_empty},
          "Password of the user; with `requirepass` it is enough alone.")
          .as_secret()
          .otherwise("no login"),
      ConnectOptions::rows());
  return table;
}

void RedisOptions::check_mapping(const Options &mapping) const {
  require_with(mapping, PASSWORD, USER);
}

void RedisOptions::check_server(const Options &server) const {
  check_format(server);
  refuse_partition("an entry", STREAM);
}

}  // namespace outbox::redis
