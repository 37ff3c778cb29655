/* Option values and the checks that all kinds share, through the delivery API, with the memory kind. */
#include "delivery/options/options.h"

#include <gtest/gtest.h>

#include <set>

#include "bad_input.h"
#include "probe_door.h"

using namespace std::chrono_literals;
using outbox::BadInput;

namespace {

std::string detail_of(const std::function<void()> &parse) {
  BadInput bad = outbox::bad_input_of(parse);
  EXPECT_EQ(bad.kind, OB_BAD_VALUE);
  EXPECT_EQ(bad.subject, "option");
  return bad.detail;
}

TEST(Options, Booleans) {
  for (const char *yes : {"true", "on", "yes", "1", "TRUE", " On "})
    EXPECT_TRUE(outbox::parse_bool("option", yes));
  for (const char *no : {"false", "off", "no", "0", "False"})
    EXPECT_FALSE(outbox::parse_bool("option", no));
  for (const char *bad : {"", "maybe", "2", "tru"})
    EXPECT_EQ(detail_of([&] { outbox::parse_bool("option", bad); }), "Expected \"true\" or \"false\".");
}

TEST(Options, Integers) {
  EXPECT_EQ(outbox::parse_int("option", "5", 1, 10), 5);
  EXPECT_EQ(outbox::parse_int("option", " 10 ", 1, 10), 10);
  EXPECT_EQ(outbox::parse_int("option", "-3", -5, 10), -3);
  for (const char *bad : {"", "0", "11", "5x", "x", "1.5", "99999999999999999999", "--1"})
    EXPECT_EQ(detail_of([&] { outbox::parse_int("option", bad, 1, 10); }), "Expected a whole number from 1 to 10.");
}

TEST(Options, Durations) {
  auto parse = [](const char *text) { return outbox::parse_duration("option", text, 0ms, 24h * 365); };
  EXPECT_EQ(parse("500ms"), 500ms);
  EXPECT_EQ(parse("15s"), 15s);
  EXPECT_EQ(parse("5min"), 5min);
  EXPECT_EQ(parse("5m"), 5min);
  EXPECT_EQ(parse("2h"), 2h);
  EXPECT_EQ(parse("1d"), 24h);
  EXPECT_EQ(parse("0"), 0ms);
  EXPECT_EQ(parse("0s"), 0ms);
  EXPECT_EQ(parse(" 3 s "), 3s);
  for (const char *bad : {"", "5", "s", "5 parsecs", "-5s", "-0", "-0s", "1.5s", "366d", "9223372036854775807d",
                          "99999999999999999999s"})
    EXPECT_EQ(detail_of([&] { parse(bad); }),
              "Expected a duration from 0 to 365d with a unit: ms, s, min (or m), h, d.")
        << bad;
}

TEST(Options, Sizes) {
  auto parse = [](const char *text) { return outbox::parse_size("option", text, 1024, 256 << 20); };
  EXPECT_EQ(parse("1024"), 1024u);
  EXPECT_EQ(parse("1kB"), 1024u);
  EXPECT_EQ(parse("2000 B"), 2000u);
  EXPECT_EQ(parse(" 16 MB "), 16u << 20);
  EXPECT_EQ(parse("256MB"), 256u << 20);
  for (const char *bad :
       {"", "1023", "MB", "1.5MB", "-1MB", "1GB", "1mb", "257MB", "18446744073709551615MB", "1 M B"})
    EXPECT_EQ(detail_of([&] { parse(bad); }),
              "Expected a size from 1kB to 256MB: a whole number of bytes, or one with a unit: kB, MB.")
        << bad;
}

TEST(Options, EveryMistakeHasItsOwnError) {
  auto refused = [](ob_scope scope, ob_error_kind kind, const char *message,
                    const std::vector<door::Refusal> &refusals, const door::OptionList &besides = {}) {
    door::expect_refused("memory", scope, besides, kind, message, refusals);
  };
  for (ob_scope scope : {OB_SERVER, OB_USER_MAPPING})
    refused(scope, OB_UNKNOWN_OPTION, "invalid option \"$name\"", {{{"colour", "red"}}});
  refused(OB_SERVER, OB_WRONG_PLACE, "option \"$name\" is a secret and cannot be an option of the server",
          {{{"token", "hush"},
            "Every role can read the options of a server.",
            "Use CREATE USER MAPPING FOR PUBLIC SERVER ... OPTIONS (token '...')."}});
  const char *no_secret = "A user mapping holds names and secrets only.",
             *to_server = "Use ALTER SERVER ... OPTIONS ($name '...').";
  refused(OB_USER_MAPPING, OB_WRONG_PLACE, "option \"$name\" belongs to the server, not to its user mapping",
          {{{"capacity", "5"}, no_secret, to_server}, {{"events", "a"}, no_secret, to_server}});
  refused(OB_SERVER, OB_FORBIDDEN, "only a superuser may set option \"$name\"", {{{"path", "/etc"}}});
  refused(OB_SERVER, OB_BAD_VALUE, "invalid value for option \"$name\": \"$value\"",
          {{{"capacity", "many"}, "Expected a whole number from 1 to 1000."},
           {{"ordered", "maybe"}, "Expected \"true\" or \"false\"."},
           {{"on_dead_letter", "Block"}, "Expected \"continue\" or \"block\"."},
           {{"max_attempts", "0"}, "Expected a whole number from 1 to 10000."},
           {{"retention", "7"}, "Expected a duration from 0 to 3650d with a unit: ms, s, min (or m), h, d."},
           {{"retry", "often"}, nullptr, nullptr},
           {{"events", "order.*; customer.*"},
            "Patterns are separated by commas, not by semicolons.",
            "Example: 'order.*, customer.created'."},
           {{"events", "order.*,,x"},
            "Expected a comma-separated list of patterns, and one of them is empty.",
            "Example: 'order.*, customer.created'. The default '*' takes everything."},
           {{"aggregates", ""}, nullptr, nullptr}});
  refused(OB_SERVER, OB_BAD_VALUE, "option \"on_dead_letter\" cannot be \"block\" in an unordered sink",
          {{{"on_dead_letter", "block"},
            "Without order no event waits for another.",
            "Leave out on_dead_letter, or ordered 'false'."}},
          {{"ordered", "off"}});
}

TEST(Options, GoodOnesPassAndClearTheError) {
  door::OptionList server = {{"capacity", "5"}, {"events", "order.*, x"}, {"retry", "5s*3"}, {"path", "/etc"}};
  door::OptionList mapping = {{"token", "hush"}};
  ob_error error;
  error.kind = OB_INTERNAL;
  EXPECT_TRUE(border::check_options("memory", OB_SERVER, server, true, &error)) << error.message;
  EXPECT_EQ(error.kind, OB_OK);
  EXPECT_TRUE(border::check_options("memory", OB_USER_MAPPING, mapping, false, &error)) << error.message;
  EXPECT_FALSE(border::check_options("pigeon", OB_SERVER, {}, true, &error));
  EXPECT_STREQ(error.message, "unknown kind of sink \"pigeon\"");
}

/* What the catalog holds need not have passed CREATE USER MAPPING: a superuser may have changed it, or an older
 * version accepted it. */
TEST(Options, AMappingThatDdlRefusesIsRefusedByAllWhoReadIt) {
  struct Bad {
    const char *kind;
    door::OptionList server, mapping;
    const char *subject;
  };
  const door::OptionList endpoint = {{"url", "https://example.com/"}},
                         broker = {{"bootstrap_servers", "localhost:1"}};
  const Bad bad[] = {
      {"webhook", endpoint, {{"proxy_password", "hunter22"}}, "proxy_user"},
      {"webhook", endpoint, {{"password", "hunter22"}}, "user"},
      {"webhook", endpoint, {{"user", "me"}, {"token", "t0ken"}}, "token"},
      {"webhook", endpoint, {{"timeout", "5s"}}, "timeout"},
      {"kafka", broker, {{"linger_ms", "5"}}, "linger_ms"},
      {"kafka", broker, {{"sasl_password", "x"}, {"bootstrap_servers", "localhost:1"}}, "bootstrap_servers"},
      {"memory", {}, {{"capacity", "5"}}, "capacity"},
  };
  door::Engine engine;
  for (const Bad &each : bad) {
    ob_error ddl, checker, sink;
    EXPECT_FALSE(border::check_options(each.kind, OB_USER_MAPPING, each.mapping, true, &ddl));
    EXPECT_STREQ(ddl.subject, each.subject);
    EXPECT_EQ(border::checker_open(each.kind, each.server, &each.mapping, &checker), nullptr) << each.subject;
    EXPECT_EQ(engine.open(each.kind, each.server, each.mapping), nullptr) << each.subject;
    sink = engine.error;
    EXPECT_STREQ(checker.message, ddl.message);
    EXPECT_STREQ(sink.message, ddl.message);
    door::Probe probe(engine, each.kind, each.server, each.mapping);
    ASSERT_TRUE(probe.end());
    EXPECT_EQ(std::string(probe.step("options").message).find(ddl.message), 0u) << probe.text();
  }
}

TEST(Options, CommonOnesAreParsedWithTheirDefaults) {
  ob_common common;
  ob_error error;
  ASSERT_TRUE(border::common_options("memory", {}, &common, &error));
  EXPECT_TRUE(common.ordered);
  EXPECT_FALSE(common.block_on_dead_letter);
  EXPECT_EQ(common.max_attempts, 0);
  EXPECT_EQ(common.retention_ms, -1);
  EXPECT_EQ(common.max_payload, OB_DEFAULT_MAX_PAYLOAD);
  EXPECT_EQ(common.retry, nullptr);
  EXPECT_EQ(common.default_max_attempts, 3);
  EXPECT_STREQ(common.default_retry, "1s..2s");

  door::OptionList options = {{"events", "a.*"},      {"aggregates", "B"}, {"ordered", "off"}, {"retry", "5s*3"},
                              {"max_attempts", "12"}, {"retention", "2d"}, {"capacity", "7"}};
  ASSERT_TRUE(border::common_options("memory", options, &common, &error)) << error.message;
  EXPECT_FALSE(common.ordered);
  EXPECT_EQ(common.max_attempts, 12);
  EXPECT_EQ(common.retention_ms, 2 * 86'400'000);
  EXPECT_EQ(common.retry, options[3].value);

  door::OptionList hold = {{"on_dead_letter", "block"}}, go_on = {{"on_dead_letter", "continue"}, {"ordered", "off"}};
  ASSERT_TRUE(border::common_options("memory", hold, &common, &error)) << error.message;
  EXPECT_TRUE(common.block_on_dead_letter);
  ASSERT_TRUE(border::common_options("memory", go_on, &common, &error)) << error.message;
  EXPECT_FALSE(common.block_on_dead_letter);

  /* The largest payload is not smaller than the largest message, unless the option says so. */
  auto max_payload = [&](door::OptionList given) {
    return border::common_options("kafka", given, &common, &error) ? common.max_payload : 0;
  };
  EXPECT_EQ(max_payload({{"message_max_bytes", "1000"}}), OB_DEFAULT_MAX_PAYLOAD);
  EXPECT_EQ(max_payload({{"message_max_bytes", "20000000"}}), 20'000'000u);
  EXPECT_EQ(max_payload({{"message_max_bytes", "1000000000"}}), OB_LARGEST_PAYLOAD);
  EXPECT_EQ(max_payload({{"message_max_bytes", "20000000"}, {"max_payload", "1MB"}}), 1u << 20);

  /* An HTTP request is waited for until its timeout is over. */
  auto longest_answer_ms = [&](const char *kind, door::OptionList given) {
    return border::common_options(kind, given, &common, &error) ? common.longest_answer_ms : 0;
  };
  EXPECT_EQ(longest_answer_ms("kafka", {}), 35'000);
  EXPECT_EQ(longest_answer_ms("webhook", {}), 75'000);
  EXPECT_EQ(longest_answer_ms("webhook", {{"timeout", "5min"}}), 360'000);

  door::OptionList bad = {{"max_attempts", "x"}};
  EXPECT_FALSE(border::common_options("memory", bad, &common, &error));
  EXPECT_STREQ(error.subject, "max_attempts");
}

std::set<std::string> names(ob_scope scope) {
  const char *found[64];
  size_t n = ob_kind("memory")->option_names("memory", scope, found, 64);
  return {found, found + n};
}

TEST(Options, NamesByScopeForAHint) {
  EXPECT_EQ(names(OB_SERVER),
            (std::set<std::string>{"events", "aggregates", "match", "ordered", "on_dead_letter", "retry",
                                   "max_attempts", "retention", "max_payload", "capacity", "path"}));
  EXPECT_EQ(names(OB_USER_MAPPING), (std::set<std::string>{"token"}));
  const char *one;
  EXPECT_EQ(ob_kind("memory")->option_names("memory", OB_SERVER, &one, 1), 1u);
  const char *all[1024];
  size_t n = ob_kind("kafka")->option_names("kafka", OB_SERVER, all, std::size(all));
  EXPECT_EQ(std::set<std::string>(all, all + n).size(), n) << "a name comes twice";
}

TEST(Options, LongTextsAreCutAtWholeCharacters) {
  std::string name(62, 'x');
  name += "ü and more"; /* the ü would be cut by the end of the 64-byte field */
  door::OptionList options = {{name.c_str(), ""}};
  ob_error error;
  EXPECT_FALSE(border::check_options("memory", OB_SERVER, options, true, &error));
  EXPECT_EQ(std::string(error.subject), std::string(62, 'x'));
}

}  // namespace
