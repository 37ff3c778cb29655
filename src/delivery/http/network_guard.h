/*
 * network_guard.h: which addresses a webhook may be sent to.
 *
 * Whoever may create a sink chooses its URL, and the database server often sits where private services trust it.
 * So the guard judges each resolved address, not the name, and lets only global ones through, besides those that a
 * superuser allowed. Pure, immutable: any thread.
 */
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "delivery/http/network.h"

struct sockaddr;

namespace outbox {

/* Why an address is refused. Only the log may show the address: it tells what a name means inside. */
struct Refusal {
  std::string address;  // 127.0.0.1
  std::string reason;   // "is in a private network"
  std::string network;  // 127.0.0.0/8: what a superuser would allow
};

class NetworkGuard {
public:
  explicit NetworkGuard(std::vector<Network> allowed) : allowed_(std::move(allowed)) {}
  std::optional<Refusal> check(const sockaddr *address) const;
  std::optional<Refusal> check(const std::string &address) const;  // as text, without brackets
  std::optional<Refusal> check(const Network &host) const;

private:
  bool allows(const Network &host) const;

  std::vector<Network> allowed_;
};

/* The setting outbox.allow_networks: what every webhook may reach besides its own option. Any thread. */
std::vector<Network> networks_for_all();

}  // namespace outbox
