/*
 * broker_guard.h: decides which addresses a sink may connect to if it speaks another protocol than HTTP. The role
 * that creates a sink names its hosts. Brokers are nearly always in a private network, so these are let through; what
 * the network guard refuses besides (the machine itself, its link, the metadata of a cloud) stays refused, unless a
 * superuser has allowed it or owns the sink. Immutable: safe on any thread.
 */
#pragma once

#include <optional>
#include <vector>

#include "delivery/http/network_guard.h"
#include "delivery/options/option_table.h"

namespace outbox {

class BrokerGuard {
public:
  explicit BrokerGuard(std::vector<Network> allowed) : guard_(std::move(allowed)) {}
  /* The option that allows further networks: a row of the member that has them. */
  template <class Config> static Row<Config> allow_networks(std::vector<Network> Config::*member) {
    return row("allow_networks", member, As{parse_networks, "CIDR: `127.0.0.0/8, ::1`"},
               "Networks that [are refused](docs/security.md#an-owner-of-sinks) to a sink whose owner is no superuser, "
               "and yet may be reached.")
        .by_superuser();
  }
  /* With `networks` allowed in addition to those of all sinks. Nothing, if the sink's owner is a superuser: every
   * address may be connected to. */
  static std::optional<BrokerGuard> of(const std::vector<Network> &networks, Owner owner);

  /* As NetworkGuard::check(). */
  template <class Address> std::optional<Refusal> check(const Address &address) const {
    std::optional<Refusal> refusal = guard_.check(address);
    return refusal && refusal->is_private ? std::nullopt : refusal;
  }

  /* "localhost has an address that is the database server itself", without an address: it would reveal to the
   * error's readers how names resolve inside the network. */
  static std::string fact(const std::string &host, const Refusal &refusal);
  /* How the networks, separated by commas, are allowed. */
  static std::string hint(const std::string &networks);

private:
  NetworkGuard guard_;
};

}  // namespace outbox
