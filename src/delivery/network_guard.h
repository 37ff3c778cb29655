/*
 * network_guard.h: which addresses a webhook may be sent to.
 *
 * Whoever may create a sink chooses its URL, and the database server often sits where private services trust it.
 * So the guard judges each resolved address, not the name, and lets only global ones through, besides those that a
 * superuser allowed. Pure, immutable: any thread.
 */
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

struct sockaddr;

namespace outbox {

struct Network {
  bool v6 = false;
  std::array<uint8_t, 16> address{};  // the first four bytes for v4
  int prefix = 0;

  bool contains(const Network &host) const;
};

/* '10.0.0.0/8, ::1/128, 192.168.1.5'. Throws BadInput; bits beyond the prefix must be zero. */
std::vector<Network> parse_networks(const std::string &option, const std::string &value);

/* Why an address is refused. */
struct Refusal {
  std::string address;  // 127.0.0.1
  std::string reason;   // "is in a private network"
  std::string network;  // 127.0.0.0/8: what a superuser would allow
};

class NetworkGuard {
public:
  explicit NetworkGuard(std::vector<Network> allowed) : allowed_(std::move(allowed)) {}
  std::optional<Refusal> check(const sockaddr *address) const;
  std::optional<Refusal> check(const std::string &address) const;  // as text, without brackets or zone

private:
  std::optional<Refusal> check(const Network &host) const;
  bool allows(const Network &host) const;

  std::vector<Network> allowed_;
};

}  // namespace outbox
