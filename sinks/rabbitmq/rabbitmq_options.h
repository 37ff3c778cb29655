/* rabbitmq_options.h: the options of servers and user mappings, and what they say about the connection. */
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "delivery/net/connect_options.h"

namespace outbox::rabbitmq {

inline constexpr OptionName VHOST{"vhost"}, MAX_IN_FLIGHT{"max_in_flight"}, MAX_MESSAGE_BYTES{"max_message_bytes"},
    HEARTBEAT{"heartbeat"}, MANDATORY{"mandatory"};

/* How to reach a broker, and to log in. Immutable. */
struct Connecting : ConnectOptions {
  std::string vhost = "/";
  std::string user = "guest", password = "guest"; /* what a new broker accepts from its own machine */
  std::chrono::seconds heartbeat{30};

  /* Authenticate by the client's certificate: there is one, and no user. */
  bool external() const { return user.empty(); }
  /* user "app", or the client's certificate */
  std::string who() const;
};

const std::vector<OptionSpec> &rabbitmq_options();

/* Both throw BadInput. `mapping` may be null. */
Connecting parse_connecting(const Options &server, const Options *mapping, Owner owner);
void check_user_mapping(const Options &mapping);
uint32_t parse_max_in_flight(const std::string &name, const std::string &value);
size_t parse_max_message_bytes(const std::string &name, const std::string &value);

}  // namespace outbox::rabbitmq
