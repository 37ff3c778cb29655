#include "delivery/formats/debezium.h"

#include <gtest/gtest.h>

#include "delivery/uuid.h"
#include "door.h"

using namespace outbox;

namespace {

std::string str(ob_text text) {
  return {text.data, text.len};
}

TEST(Debezium, KeyIdHeaderAndPayloadAsTheyAre) {
  door::Event event;
  event.headers = {{"traceparent", "00-1"}, {"id", "mine"}};
  Record record;
  debezium_record(event.raw(), record);
  EXPECT_EQ(str(record.key), "7");
  EXPECT_EQ(str(record.value), R"({"total": 12.5})");
  ASSERT_EQ(record.headers.size(), 3u);
  EXPECT_EQ(str(record.headers[0].name), "id");
  EXPECT_EQ(str(record.headers[0].value), door::event_id);
  EXPECT_EQ(str(record.headers[1].name), "traceparent");
  EXPECT_EQ(str(record.headers[1].value), "00-1");
  EXPECT_EQ(str(record.headers[2].value), "mine");
}

TEST(Debezium, NullsStayNulls) {
  door::Event event;
  event.has_key = event.has_payload = false;
  Record record;
  debezium_record(event.raw(), record);
  EXPECT_EQ(record.key.data, nullptr);
  EXPECT_EQ(record.value.data, nullptr);
  ASSERT_EQ(record.headers.size(), 1u);
}

TEST(Uuid, LowerCaseWithHyphens) {
  door::Event event;
  EXPECT_EQ(uuid_text(event.raw().id), door::event_id);
}

}  // namespace
