#include "delivery/network_guard.h"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "delivery/options.h"

using namespace outbox;

TEST(NetworkGuard, RefusesEveryKindOfNonGlobalAddress) {
  NetworkGuard guard({});
  for (const char *address : {"127.0.0.1",
                              "127.255.255.254",
                              "0.0.0.0",
                              "0.1.2.3",
                              "10.0.0.1",
                              "172.16.0.1",
                              "172.31.255.255",
                              "192.168.1.1",
                              "169.254.1.1",
                              "169.254.169.254",
                              "100.64.0.1",
                              "100.127.255.255",
                              "192.0.2.1",
                              "198.51.100.7",
                              "203.0.113.9",
                              "198.18.0.1",
                              "224.0.0.1",
                              "239.1.1.1",
                              "240.0.0.1",
                              "255.255.255.255",
                              "::",
                              "::1",
                              "fc00::1",
                              "fd12:3456::1",
                              "fe80::1",
                              "fec0::1",
                              "ff02::1",
                              "2001:db8::1",
                              "3fff::1",
                              "2001::1",
                              "2002:7f00:1::",
                              "2002:808:808::",
                              "::ffff:127.0.0.1",
                              "::ffff:10.0.0.1",
                              "::127.0.0.1",
                              "64:ff9b::7f00:1",
                              "64:ff9b::a00:1",
                              "64:ff9b:1::1",
                              "::ffff:0:127.0.0.1",
                              "fd00:ec2::254",
                              "4000::1",
                              "100::1",
                              "fe80::1%eth0",
                              "localhost",
                              ""})
    EXPECT_TRUE(guard.check(address).has_value()) << address;
}

TEST(NetworkGuard, LetsGlobalAddressesThrough) {
  NetworkGuard guard({});
  for (const char *address : {"8.8.8.8", "1.1.1.1", "172.15.255.255", "172.32.0.0", "100.63.255.255", "100.128.0.0",
                              "126.255.255.255", "128.0.0.0", "169.253.255.255", "223.255.255.255",
                              "2606:4700:4700::1111", "2a00:1450:4001::1", "::ffff:8.8.8.8", "64:ff9b::808:808"})
    EXPECT_FALSE(guard.check(address).has_value()) << address;
}

TEST(NetworkGuard, SaysWhyAndWhatToAllow) {
  auto refusal = NetworkGuard({}).check("127.0.0.1");
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->address, "127.0.0.1");
  EXPECT_EQ(refusal->reason, "is in a private network");
  EXPECT_EQ(refusal->network, "127.0.0.0/8");
  EXPECT_EQ(NetworkGuard({}).check("169.254.169.254")->network, "169.254.169.254/32");
  EXPECT_EQ(NetworkGuard({}).check("::ffff:10.1.2.3")->reason, "leads to 10.1.2.3, which is in a private network");
}

TEST(NetworkGuard, AllowedNetworksAreExact) {
  NetworkGuard guard(parse_networks("allow_networks", " 127.0.0.0/8 ,10.1.2.0/23,fd00:1::/32, 192.168.7.7"));
  for (const char *address :
       {"127.0.0.1", "10.1.2.0", "10.1.3.255", "fd00:1::9", "192.168.7.7", "::ffff:127.0.0.1", "64:ff9b::7f00:1"})
    EXPECT_FALSE(guard.check(address).has_value()) << address;
  for (const char *address : {"10.1.1.255", "10.1.4.0", "fd00:2::9", "192.168.7.8", "::1", "169.254.169.254"})
    EXPECT_TRUE(guard.check(address).has_value()) << address;
  EXPECT_FALSE(NetworkGuard(parse_networks("allow_networks", "0.0.0.0/0")).check("10.0.0.1"));
  EXPECT_TRUE(NetworkGuard(parse_networks("allow_networks", "0.0.0.0/0")).check("fd00::1"));
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
  try {
    parse_networks("allow_networks", "10.1.0.0/8");
    ADD_FAILURE();
  } catch (const BadInput &error) {
    EXPECT_EQ(error.subject, "allow_networks");
    EXPECT_EQ(error.hint, "Did you mean '10.0.0.0/8'?");
  }
}
