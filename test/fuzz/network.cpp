/* network.cpp: networks printed are read as they were, and the guard lets no private address through by another
 * writing of it. */
#include "test/fuzz/fuzz.h"

#include <algorithm>
#include <cstring>

#include <arpa/inet.h>

#include "delivery/delivery.h"
#include "delivery/http/network.h"
#include "delivery/http/network_guard.h"

using namespace outbox;

namespace {

bool equal(const Network &one, const Network &other) {
  return one.v6 == other.v6 && one.prefix == other.prefix && one.address == other.address;
}

/* The v4 address in the last bytes. */
Network v4_at_end_of(const Network &v6) {
  Network host;
  host.prefix = 32;
  std::copy_n(v6.address.begin() + 12, 4, host.address.begin());
  return host;
}

/* The v4 address as v6 maps it. */
Network mapped(const Network &v4) {
  Network host;
  host.v6 = true;
  host.prefix = 128;
  host.address[10] = host.address[11] = 0xFF;
  std::copy_n(v4.address.begin(), 4, host.address.begin() + 12);
  return host;
}

}  // namespace

void fuzz::one_input(std::string_view data) {
  Input input(data);
  std::string text = without_nul(input.line()), host = without_nul(input.line());
  std::vector<Network> networks;
  bool good = accepted([&] { networks = parse_networks("allow_networks", text); });
  ob_error error{};
  HOLDS(text.empty() || ob_check_networks(text.c_str(), &error) == good);
  std::string printed;
  for (const Network &network : networks) {
    HOLDS(network.prefix >= 0 && network.prefix <= (network.v6 ? 128 : 32));
    HOLDS(equal(network.within(network.prefix), network) && network.contains(network));
    printed += (printed.empty() ? "" : ", ") + network.text();
  }
  if (good) {
    std::vector<Network> again = parse_networks("allow_networks", printed);
    HOLDS(std::equal(again.begin(), again.end(), networks.begin(), networks.end(), equal));
  }

  NetworkGuard nothing_allowed({}), guard(networks);
  auto literal = literal_address(host);
  if (auto address = parse_address(host)) {
    HOLDS(literal && equal(*literal, *address));
    HOLDS(parse_address(address->text()) && equal(*parse_address(address->text()), *address));
    HOLDS(nothing_allowed.check(host).has_value() == nothing_allowed.check(*address).has_value());
  }
  if (!literal)
    return;
  HOLDS(literal->prefix == (literal->v6 ? 128 : 32));
  auto refusal = nothing_allowed.check(*literal), now = guard.check(*literal);
  HOLDS(!now || refusal); /* what is allowed besides only lets more through */
  if (refusal)
    HOLDS(!refusal->reason.empty() && !refusal->address.empty() && !parse_networks("", refusal->network).empty());
  /* A mapped address is judged by its IPv4 address: a network of IPv6 that contains it lets nothing through. */
  bool is_mapped = literal->v6 && equal(mapped(v4_at_end_of(*literal)), *literal);
  Network judged = is_mapped ? v4_at_end_of(*literal) : *literal;
  HOLDS(guard.check(judged).has_value() == now.has_value());
  for (const Network &network : networks)
    HOLDS(!network.contains(judged) || !now);
  if (literal->v6)
    return;
  HOLDS(nothing_allowed.check(mapped(*literal)).has_value() == refusal.has_value());
  const auto *byte = literal->address.data();
  bool is_private = byte[0] == 0 || byte[0] == 10 || byte[0] == 127 || (byte[0] == 169 && byte[1] == 254) ||
                    (byte[0] == 172 && (byte[1] & 0xF0) == 16) || (byte[0] == 192 && byte[1] == 168) ||
                    (byte[0] == 100 && (byte[1] & 0xC0) == 64) || byte[0] >= 224;
  HOLDS(!is_private || refusal);
  sockaddr_in socket{};
  socket.sin_family = AF_INET;
  memcpy(&socket.sin_addr, byte, 4);
  HOLDS(nothing_allowed.check(reinterpret_cast<const sockaddr *>(&socket)).has_value() == refusal.has_value());
}
