/* broker_guard.cpp: a refusal names the network for which it was made, which is the narrowest: a cloud's metadata has
 * one of its own within a private network. */
#include "delivery/net/broker_guard.h"

namespace outbox {

static constexpr OptionName ALLOW_NETWORKS{"allow_networks"};

OptionSpec BrokerGuard::option() {
  return superuser_option(
      ALLOW_NETWORKS, outbox::check<parse_networks>,
      "Networks that are refused to a sink whose owner is no superuser (the database server itself, link-local "
      "addresses, a cloud's metadata) and yet may be connected to, in CIDR notation: '127.0.0.0/8, ::1'. Superuser "
      "only.");
}

std::optional<BrokerGuard> BrokerGuard::of(const Options &server, Owner owner) {
  if (owner == Owner::Superuser)
    return std::nullopt;
  std::vector<Network> networks = networks_for_all();
  if (const std::string *given = find_option(server, ALLOW_NETWORKS)) {
    const std::vector<Network> own = parse_networks(ALLOW_NETWORKS, *given);
    networks.insert(networks.end(), own.begin(), own.end());
  }
  return BrokerGuard(std::move(networks));
}

std::string BrokerGuard::fact(const std::string &host, const Refusal &refusal) {
  return host + " has an address that " + refusal.reason;
}

std::string BrokerGuard::hint(const std::string &networks) {
  return "if events are meant to go there, a superuser adds " + networks + " to the server's option allow_networks";
}

}  // namespace outbox
