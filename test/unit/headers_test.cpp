#include "delivery/options/headers.h"

#include <gtest/gtest.h>

#include "bad_input.h"
#include "delivery/formats/record.h"

using outbox::BadInput;
using outbox::check_header;

namespace {

std::string refusal(std::string_view name, std::string_view value) {
  BadInput bad = outbox::bad_input_of([&] { check_header(name, value); });
  EXPECT_EQ(bad.kind, *bad.what() ? OB_BAD_VALUE : OB_OK);
  return bad.what();
}

TEST(Headers, OrdinaryOnesPass) {
  EXPECT_EQ(refusal("traceparent", "00-abc-def-01"), "");
  EXPECT_EQ(refusal("name", ""), "");
  EXPECT_EQ(refusal("name", "tab\tand ünïcode"), "");
}

TEST(Headers, LineBreaksAndNulDoNot) {
  for (std::string bad :
       {std::string("a\rb"), std::string("a\nb"), std::string("a\0b", 3), std::string("\r\nX: y")}) {
    EXPECT_EQ(refusal("name", bad), "value of header \"name\" contains a line break or NUL");
    EXPECT_NE(refusal(bad, "value").find("contains a line break or NUL"), std::string::npos);
    EXPECT_EQ(refusal(bad, "value").find('\n'), std::string::npos) << "a message must stay one line";
  }
  EXPECT_EQ(refusal("", "value"), "header name must not be empty");
}

TEST(Headers, AColumnThatBecomesAHeaderForgesNoOther) {
  outbox::Record record;
  const std::string forged = "x\r\nNats-Rollup: all";
  BadInput bad = outbox::bad_input_of([&] { record.add_header("order-id", outbox::as_text(forged)); });
  EXPECT_STREQ(bad.what(), "value of header \"order-id\" contains a line break or NUL");
  EXPECT_TRUE(record.headers.empty());
  record.add_header("order-id", outbox::as_text(forged), true); /* bytes are no text */
  record.add_header("empty", {nullptr, 0});
  EXPECT_EQ(record.headers.size(), 2u);
}

}  // namespace
