#include "delivery/network_guard.h"

#include <algorithm>
#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "delivery/options.h"
#include "delivery/text.h"

namespace outbox {
namespace {

Network make_network(const char *text) {
  std::string value(text);
  size_t slash = value.find('/');
  Network network;
  network.prefix = std::stoi(value.substr(slash + 1));
  value.resize(slash);
  network.v6 = value.find(':') != std::string::npos;
  inet_pton(network.v6 ? AF_INET6 : AF_INET, value.c_str(), network.address.data());
  return network;
}

struct Range {
  Network network;
  const char *text;
  const char *reason;
};

Range range(const char *text, const char *reason) {
  return {make_network(text), text, reason};
}

constexpr const char *in_private = "is in a private network";
constexpr const char *metadata = "serves the metadata of a cloud machine";

/* The IANA special-purpose registries; the first match names the reason, so the narrow ones come first. Leaked on
 * purpose: no destructor runs at exit. */
const std::vector<Range> &refused_v4() {
  static const auto *ranges = new std::vector<Range>{
      range("169.254.169.254/32", metadata),
      range("169.254.170.2/32", metadata),
      range("100.100.100.200/32", metadata),
      range("192.0.0.192/32", metadata),
      range("0.0.0.0/8", "is unspecified"),
      range("10.0.0.0/8", in_private),
      range("100.64.0.0/10", "is in a carrier's private network"),
      range("127.0.0.0/8", in_private),
      range("169.254.0.0/16", "is a link-local address"),
      range("172.16.0.0/12", in_private),
      range("192.0.0.0/24", "is reserved"),
      range("192.0.2.0/24", "is reserved for documentation"),
      range("192.88.99.0/24", "is reserved"),
      range("192.168.0.0/16", in_private),
      range("198.18.0.0/15", "is reserved for benchmarks"),
      range("198.51.100.0/24", "is reserved for documentation"),
      range("203.0.113.0/24", "is reserved for documentation"),
      range("224.0.0.0/4", "is a multicast address"),
      range("240.0.0.0/4", "is reserved"),
  };
  return *ranges;
}

const std::vector<Range> &refused_v6() {
  static const auto *ranges = new std::vector<Range>{
      range("fd00:ec2::254/128", metadata),
      range("fd20:ce::254/128", metadata),
      range("::/128", "is unspecified"),
      range("::1/128", in_private),
      range("fc00::/7", in_private),
      range("fe80::/10", "is a link-local address"),
      range("fec0::/10", in_private),
      range("ff00::/8", "is a multicast address"),
      range("64:ff9b:1::/48", in_private),
      range("2001:db8::/32", "is reserved for documentation"),
      range("3fff::/20", "is reserved for documentation"),
      range("2001::/23", "is reserved"),       // Teredo, ORCHID and other special uses
      range("2002::/16", "is a 6to4 tunnel"),  // hides a v4 address, and nobody serves webhooks there
  };
  return *ranges;
}

const Network &global_unicast_v6() {
  static const Network network = make_network("2000::/3");
  return network;
}

/* The v4 address inside a v6 one that leads to it: v4-mapped, v4-compatible, NAT64. */
std::optional<Network> embedded_v4(const Network &host) {
  static const Network mapped = make_network("::ffff:0:0/96"), compatible = make_network("::/96"),
                       translated = make_network("::ffff:0:0:0/96"), nat64 = make_network("64:ff9b::/96");
  if (!mapped.contains(host) && !compatible.contains(host) && !translated.contains(host) && !nat64.contains(host))
    return std::nullopt;
  Network v4;
  v4.prefix = 32;
  std::copy(host.address.begin() + 12, host.address.end(), v4.address.begin());
  if (compatible.contains(host) && v4.address[0] == 0)
    return std::nullopt;  // :: and ::1 are addresses of their own
  return v4;
}

std::string to_text(const Network &host) {
  char text[INET6_ADDRSTRLEN];
  return inet_ntop(host.v6 ? AF_INET6 : AF_INET, host.address.data(), text, sizeof(text)) ? text : "?";
}

std::optional<Network> parse_address(const std::string &text) {
  Network host;
  host.v6 = text.find(':') != std::string::npos;
  host.prefix = host.v6 ? 128 : 32;
  if (inet_pton(host.v6 ? AF_INET6 : AF_INET, text.c_str(), host.address.data()) != 1)
    return std::nullopt;
  return host;
}

/* Zeroes the bits beyond the prefix. */
Network masked(Network network) {
  for (int bit = network.prefix; bit < (network.v6 ? 128 : 32); ++bit)
    network.address[bit / 8] &= static_cast<uint8_t>(~(0x80 >> bit % 8));
  return network;
}

Network parse_network(const std::string &option, const std::string &text) {
  auto refuse = [&](const std::string &detail, const std::string &hint) {
    return BadInput(OB_BAD_VALUE, option, "invalid value for option \"" + option + "\"", detail, hint);
  };
  size_t slash = text.find('/');
  auto network = parse_address(text.substr(0, slash));
  std::string digits = slash == std::string::npos ? std::string() : text.substr(slash + 1);
  bool good = network.has_value();
  if (good && slash != std::string::npos) {
    good = !digits.empty() && digits.size() <= 3 && digits.find_first_not_of("0123456789") == std::string::npos &&
           std::stoi(digits) <= network->prefix;
    if (good)
      network->prefix = std::stoi(digits);
  }
  if (!good)
    throw refuse("\"" + text + "\" is not a network.",
                 "Give networks in CIDR notation, separated by commas, such as '10.0.0.0/8, fd00::/8'.");
  Network exact = masked(*network);
  if (exact.address != network->address)
    throw refuse("\"" + text + "\" has bits set to the right of its prefix.",
                 "Did you mean '" + to_text(exact) + "/" + std::to_string(exact.prefix) + "'?");
  return exact;
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

std::vector<Network> parse_networks(const std::string &option, const std::string &value) {
  std::vector<Network> networks;
  for (std::string_view part : split(value, ','))
    networks.push_back(parse_network(option, std::string(part)));
  return networks;
}

bool NetworkGuard::allows(const Network &host) const {
  return std::any_of(allowed_.begin(), allowed_.end(),
                     [&](const Network &network) { return network.contains(host); });
}

std::optional<Refusal> NetworkGuard::check(const Network &host) const {
  if (allows(host))
    return std::nullopt;
  if (host.v6) {
    if (auto v4 = embedded_v4(host)) {
      auto refusal = check(*v4);
      if (refusal)
        *refusal = {to_text(host), "leads to " + refusal->address + ", which " + refusal->reason, refusal->network};
      return refusal;
    }
  }
  for (const Range &range : host.v6 ? refused_v6() : refused_v4())
    if (range.network.contains(host))
      return Refusal{to_text(host), range.reason, range.text};
  if (host.v6 && !global_unicast_v6().contains(host))
    return Refusal{to_text(host), "is not a global address", to_text(host) + "/128"};
  return std::nullopt;
}

std::optional<Refusal> NetworkGuard::check(const sockaddr *address) const {
  Network host;
  if (address->sa_family == AF_INET) {
    host.prefix = 32;
    memcpy(host.address.data(), &reinterpret_cast<const sockaddr_in *>(address)->sin_addr, 4);
  } else if (address->sa_family == AF_INET6) {
    host.v6 = true;
    host.prefix = 128;
    memcpy(host.address.data(), &reinterpret_cast<const sockaddr_in6 *>(address)->sin6_addr, 16);
  } else {
    return Refusal{"?", "is no internet address", "?"};
  }
  return check(host);
}

std::optional<Refusal> NetworkGuard::check(const std::string &address) const {
  auto host = parse_address(address.substr(0, address.find('%')));
  return host ? check(*host) : Refusal{address, "is no internet address", "?"};
}

}  // namespace outbox
