#include "delivery/http/network_guard.h"
#include "delivery/net/broker_guard.h"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "delivery/options/options.h"

#include "bad_input.h"

using namespace outbox;

TEST(NetworkGuard, RefusesEveryRegisteredNetworkFromEndToEnd) {
  NetworkGuard guard({});
  /* IANA's special-purpose registries for IPv4 (October 2025) and IPv6, row by row, and multicast. NAT64's well-known
   * prefix and IPv4-mapped addresses, which are in the registries too, are checked by the IPv4 address that they
   * contain. */
  for (const Network &network : parse_networks(
           "", "0.0.0.0/8, 0.0.0.0/32, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12, "
               "192.0.0.0/24, 192.0.0.0/29, 192.0.0.8/32, 192.0.0.9/32, 192.0.0.10/32, 192.0.0.170/32, "
               "192.0.0.171/32, 192.0.2.0/24, 192.31.196.0/24, 192.52.193.0/24, 192.88.99.0/24, 192.168.0.0/16, "
               "192.175.48.0/24, 198.18.0.0/15, 198.51.100.0/24, 203.0.113.0/24, 224.0.0.0/4, 240.0.0.0/4, "
               "255.255.255.255/32, ::1/128, ::/128, 64:ff9b:1::/48, 100::/64, 100:0:0:1::/64, 2001::/23, 2001::/32, "
               "2001:1::1/128, 2001:1::2/128, 2001:1::3/128, 2001:2::/48, 2001:3::/32, 2001:4:112::/48, "
               "2001:10::/28, 2001:20::/28, 2001:30::/28, 2001:db8::/32, 2002::/16, 2620:4f:8000::/48, 3fff::/20, "
               "5f00::/16, fc00::/7, fe80::/10, fec0::/10, ff00::/8, ::/96, ::ffff:0:0:0/96")) {
    Network last = network;
    last.prefix = network.v6 ? 128 : 32;
    Network first = last;
    for (int bit = network.prefix; bit < last.prefix; ++bit)
      last.address[bit / 8] |= static_cast<uint8_t>(0x80 >> bit % 8);
    EXPECT_TRUE(guard.check(first)) << first.text();
    EXPECT_TRUE(guard.check(last)) << last.text();
  }
}

TEST(NetworkGuard, RefusesWhatLeadsToARefusedAddress) {
  NetworkGuard guard({});
  for (const char *address : {"::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1",
                              "::8.8.8.8", "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b::a9fe:a9fe",
                              "64:ff9b:1::808:808", "::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8", "2002:7f00:1::",
                              "2002:808:808::", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "fe80::1%eth0"})
    EXPECT_TRUE(guard.check(address)) << address;
  for (const char *address : {"localhost", "", "127.1", "0x7f000001", "::1::"})
    EXPECT_TRUE(guard.check(address)) << "no address, and never let through: " << address;
}

TEST(NetworkGuard, RefusesTheMetadataOfClouds) {
  for (const char *address : {"169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.0.23", "169.254.42.42",
                              "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254", "fd00:ec2::23",
                              "fd20:ce::254", "fd00:42::42", "fd00:c1::a9fe:a9fe", "fe80::a9fe:a9fe"}) {
    auto refusal = NetworkGuard({}).check(address);
    ASSERT_TRUE(refusal) << address;
    EXPECT_EQ(refusal->reason, "serves the metadata of a cloud machine") << address;
    EXPECT_EQ(refusal->network, address) << "no more than that one";
  }
}

TEST(NetworkGuard, LetsGlobalAddressesThrough) {
  NetworkGuard guard({});
  for (const char *address :
       {"8.8.8.8", "1.1.1.1", "172.15.255.255", "172.32.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
        "128.0.0.0", "169.253.255.255", "223.255.255.255", "168.63.129.15", "168.63.129.17", "2003::1", "2001:200::1",
        "2620:4f:7fff::1", "2606:4700:4700::1111", "2a00:1450:4001::1", "::ffff:8.8.8.8", "64:ff9b::808:808"})
    EXPECT_FALSE(guard.check(address).has_value()) << address;
}

TEST(NetworkGuard, SaysWhyAndWhatToAllow) {
  auto refusal = NetworkGuard({}).check("127.0.0.1");
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->address, "127.0.0.1");
  EXPECT_EQ(refusal->reason, "is the database server itself");
  EXPECT_EQ(refusal->network, "127.0.0.0/8");
  refusal = NetworkGuard({}).check("::ffff:10.1.2.3");
  EXPECT_EQ(refusal->address + " " + refusal->reason + " " + refusal->network,
            "10.1.2.3 is in a private network 10.0.0.0/8");
  refusal = NetworkGuard({}).check("64:ff9b::a01:203");
  EXPECT_EQ(refusal->address + " " + refusal->reason + " " + refusal->network,
            "64:ff9b::a01:203 leads, by NAT64, to one that is in a private network 10.0.0.0/8");
  refusal = NetworkGuard({}).check("4000:1:2:3::4");
  EXPECT_EQ(refusal->reason + " " + refusal->network, "is not a global address 4000::/16");
}

