/*
 * network_guard.cpp: checks the address when libcurl opens a socket, and again before each request, because a
 * reused connection may have been opened for a sink with other permissions. A refused address opens the sink's
 * circuit and makes no dead letters: when a resolver returned 0.0.0.0 for five seconds, the 9,500 events enqueued
 * in that time waited without spending an attempt.
 */
#include "delivery/http/network_guard.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include <netinet/in.h>
#include <sys/socket.h>

#include "delivery/kind.h"

namespace outbox {
namespace {

Network make_network(const char *text) {
  return parse_networks("", text).front();
}

struct Range {
  Network network;
  const char *reason;
  bool is_private;
};

enum Purpose { SPECIAL, PRIVATE };

struct Row {
  const char *network, *reason;
  Purpose purpose = SPECIAL;
};

constexpr const char *in_private = "is in a private network";
constexpr const char *loopback = "is the database server itself";
constexpr const char *link_local = "is a link-local address";
constexpr const char *metadata = "serves the metadata of a cloud machine";
constexpr const char *documentation = "is reserved for documentation";
constexpr const char *tunnel = "leads into a tunnel";
constexpr const char *reserved = "is reserved";

std::vector<Range> ranges(std::initializer_list<Row> table) {
  std::vector<Range> made;
  for (const Row &row : table)
    made.push_back({make_network(row.network), row.reason, row.purpose == PRIVATE});
  return made;
}

/* IANA's special-purpose registries, including entries that count as globally reachable but serve no webhooks, and
 * the metadata addresses of cloud providers. The first match gives the reason, so narrow networks come first. Never
 * destroyed, so no destructor runs at exit. */
const std::vector<Range> &refused_v4() {
  static const auto *const table = new std::vector<Range>(ranges({
      {"169.254.169.254/32", metadata},
      {"169.254.170.2/32", metadata},   // AWS ECS containers
      {"169.254.170.23/32", metadata},  // AWS EKS pods
      {"169.254.0.23/32", metadata},
      {"169.254.42.42/32", metadata},
      {"100.100.100.200/32", metadata},
      {"192.0.0.192/32", metadata},
      {"168.63.129.16/32", metadata},  // Azure WireServer: a public address that the machine's host answers
      {"0.0.0.0/8", "is unspecified"},
      {"10.0.0.0/8", in_private, PRIVATE},
      {"100.64.0.0/10", "is in a carrier's private network", PRIVATE},
      {"127.0.0.0/8", loopback},
      {"169.254.0.0/16", link_local},
      {"172.16.0.0/12", in_private, PRIVATE},
      {"192.0.0.0/24", reserved},
      {"192.0.2.0/24", documentation},
      {"192.31.196.0/24", reserved},
      {"192.52.193.0/24", reserved},
      {"192.88.99.0/24", tunnel},
      {"192.168.0.0/16", in_private, PRIVATE},
      {"192.175.48.0/24", reserved},
      {"198.18.0.0/15", "is reserved for benchmarks"},
      {"198.51.100.0/24", documentation},
      {"203.0.113.0/24", documentation},
      {"224.0.0.0/4", "is a multicast address"},
      {"255.255.255.255/32", "is the broadcast address"},
      {"240.0.0.0/4", reserved},
  }));
  return *table;
}

const std::vector<Range> &refused_v6() {
  static const auto *const table = new std::vector<Range>(ranges({
      {"fd00:ec2::254/128", metadata},
      {"fd00:ec2::23/128", metadata},
      {"fd20:ce::254/128", metadata},
      {"fd00:42::42/128", metadata},
      {"fd00:c1::a9fe:a9fe/128", metadata},
      {"fe80::a9fe:a9fe/128", metadata},
      {"::/128", "is unspecified"},
      {"::1/128", loopback},
      {"::/96", reserved},            // IPv4-compatible
      {"::ffff:0:0:0/96", reserved},  // IPv4-translated
      {"fc00::/7", in_private, PRIVATE},
      {"fe80::/10", link_local},
      {"fec0::/10", in_private, PRIVATE},
      {"ff00::/8", "is a multicast address"},
      {"64:ff9b:1::/48", "leads, by NAT64, into a private network"},
      {"2001:db8::/32", documentation},
      {"3fff::/20", documentation},
      {"2001::/32", tunnel},  // Teredo; like 6to4 it contains an IPv4 address
      {"2002::/16", tunnel},
      {"2001::/23", reserved},
      {"2620:4f:8000::/48", reserved},
  }));
  return *table;
}

Network v4_at_end_of(const Network &host) {
  Network v4;
  v4.prefix = 32;
  std::copy(host.address.begin() + 12, host.address.end(), v4.address.begin());
  return v4;
}

struct ForAll {
  std::mutex mutex;
  std::vector<Network> networks;
};

ForAll &for_all() {
  static auto &setting = *new ForAll;
  return setting;
}

}  // namespace

std::vector<Network> networks_for_all() {
  std::lock_guard lock(for_all().mutex);
  return for_all().networks;
}

bool NetworkGuard::allows(const Network &host) const {
  return std::any_of(allowed_.begin(), allowed_.end(),
                     [&](const Network &network) { return network.contains(host); });
}

std::optional<Refusal> NetworkGuard::check(const Network &host) const {
  static const Network mapped = parse_address("::ffff:0:0")->within(96), nat64 = make_network("64:ff9b::/96"),
                       global_v6 = make_network("2000::/3");
  if (mapped.contains(host))
    return check(v4_at_end_of(host));  // the kernel connects to the IPv4 address
  if (allows(host))
    return std::nullopt;
  if (nat64.contains(host)) {
    auto refusal = check(v4_at_end_of(host));
    if (refusal)
      *refusal = {host.text(), "leads, by NAT64, to one that " + refusal->reason, refusal->network,
                  refusal->is_private};
    return refusal;
  }
  for (const Range &range : host.v6 ? refused_v6() : refused_v4())
    if (range.network.contains(host))
      return Refusal{host.text(), range.reason, range.network.text(), range.is_private};
  if (host.v6 && !global_v6.contains(host))
    return Refusal{host.text(), "is not a global address", host.within(16).text(), false};
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
    return Refusal{"?", "is no internet address", "?", false};
  }
  return check(host);
}

std::optional<Refusal> NetworkGuard::check(const std::string &address) const {
  auto host = parse_address(address.substr(0, address.find('%')));
  return host ? check(*host) : Refusal{address, "is no internet address", "?", false};
}

void set_networks(const char *list) {
  std::vector<Network> networks;
  if (list && list[0] != '\0')
    networks = parse_networks("outbox.allow_networks", list);
  std::lock_guard lock(for_all().mutex);
  for_all().networks = std::move(networks);
}

}  // namespace outbox
