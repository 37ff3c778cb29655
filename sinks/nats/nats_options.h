/* nats_options.h: the options of servers and user mappings, and what they say about the connection. */
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "delivery/base/secret_mask.h"
#include "delivery/net/connect_options.h"
#include "nkey.h"

namespace outbox::nats {

inline constexpr OptionName MAX_IN_FLIGHT{"max_in_flight"}, MAX_MESSAGE_BYTES{"max_message_bytes"},
    PING_INTERVAL{"ping_interval"}, INBOX_PREFIX{"inbox_prefix"}, TOKEN{"token"}, CREDENTIALS{"credentials"},
    NKEY_SEED{"nkey_seed"};

/* How to reach a server, and to log in. Immutable. */
struct Connecting : ConnectOptions {
  std::string user = {}, password = {}, token = {}, jwt = {};
  std::optional<Nkey> nkey = {};
  std::string inbox_prefix = "_INBOX";
  std::chrono::seconds ping_interval{30};

  /* As what the sink logs in, for texts: "user \"app\"". */
  std::string who() const;
};

const std::vector<OptionSpec> &nats_options();

/* All throw BadInput. `mapping` may be null. */
Connecting parse_connecting(const Options &server, const Options *mapping, Owner owner);
void check_user_mapping(const Options &mapping);
uint32_t parse_max_in_flight(const std::string &name, const std::string &value);
size_t parse_max_message_bytes(const std::string &name, const std::string &value);
/* Masks the parts of `credentials` as well as the whole text. */
void add_credentials(const Options &mapping, SecretMask &mask);

}  // namespace outbox::nats
