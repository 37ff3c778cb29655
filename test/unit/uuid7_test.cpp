#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string>

#include "server/base/uuid7.h"

namespace {

using Uuid = std::array<uint8_t, 16>;

std::string text(const Uuid &uuid) {
  std::string out;
  for (size_t i = 0; i < uuid.size(); i++) {
    if (i == 4 || i == 6 || i == 8 || i == 10)
      out += '-';
    char hex[3];
    snprintf(hex, sizeof hex, "%02X", uuid[i]);
    out += hex;
  }
  return out;
}

Uuid make(Uuid7Clock &clock, uint64_t now_ns, const std::array<uint8_t, 8> &random = {}) {
  Uuid uuid{};
  uuid7_make(uuid.data(), &clock, now_ns, random.data());
  return uuid;
}

TEST(Uuid7, LaysOutTheVectorOfRfc9562) {
  const uint8_t random[8] = {0x18, 0xC4, 0xDC, 0x0C, 0x0C, 0x07, 0x39, 0x8F};
  Uuid uuid{};
  uuid7_layout(uuid.data(), 1645557742000, 0xCC3, random);
  EXPECT_EQ(text(uuid), "017F22E2-79B0-7CC3-98C4-DC0C0C07398F");
}

TEST(Uuid7, CarriesTheFractionOfTheMillisecond) {
  Uuid7Clock clock{};
  EXPECT_EQ(text(make(clock, 1645557742000'000000)).substr(0, 18), "017F22E2-79B0-7000");
  EXPECT_EQ(text(make(clock, 1645557742000'500000)).substr(0, 18), "017F22E2-79B0-7800");
  EXPECT_EQ(text(make(clock, 1645557742000'999999)).substr(0, 18), "017F22E2-79B0-7FFF");
}

TEST(Uuid7, VersionAndVariantStandWhateverTheRandomBits) {
  Uuid7Clock clock{};
  for (uint8_t byte : {0x00, 0x55, 0xAA, 0xFF}) {
    std::array<uint8_t, 8> random;
    random.fill(byte);
    Uuid uuid = make(clock, 1700000000'000000000, random);
    EXPECT_EQ(uuid[6] >> 4, 7);
    EXPECT_EQ(uuid[8] >> 6, 2);
    EXPECT_EQ(uuid[15], byte);
  }
}

TEST(Uuid7, NeverGoesBackwardsOrRepeatsWhateverTheClockDoes) {
  Uuid7Clock clock{};
  const uint64_t start = 1700000000'000000000;
  Uuid last = make(clock, start);
  /* A clock that stands still, goes back by an hour, advances slowly, and jumps ahead. */
  const int64_t jumps[] = {0, 0, -3600'000000000, 1, 100, 244, 245, 999999, 1000000, -1, 5'000000000};
  uint64_t now = start;
  for (int round = 0; round < 1000; round++)
    for (int64_t jump : jumps) {
      now += jump;
      Uuid uuid = make(clock, now);
      ASSERT_LT(last, uuid);
      last = uuid;
    }
}

}  // namespace
