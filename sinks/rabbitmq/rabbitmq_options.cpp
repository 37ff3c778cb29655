/*
 * rabbitmq_options.cpp: the table of options, and the checks of their values. Like a Kafka sink's brokers, hosts may
 * be named by any owner of a sink: no error text contains what the peer at an address has answered, unless it speaks
 * AMQP.
 */
#include "rabbitmq_options.h"

#include "delivery/formats/format_options.h"
#include "rabbitmq_message.h"

namespace outbox::rabbitmq {
namespace {

using std::chrono::seconds;

constexpr PeerWords broker{"broker", "5672", "5671"};

/* A short string of AMQP, sent as it is. */
void check_short(const std::string &name, const std::string &value) {
  if (value.empty() || value.size() > longest_short_string)
    refuse_value(name, "Expected 1 to 255 bytes.");
}

void check_password(const std::string &name, const std::string &value) {
  if (value.empty())
    refuse_value(name, "It is empty, and RabbitMQ accepts no empty password.");
}

/* In whole seconds, the unit of AMQP. */
seconds parse_heartbeat(const std::string &name, const std::string &value) {
  return std::chrono::ceil<seconds>(parse_duration(name, value, seconds(1), seconds(3600)));
}
}  // namespace

uint32_t parse_max_in_flight(const std::string &name, const std::string &value) {
  return static_cast<uint32_t>(parse_int(name, value, 1, 50'000));
}

size_t parse_max_message_bytes(const std::string &name, const std::string &value) {
  return static_cast<size_t>(parse_int(name, value, 1024, 536'870'912)); /* RabbitMQ's own limit of its limit */
}

static std::vector<OptionSpec> make_options() {
  std::vector<OptionSpec> all{
      server_option(HOSTS, check_hosts,
                    "Required: brokers of one cluster, host or host:port, separated by commas and tried in turn. The "
                    "default port is 5672, with tls 5671."),
      server_option(
          EXCHANGE, check_exchange,
          "Required: exchange of an event, a template with ${aggregate_type}, ${event_type}, ${header.NAME} and the "
          "like. Empty: the default exchange, where routing_key is the name of a queue."),
      server_option(ROUTING_KEY, check_routing_key,
                    "Routing key: a template. Default '${aggregate_type}.${event_type}'."),
      server_option(VHOST, check_short, "Virtual host. Default '/'."),
      server_option(
          MAX_IN_FLIGHT, check<parse_max_in_flight>,
          "Messages that may wait for their confirm at the same time, of different keys: 1 to 50000. Default 2000."),
      server_option(
          MAX_MESSAGE_BYTES, check<parse_max_message_bytes>,
          "Largest body in bytes, at most the broker's max_message_size: 1024 to 536870912. Default 16777216."),
      server_option(
          MANDATORY, check<parse_bool>,
          "Whether the broker returns messages that no queue takes. Default true. False only for an exchange "
          "that returns what it delivers (x-delayed-message): a message without a queue is then lost."),
      server_option(HEARTBEAT, check<parse_heartbeat>,
                    "A broker that is silent for twice as long is gone: 1s to 1h. Default 30s."),
      mapping_option(
          USER, check_short,
          "Name to log in with. Default 'guest'; with ssl_certificate_pem the certificate is the login (EXTERNAL)."),
      secret_option(PASSWORD, check_password, "Password of the user. Default 'guest'."),
  };
  const std::vector<OptionSpec> &format = FormatOptions::specs();
  all.insert(all.begin() + 3, format.begin(), format.end());
  const std::vector<OptionSpec> &connection = ConnectOptions::specs();
  all.insert(all.end(), connection.begin(), connection.end());
  return all;
}

const std::vector<OptionSpec> &rabbitmq_options() {
  static const auto &specs = *new std::vector<OptionSpec>(make_options());
  return specs;
}

void check_user_mapping(const Options &mapping) {
  auto given = [&](OptionName name) { return find_option(mapping, name); };
  auto required = [](OptionName name, OptionName with, const char *detail) {
    throw BadInput(OB_MISSING_OPTION, name,
                   "option \"" + std::string(name) + "\" is required with \"" + with.text + "\"", detail);
  };
  if (given(USER) && !given(PASSWORD))
    required(PASSWORD, USER, "The broker asks for both.");
  if (given(PASSWORD) && !given(USER))
    required(USER, PASSWORD, "The broker asks for both.");
  ConnectOptions::check_mapping(mapping);
}

std::string Connecting::who() const {
  return external() ? "the client's certificate" : "user \"" + user + "\"";
}

Connecting parse_connecting(const Options &server, const Options *mapping, Owner owner) {
  Connecting made{ConnectOptions::parse(broker, server, mapping, owner)};
  if (const std::string *vhost = find_option(server, VHOST))
    made.vhost = *vhost;
  read_option(server, HEARTBEAT, parse_heartbeat, made.heartbeat);
  if (!mapping)
    return made;

  auto take = [mapping](OptionName name, std::string &into) {
    if (const std::string *value = find_option(*mapping, name))
      into = *value;
  };
  if (!made.certificate_pem.empty() && !find_option(*mapping, USER))
    made.user.clear();
  take(USER, made.user);
  take(PASSWORD, made.password);
  return made;
}

}  // namespace outbox::rabbitmq
