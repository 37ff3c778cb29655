/* redis_options.h: the options of servers and user mappings, and what they say about the connection. */
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "delivery/net/connect_options.h"

namespace outbox::redis {

inline constexpr OptionName DATABASE{"database"}, WAIT_REPLICAS{"wait_replicas"}, WAIT_TIMEOUT{"wait_timeout"},
    MAX_IN_FLIGHT{"max_in_flight"}, MAX_MESSAGE_BYTES{"max_message_bytes"};

/* How to reach a server, and to log in. Immutable. */
struct Connecting : ConnectOptions {
  std::string user, password; /* both empty: no login */
  int database = 0;
  bool waits = false; /* for replicas */
};

const std::vector<OptionSpec> &redis_options();

/* Both throw BadInput. `mapping` may be null. */
Connecting parse_connecting(const Options &server, const Options *mapping, Owner owner);
void check_user_mapping(const Options &mapping);
uint32_t parse_max_in_flight(const std::string &name, const std::string &value);
size_t parse_max_message_bytes(const std::string &name, const std::string &value);
uint32_t parse_wait_replicas(const std::string &name, const std::string &value);
std::chrono::milliseconds parse_wait_timeout(const std::string &name, const std::string &value);

}  // namespace outbox::redis
