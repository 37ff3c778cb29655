/*
 * rabbitmq_options.cpp: the table of options. Like a Kafka sink's brokers, hosts may be named by any owner of a sink:
 * no error text contains what the peer at an address has answered, unless it speaks AMQP.
 */
#include "rabbitmq_options.h"

#include "delivery/base/clean_text.h"
#include "delivery/base/text.h"

namespace outbox::rabbitmq {
namespace {

using namespace std::chrono_literals;

/* A short string of AMQP, sent as it is. */
void check_short(const std::string &name, const std::string &value) {
  if (value.empty() || value.size() > longest_short_string)
    refuse_value(name, "Expected 1 to 255 bytes.");
}

void check_password(const std::string &name, const std::string &value) {
  if (value.empty())
    refuse_value(name, "It is empty, and RabbitMQ accepts no empty password.");
}

Template parse_short(const std::string &name, const std::string &value, const char *too_long,
                     const char *no_variable) {
  Template made = Template::parse(name, value);
  if (made.literals().size() > longest_short_string)
    throw_bad_value(name, value, too_long);
  if (Field field; Field::find(value, field))
    throw_bad_value(name, value, no_variable, "For what the event has there, write ${" + value + "}.");
  return made;
}

Template parse_exchange(const std::string &name, const std::string &value) {
  return parse_short(name, value, "The name of an exchange has at most 255 bytes.",
                     "All events would go to an exchange of this very name.");
}

Template parse_routing_key(const std::string &name, const std::string &value) {
  return parse_short(name, value, "A routing key has at most 255 bytes.",
                     "All messages would have this very text as their routing key.");
}

void check_placements(const std::vector<Placement> &placements) {
  for (const Placement &placement : placements) {
    if (placement.place == Place::Header &&
        (placement.alias.size() > longest_short_string || routes(placement.alias)))
      throw BadInput(OB_BAD_VALUE, ADDITIONAL_PLACEMENT, shown_name(placement.alias) + " cannot be a header",
                     "Names have at most 255 bytes, and RabbitMQ takes CC and BCC as routing keys.",
                     "Give the column another alias: column:header:alias.");
  }
}

}  // namespace

const OptionTable<RabbitOptions> &RabbitOptions::table() {
  using Of = RabbitOptions;
  static const auto &table = *new OptionTable<Of>(
      row(HOSTS, &Of::hosts, As{parse_hosts, "`host` or `host:port`, separated by commas"},
          "Brokers of one cluster, tried in turn. The default port is 5672, with `tls` 5671.")
          .otherwise("required"),
      row(EXCHANGE, &Of::exchange, As{parse_exchange, "at most 255 bytes"},
          "Exchange of an event: a template with the variables of "
          "[a Kafka topic](docs/kafka-reference.md#topic-key-partition-timestamp). Empty: the default exchange, where "
          "`routing_key` is the name of a queue.")
          .otherwise("required"),
      row(ROUTING_KEY, &Of::routing_key, As{parse_routing_key, "at most 255 bytes"}, "Routing key: a template."),
      FormatOptions::rows(), row("vhost", &Of::vhost, Text{check_short, "at most 255 bytes"}, "Virtual host."),
      row("max_in_flight", &Of::max_in_flight, Integer{1, 50'000, "unacknowledged messages"},
          "Unconfirmed messages, of different keys, per worker."),
      row(MAX_MESSAGE, &Of::max_message, Size{1024, 536'870'912}, /* RabbitMQ's own limit of its limit */
          "Largest body; keep it within the broker's `max_message_size`."),
      row(MANDATORY, &Of::mandatory, Boolean{},
          "The broker returns messages that no queue takes. Set it to `false` only for an exchange that returns what "
          "it delivers, such as one of type `x-delayed-message`: a message without a queue is then lost, and "
          "`outbox.doctor()` says so."),
      row("heartbeat", &Of::heartbeat, WholeSeconds{{1s, 1h}}, /* the unit of AMQP */
          "A broker that sends nothing for twice as long is gone."),
      row(USER, &Of::user, Text{check_short},
          "Name to log in with; a new broker accepts `guest` only from its own machine. The user needs the right to "
          "write to the exchange.")
          .in_user_mapping(),
      row(PASSWORD, &Of::password, Text{check_password}, "Password of the user.").as_secret(),
      ConnectOptions::rows());
  return table;
}

void RabbitOptions::check_mapping(const Options &mapping) {
  require_with(mapping, PASSWORD, USER);
  require_with(mapping, USER, PASSWORD);
  if (!certificate_pem.empty() && !find_option(mapping, USER))
    user.clear();
}

void RabbitOptions::check_server(const Options &server) const {
  if (!exchange)
    throw BadInput(OB_MISSING_OPTION, EXCHANGE, "option \"exchange\" is required",
                   "A message is published to an exchange.",
                   "Example: OPTIONS (exchange 'events'). The default exchange is the empty text.");
  check_format(server);
  refuse_partition("a message", ROUTING_KEY);
  check_placements(placements);
}

std::string RabbitOptions::who() const {
  return external() ? "the client's certificate" : "user \"" + user + "\"";
}

}  // namespace outbox::rabbitmq
