/* broker_guard.cpp: a refusal names the network for which it was made, which is the narrowest: a cloud's metadata has
 * one of its own within a private network. */
#include "delivery/net/broker_guard.h"

namespace outbox {

std::optional<BrokerGuard> BrokerGuard::of(const std::vector<Network> &networks, Owner owner) {
  if (owner == Owner::Superuser)
    return std::nullopt;
  std::vector<Network> allowed = networks_for_all();
  allowed.insert(allowed.end(), networks.begin(), networks.end());
  return BrokerGuard(std::move(allowed));
}

std::string BrokerGuard::fact(const std::string &host, const Refusal &refusal) {
  return host + " has an address that " + refusal.reason;
}

std::string BrokerGuard::hint(const std::string &networks) {
  return "if events are meant to go there, a superuser adds " + networks + " to the server's option allow_networks";
}

}  // namespace outbox
