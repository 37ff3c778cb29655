/*
 * network_guard.h: decides which addresses webhook requests may be sent to.
 *
 * A user who may create a sink chooses its URL, and the database server often is in a network where private
 * services trust it. So the guard checks each resolved address, not the name, and allows only global addresses and
 * those that a superuser has allowed. Immutable: safe on any thread.
 */
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "delivery/http/network.h"

struct sockaddr;

namespace outbox {

/* Why an address is refused. The address may be shown only in the server's log, because it reveals how names resolve
 * inside the network. */
struct Refusal {
  std::string address;  // 127.0.0.1
  std::string reason;   // "is in a private network"
  std::string network;  // 127.0.0.0/8: the network that a superuser would have to allow
  bool is_private;      // a private network, in which brokers usually are; not a cloud's metadata in it
};

class NetworkGuard {
public:
  explicit NetworkGuard(std::vector<Network> allowed) : allowed_(std::move(allowed)) {}
  std::optional<Refusal> check(const sockaddr *address) const;
  std::optional<Refusal> check(const std::string &address) const;  // an address as text, without brackets
  std::optional<Refusal> check(const Network &host) const;

private:
  bool allows(const Network &host) const;

  std::vector<Network> allowed_;
};

/* The networks of the setting outbox.allow_networks, which all webhooks may reach in addition to their own option.
 * Any thread. */
std::vector<Network> networks_for_all();
/* ob_set_networks() for the code of this library. */
void set_networks(const char *list);

}  // namespace outbox
