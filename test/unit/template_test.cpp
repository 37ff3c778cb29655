#include "delivery/template.h"

#include <gtest/gtest.h>

#include "delivery/options.h"
#include "door.h"

using outbox::BadInput;
using outbox::Template;

namespace {

std::string rendered(const char *text) {
  door::Event event;
  std::string out = "left over";
  Template::parse("topic", text).render(event.raw(), out);
  return out;
}

TEST(Template, FillsInVariables) {
  EXPECT_EQ(rendered("outbox.event.${aggregate_type}"), "outbox.event.Order");
  EXPECT_EQ(rendered("${aggregate_type}-${event_type}.x"), "Order-order.created.x");
  EXPECT_EQ(rendered("plain"), "plain");
  EXPECT_EQ(rendered("a$b}${event_type}$"), "a$b}order.created$");
  EXPECT_EQ(rendered(""), "");
}

TEST(Template, AnUnknownVariableListsTheKnown) {
  try {
    Template::parse("topic", "outbox.${tenant}");
    FAIL();
  } catch (const BadInput &bad) {
    EXPECT_EQ(bad.kind, OB_BAD_VALUE);
    EXPECT_EQ(bad.subject, "topic");
    EXPECT_STREQ(bad.what(), "unknown variable \"tenant\" in the template of option \"topic\"");
    EXPECT_EQ(bad.hint, "Known variables are ${aggregate_type}, ${event_type}.");
  }
}

TEST(Template, AVariableMustEnd) {
  try {
    Template::parse("topic", "outbox.${event_type");
    FAIL();
  } catch (const BadInput &bad) {
    EXPECT_STREQ(bad.what(), "template of option \"topic\" has a variable that does not end");
    EXPECT_EQ(bad.detail, "There is no \"}\" after \"${event_type\".");
  }
}

}  // namespace
