/*
 * redis_options.cpp: the table of options, and the checks of their values. Like a Kafka sink's brokers, hosts may be
 * named by any owner of a sink: no error text contains what the peer at an address has answered, unless it speaks the
 * protocol of Redis.
 */
#include "redis_options.h"

#include "delivery/formats/format_options.h"
#include "entry.h"

namespace outbox::redis {
namespace {

using std::chrono::milliseconds;

constexpr PeerWords server_words{"server", "6379", "6379"};
constexpr const char *default_user = "default"; /* Redis's name for logins without a name */

int parse_database(const std::string &name, const std::string &value) {
  return static_cast<int>(parse_int(name, value, 0, 65'535));
}
void check_not_empty(const std::string &name, const std::string &value) {
  if (value.empty())
    refuse_value(name, "It is empty.");
}
}  // namespace

uint32_t parse_max_in_flight(const std::string &name, const std::string &value) {
  return static_cast<uint32_t>(parse_int(name, value, 1, 50'000));
}

size_t parse_max_message_bytes(const std::string &name, const std::string &value) {
  return static_cast<size_t>(parse_int(name, value, 1024, 536'870'912)); /* Redis's default proto-max-bulk-len */
}

uint32_t parse_wait_replicas(const std::string &name, const std::string &value) {
  return static_cast<uint32_t>(parse_int(name, value, 1, 100));
}

/* Well below the 30 s without an answer after which a connection is given up. */
milliseconds parse_wait_timeout(const std::string &name, const std::string &value) {
  return parse_duration(name, value, milliseconds(100), milliseconds(10'000));
}

static std::vector<OptionSpec> make_options() {
  std::vector<OptionSpec> all{
      server_option(HOSTS, check_hosts,
                    "Required: a master and its replicas, host or host:port, separated by commas and tried in turn "
                    "until one is the master. The default port is 6379."),
      server_option(STREAM, check_stream,
                    "Stream of an event, a template with ${aggregate_type}, ${event_type}, ${header.NAME} and the "
                    "like. Default 'outbox.event.${aggregate_type}'."),
      server_option(MAXLEN, check_maxlen,
                    "Each stream is trimmed to about this number of its latest entries (MAXLEN ~), read or not: 1 to "
                    "9007199254740992. Default: streams are not trimmed."),
      server_option(DATABASE, check<parse_database>, "Number of the database: 0 to 65535. Default 0."),
      server_option(WAIT_REPLICAS, check<parse_wait_replicas>,
                    "An event is delivered when the master and this number of replicas have it in memory (WAIT): 1 "
                    "to 100. Default: when the master has it."),
      server_option(WAIT_TIMEOUT, check<parse_wait_timeout>,
                    "With wait_replicas: when the sink reports that replicas are missing: 100ms to 10s. Default 1s."),
      server_option(
          MAX_IN_FLIGHT, check<parse_max_in_flight>,
          "Entries that may wait for their reply at the same time, of different keys: 1 to 50000. Default 2000."),
      server_option(
          MAX_MESSAGE_BYTES, check<parse_max_message_bytes>,
          "Largest payload in bytes, at most the server's proto-max-bulk-len: 1024 to 536870912. Default 16777216."),
      mapping_option(USER, check_not_empty, "Name to log in with. Default 'default'."),
      secret_option(PASSWORD, check_not_empty, "Password of the user. Default: no login."),
  };
  const std::vector<OptionSpec> &format = FormatOptions::specs();
  all.insert(all.begin() + 2, format.begin(), format.end());
  const std::vector<OptionSpec> &connection = ConnectOptions::specs();
  all.insert(all.end(), connection.begin(), connection.end());
  return all;
}

const std::vector<OptionSpec> &redis_options() {
  static const auto &specs = *new std::vector<OptionSpec>(make_options());
  return specs;
}

void check_user_mapping(const Options &mapping) {
  if (find_option(mapping, USER) && !find_option(mapping, PASSWORD))
    throw BadInput(OB_MISSING_OPTION, PASSWORD, "option \"password\" is required with \"user\"",
                   "The server asks for both.");
  ConnectOptions::check_mapping(mapping);
}

Connecting parse_connecting(const Options &server, const Options *mapping, Owner owner) {
  Connecting made;
  static_cast<ConnectOptions &>(made) = ConnectOptions::parse(server_words, server, mapping, owner);
  made.waits = find_option(server, WAIT_REPLICAS);
  read_option(server, DATABASE, parse_database, made.database);
  if (!mapping)
    return made;
  if (const std::string *password = find_option(*mapping, PASSWORD)) {
    const std::string *user = find_option(*mapping, USER);
    made.user = user ? *user : default_user;
    made.password = *password;
  }
  return made;
}

}  // namespace outbox::redis
