/* network.h: IP addresses and networks, as text and as bits. */
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace outbox {

/* A network, or a single address (full prefix). */
struct Network {
  bool v6 = false;
  std::array<uint8_t, 16> address{};  // IPv4 uses the first four bytes
  int prefix = 0;

  bool contains(const Network &host) const;
  /* The network with this shorter prefix that contains this one. */
  Network within(int shorter_prefix) const;
  std::string text() const;  // '10.0.0.0/8'; a single address without its prefix
};

/* Parses '10.1.2.3' or 'fd00::1'; other spellings are refused. */
std::optional<Network> parse_address(const std::string &text);

/* The address that a URL's host denotes without a resolver, in any spelling: '0x7f.1', '[::1]', 'localhost.'. Nothing
 * for a name that must be resolved. */
std::optional<Network> literal_address(const std::string &host);

/* Parses '10.0.0.0/8, ::1/128, 192.168.1.5'. Throws BadInput; the bits after the prefix must be zero. */
std::vector<Network> parse_networks(const std::string &option, const std::string &value);

}  // namespace outbox