TEST(NetworkGuard, AllowedNetworksAreExact) {
  NetworkGuard guard(parse_networks("allow_networks", " 127.0.0.0/8 ,10.1.2.0/23,fd00:1::/32, 192.168.7.7"));
  for (const char *address :
       {"127.0.0.1", "10.1.2.0", "10.1.3.255", "fd00:1::9", "192.168.7.7", "::ffff:127.0.0.1", "64:ff9b::7f00:1"})
    EXPECT_FALSE(guard.check(address).has_value()) << address;
  for (const char *address : {"10.1.1.255", "10.1.4.0", "fd00:2::9", "192.168.7.8", "::1", "169.254.169.254",
                              "::127.0.0.1", "2002:7f00:1::", "64:ff9b:1::7f00:1"})
    EXPECT_TRUE(guard.check(address).has_value()) << address;
  EXPECT_FALSE(NetworkGuard(parse_networks("allow_networks", "0.0.0.0/0")).check("10.0.0.1"));
  EXPECT_TRUE(NetworkGuard(parse_networks("allow_networks", "0.0.0.0/0")).check("fd00::1"));
  NetworkGuard all_v6(parse_networks("allow_networks", "::/0"));
  EXPECT_FALSE(all_v6.check("fd00::1"));
  EXPECT_TRUE(all_v6.check("::ffff:127.0.0.1")) << "an address of IPv4, whatever it looks like";
}

TEST(NetworkGuard, JudgesSocketAddresses) {
  NetworkGuard guard({});
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  inet_pton(AF_INET, "192.168.0.1", &v4.sin_addr);
  EXPECT_TRUE(guard.check(reinterpret_cast<sockaddr *>(&v4)));
  inet_pton(AF_INET, "9.9.9.9", &v4.sin_addr);
  EXPECT_FALSE(guard.check(reinterpret_cast<sockaddr *>(&v4)));
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  inet_pton(AF_INET6, "::1", &v6.sin6_addr);
  EXPECT_TRUE(guard.check(reinterpret_cast<sockaddr *>(&v6)));
  inet_pton(AF_INET6, "2606:4700::1", &v6.sin6_addr);
  EXPECT_FALSE(guard.check(reinterpret_cast<sockaddr *>(&v6)));
  sockaddr local{};
  local.sa_family = AF_UNIX;
  EXPECT_TRUE(guard.check(&local));
}

TEST(NetworkGuard, RefusesMalformedNetworks) {
  for (const char *value :
       {"", ",", "10.0.0.0/8,", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "10.0.0/8", "fd00::/129", "fd00::/8x",
        "localhost", "10.0.0.0 /8", "10.0.0.0/8;11.0.0.0/8", "10.0.0.0/99999999999"})
    EXPECT_THROW(parse_networks("allow_networks", value), BadInput) << value;
  for (auto [value, hint] :
       {std::pair("10.1.0.0/8", "Did you mean '10.0.0.0/8'?"), std::pair("fd00::1/64", "Did you mean 'fd00::/64'?"),
        std::pair("::ffff:10.0.0.0/104", "Did you mean '10.0.0.0/8'?"),
        std::pair("::ffff:10.1.2.3", "Did you mean '10.1.2.3'?")}) {
    BadInput bad = bad_input_of([text = value] { return parse_networks("allow_networks", text); });
    EXPECT_EQ(bad.subject, "allow_networks") << value;
    EXPECT_EQ(bad.hint, hint);
  }
}

TEST(NetworkGuard, KnowsALiteralAddressInEverySpelling) {
  for (const char *host : {"127.0.0.1", "127.0.0.1.", "127.1", "0x7f.1", "0x7F000001", "2130706433", "0177.0.0.1",
                           "017700000001", "localhost", "LOCALHOST", "localhost.", "a.b.localhost"}) {
    ASSERT_TRUE(literal_address(host)) << host;
    EXPECT_EQ(literal_address(host)->text(), "127.0.0.1") << host;
  }
  EXPECT_EQ(literal_address("[::1]")->text(), "::1");
  EXPECT_EQ(literal_address("[fe80::1%25eth0]")->text(), "fe80::1");
  EXPECT_EQ(literal_address("fe80::1%eth0")->text(), "fe80::1");
  for (const char *host : {"", ".", "example.com", "127.0.0.1.nip.io", "notlocalhost", "1.2.3.4.5", "[", "[]"})
    EXPECT_FALSE(literal_address(host)) << host;
}

/* Brokers are in private networks, and nowhere else that is refused. */
TEST(BrokerGuard, LetsPrivateNetworksThrough) {
  BrokerGuard guard({});
  for (const char *address : {"10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fd12::1", "::ffff:10.1.2.3",
                              "64:ff9b::a01:203", "93.184.216.34", "2606:2800::1"})
    EXPECT_FALSE(guard.check(std::string(address))) << address;
  for (const char *address : {"127.0.0.1", "::1", "169.254.169.254", "169.254.1.1", "fe80::1", "fd00:ec2::254",
                              "100.100.100.200", "0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "168.63.129.16",
                              "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"})
    EXPECT_TRUE(guard.check(std::string(address))) << address;
  EXPECT_FALSE(BrokerGuard(parse_networks("", "127.0.0.0/8")).check(std::string("127.0.0.1")));
}
