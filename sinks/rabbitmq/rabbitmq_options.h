/* rabbitmq_options.h: the options of servers and user mappings. */
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "delivery/formats/format_options.h"
#include "delivery/net/connect_options.h"
#include "delivery/options/message_size.h"
#include "delivery/options/template.h"

namespace outbox::rabbitmq {

inline constexpr OptionName EXCHANGE{"exchange"}, ROUTING_KEY{"routing_key"}, MANDATORY{"mandatory"};

/* AMQP writes the length of names in one byte. */
constexpr size_t longest_short_string = 255;

/* RabbitMQ takes these headers as more routing keys, and closes the channel if they are text. */
inline bool routes(std::string_view header) {
  return header == "CC" || header == "BCC";
}

/* Immutable once it is parsed. */
struct RabbitOptions : ConnectOptions, FormatOptions {
  RabbitOptions()
      : ConnectOptions({.noun = "broker",
                        .port = "5672",
                        .tls_port = "5671",
                        .answered = "confirmed",
                        .message = "message",
                        .any_target = "exchange \"",
                        .target_works = "takes messages again"}) {}

  std::optional<Template> exchange; /* there is one */
  Template routing_key = Template::parse(ROUTING_KEY, "${aggregate_type}.${event_type}");
  std::string vhost = "/";
  uint32_t max_in_flight = 2000;
  size_t max_message = 16'777'216;
  bool mandatory = true;
  std::chrono::seconds heartbeat{30};
  std::string user = "guest", password = "guest"; /* what a new broker accepts from its own machine */

  static const OptionTable<RabbitOptions> &table();
  /* Of ConnectOptions::parse(). */
  void check_server(const Options &server) const;
  void check_mapping(const Options &mapping);

  /* Authenticate by the client's certificate: there is one, and no user. */
  bool external() const { return user.empty(); }
  /* user "app", or the client's certificate */
  std::string who() const;
};

}  // namespace outbox::rabbitmq
