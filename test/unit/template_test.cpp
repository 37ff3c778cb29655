#include "delivery/options/template.h"

#include <gtest/gtest.h>

#include "delivery/delivery.h"
#include "delivery/options/options.h"
#include "bad_input.h"
#include "door.h"

using outbox::BadInput;
using outbox::Template;

namespace {

BadInput refused(const char *text) {
  return outbox::bad_input_of([&] { return Template::parse("topic", text); });
}

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
  BadInput bad = refused("outbox.${tenant}");
  EXPECT_EQ(bad.kind, OB_BAD_VALUE);
  EXPECT_EQ(bad.subject, "topic");
  EXPECT_STREQ(bad.what(), "unknown variable \"tenant\" in the template of option \"topic\"");
  EXPECT_EQ(bad.hint,
            "Known variables are ${aggregate_type}, ${aggregate_id}, ${event_type}, ${partition_key}, "
            "${dedup_key}, ${content_type}, ${id}, ${seq}, ${position}, ${created_at}, ${database}, ${timeline}, "
            "${header.NAME}.");
  bad = refused("${agregate_typ}");
  EXPECT_TRUE(bad.hint.starts_with("Perhaps you meant ${aggregate_type}. Known variables are ")) << bad.hint;
}

TEST(Template, SaysWhatIsMissing) {
  door::Event event;
  std::string out;
  Template parsed = Template::parse("topic", "${event_type}.${header.a}.${seq}");
  EXPECT_FALSE(parsed.render(event.raw(), out));
  EXPECT_EQ(parsed.missing(event.raw()), "${header.a}");
  event.headers = {{"a", ""}};
  EXPECT_EQ(parsed.missing(event.raw()), "${seq}");
  event.has_seq = true;
  EXPECT_TRUE(parsed.render(event.raw(), out));
  EXPECT_EQ(out, "order.created..0");
  EXPECT_EQ(parsed.missing(event.raw()), "");
  EXPECT_EQ(parsed.variables(), "event_type, header.a, seq");
}

TEST(Template, TheTimelineIsThatOfTheServer) {
  door::Event event;
  ob_set_origin("shop", 7);
  EXPECT_EQ(rendered("${database}.${timeline}"), "shop.7");
  ob_set_origin("shop", 0);
  EXPECT_EQ(Template::parse("topic", "${timeline}").missing(event.raw()), "${timeline}") << "unknown";
}

TEST(Template, AVariableMustEnd) {
  BadInput bad = refused("outbox.${event_type");
  EXPECT_STREQ(bad.what(), "template of option \"topic\" has a variable that does not end");
  EXPECT_EQ(bad.detail, "There is no \"}\" after \"${event_type\".");
}

}  // namespace
