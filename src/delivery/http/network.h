/* network.h: IP addresses and networks, as text and as bits. */
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace outbox {

/* A network, or an address: then the prefix is whole. */
struct Network {
  bool v6 = false;
  std::array<uint8_t, 16> address{};  // the first four bytes for v4
  int prefix = 0;

  bool contains(const Network &host) const;
  /* The network of that prefix that it lies in. */
  Network within(int shorter_prefix) const;
  std::string text() const;  // '10.0.0.0/8'; of an address without a prefix
};

/* '10.1.2.3' or 'fd00::1', in their usual form only. */
std::optional<Network> parse_address(const std::string &text);

/* The address that a URL's host stands for by itself, however it is written: '0x7f.1', '[::1]', 'localhost.'. Nothing
 * for a name that a resolver is to be asked for. */
std::optional<Network> literal_address(const std::string &host);

/* '10.0.0.0/8, ::1/128, 192.168.1.5'. Throws BadInput; bits beyond the prefix must be zero. */
std::vector<Network> parse_networks(const std::string &option, const std::string &value);

}  // namespace outbox
