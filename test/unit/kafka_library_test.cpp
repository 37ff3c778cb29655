/* Which versions of librdkafka are supported. */
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "sinks/kafka/kafka_library.h"

using namespace outbox;

namespace {

TEST(KafkaLibrary, TellsWhatIsTooOld) {
  ob_error advice;
  EXPECT_EQ(check_librdkafka(0x020001ff, "2.0.1", advice), OB_TOO_OLD);
  EXPECT_EQ(check_librdkafka(0x010902ff, "1.9.2", advice), OB_TOO_OLD);
  EXPECT_STREQ(advice.message, "librdkafka 1.9.2 is too old: outbox needs 2.0.2 or later");
  EXPECT_NE(advice.detail[0], '\0');
  EXPECT_NE(advice.hint[0], '\0');
}

TEST(KafkaLibrary, TakesTheOldestAndNewerOnes) {
  ob_error advice;
  EXPECT_EQ(check_librdkafka(0x020002ff, "2.0.2", advice), OB_FIT);
  EXPECT_STREQ(advice.detail, "2.12.0 or later is recommended.");
  EXPECT_EQ(check_librdkafka(0x020c00ff, "2.12.0", advice), OB_FIT);
  EXPECT_STREQ(advice.detail, "");
  EXPECT_STREQ(advice.hint, "");
}

TEST(KafkaLibrary, TellsOfADefect) {
  ob_error advice;
  EXPECT_EQ(check_librdkafka(0x020800ff, "2.8.0", advice), OB_FIT);
  EXPECT_EQ(check_librdkafka(0x020a00ff, "2.10.0", advice), OB_DEFECTIVE);
  EXPECT_STREQ(advice.hint, "Upgrade it to 2.10.1 or later, then end the workers, which have loaded it: "
                            "SELECT pg_terminate_backend(pid) FROM outbox.workers;");
  EXPECT_EQ(check_librdkafka(0x020a01ff, "2.10.1", advice), OB_FIT);
}

/* LIBRDKAFKA: the directory of the version that these tests must use. */
TEST(KafkaLibrary, WhatIsLoadedWasAskedForAndWillDo) {
  if (const char *wanted = getenv("LIBRDKAFKA")) {
    std::ifstream file("/proc/self/maps");
    std::string maps{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NE(maps.find(std::string(wanted) + "/lib/librdkafka.so"), maps.npos);
  }
  ob_client_library loaded{};
  describe_librdkafka(loaded);
  EXPECT_EQ(loaded.fitness, OB_FIT) << loaded.advice.message;
  EXPECT_EQ(std::string(loaded.versions), "librdkafka " + std::string(rd_kafka_version_str()));
}

}  // namespace
