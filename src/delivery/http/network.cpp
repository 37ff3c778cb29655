/*
 * network.cpp: parsing with inet_pton(); networks are compared bit by bit.
 */
#include "delivery/http/network.h"

#include <algorithm>
#include <cstring>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <strings.h>

#include "delivery/base/text.h"
#include "delivery/options/options.h"

namespace outbox {
namespace {

std::optional<int> parse_prefix(const std::string &digits, int longest) {
  if (digits.empty() || digits.size() > 3 || digits.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  int prefix = std::stoi(digits);
  return prefix <= longest ? std::optional(prefix) : std::nullopt;
}

Network parse_network(const std::string &option, const std::string &text) {
  auto refuse = [&](const std::string &detail, const std::string &hint) {
    return BadInput(OB_BAD_VALUE, option, "invalid value for option \"" + option + "\"", detail, hint);
  };
  size_t slash = text.find('/');
  auto network = parse_address(text.substr(0, slash));
  auto prefix = !network                     ? std::nullopt
                : slash == std::string::npos ? std::optional(network->prefix)
                                             : parse_prefix(text.substr(slash + 1), network->prefix);
  if (!prefix)
    throw refuse("\"" + text + "\" is not a network.",
                 "Give networks in CIDR notation, separated by commas, such as '10.0.0.0/8, fd00::/8'.");
  Network exact = network->within(*prefix);
  if (exact.address != network->address)
    throw refuse("\"" + text + "\" has bits set to the right of its prefix.", "Did you mean '" + exact.text() + "'?");
  static const Network mapped = parse_address("::ffff:0:0")->within(96);
  if (mapped.contains(exact)) {
    Network v4;
    memcpy(v4.address.data(), &exact.address[12], 4);
    v4.prefix = exact.prefix - 96;
    throw refuse("\"" + text + "\" is a network of IPv4, written as one of IPv6.",
                 "Did you mean '" + v4.text() + "'?");
  }
  return exact;
}

bool ends_with_ignoring_case(const std::string &text, const char *end) {
  size_t length = strlen(end);
  return text.size() >= length && strcasecmp(text.c_str() + text.size() - length, end) == 0;
}

}  // namespace

bool Network::contains(const Network &host) const {
  if (v6 != host.v6 || prefix > host.prefix)
    return false;
  int bytes = prefix / 8, bits = prefix % 8;
  if (memcmp(address.data(), host.address.data(), static_cast<size_t>(bytes)) != 0)
    return false;
  return bits == 0 || ((address[bytes] ^ host.address[bytes]) >> (8 - bits)) == 0;
}

Network Network::within(int shorter_prefix) const {
  Network network = *this;
  network.prefix = shorter_prefix;
  for (int bit = shorter_prefix; bit < (v6 ? 128 : 32); ++bit)
    network.address[bit / 8] &= static_cast<uint8_t>(~(0x80 >> bit % 8));
  return network;
}

std::string Network::text() const {
  char text[INET6_ADDRSTRLEN];
  if (!inet_ntop(v6 ? AF_INET6 : AF_INET, address.data(), text, sizeof(text)))
    return "?";
  return prefix == (v6 ? 128 : 32) ? text : std::string(text) + "/" + std::to_string(prefix);
}

std::optional<Network> parse_address(const std::string &text) {
  Network host;
  host.v6 = text.find(':') != std::string::npos;
  host.prefix = host.v6 ? 128 : 32;
  if (inet_pton(host.v6 ? AF_INET6 : AF_INET, text.c_str(), host.address.data()) != 1)
    return std::nullopt;
  return host;
}

std::optional<Network> literal_address(const std::string &given) {
  std::string host = given;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  // The zone after % names an interface and is no part of the address.
  host.resize(std::min(host.size(), host.find('%')));
  while (!host.empty() && host.back() == '.')
    host.pop_back();
  if (host.find(':') != std::string::npos)
    return parse_address(host);
  if (strcasecmp(host.c_str(), "localhost") == 0 || ends_with_ignoring_case(host, ".localhost"))
    return parse_address("127.0.0.1");
  in_addr v4;
  if (inet_aton(host.c_str(), &v4) == 0)  // accepts octal, hexadecimal and shortened spellings, as resolvers do
    return std::nullopt;
  Network address;
  address.prefix = 32;
  memcpy(address.address.data(), &v4, 4);
  return address;
}

std::vector<Network> parse_networks(const std::string &option, const std::string &value) {
  std::vector<Network> networks;
  for (std::string_view part : split(value, ','))
    networks.push_back(parse_network(option, std::string(part)));
  return networks;
}

}  // namespace outbox
