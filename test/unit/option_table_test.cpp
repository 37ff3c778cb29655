/* Tables of options: what the rows make of a list of options, and what they say in the documentation. */
#include "delivery/options/option_table.h"

#include <gtest/gtest.h>

#include "bad_input.h"
#include "delivery/options/template.h"

using namespace std::chrono_literals;
using namespace outbox;

namespace {

enum class Colour { Red, Green };

struct SampleBase {
  std::chrono::milliseconds pause{1000};
};

struct Sample : SampleBase {
  bool loud = false;
  uint32_t many = 20;
  size_t size = 1024;
  std::optional<int64_t> most;
  std::chrono::seconds beat{30};
  Colour colour = Colour::Green;
  Template place = Template::parse("place", "a.${aggregate_type}");
  std::string path = "/", secret, for_all;
};

std::vector<Row<SampleBase>> base_rows() {
  return {row("pause", &SampleBase::pause, Duration{100ms, 5min}, "How long.")};
}

const OptionTable<Sample> &table() {
  static const auto &made = *new OptionTable<Sample>(
      row("loud", &Sample::loud, Boolean{}, ""), row("many", &Sample::many, Integer{1, 100, "events"}, ""),
      row("size", &Sample::size, Size{1024, 4 << 20}, ""),
      row("most", &Sample::most, Integer{1, 9}, "").otherwise("no limit"), base_rows(),
      row("beat", &Sample::beat, WholeSeconds{1s, 1h}, ""),
      row("colour", &Sample::colour, Choice<Colour>{{{"red", Colour::Red}, {"green", Colour::Green}}}, ""),
      row("place", &Sample::place, As{Template::parse, "a template"}, ""),
      row("path", &Sample::path, Text{check_not_empty}, "").by_superuser(),
      row("secret", &Sample::secret, Text{}, "").as_secret().otherwise("none"),
      row("for_all", &Sample::for_all, Text{}, "").in_both());
  return made;
}

const OptionSpec &spec(std::string_view name) {
  for (const OptionSpec &each : table().specs())
    if (name == each.name.text)
      return each;
  throw std::logic_error(std::string(name));
}

TEST(OptionTable, SetsTheMembersOfWhatIsGiven) {
  Sample sample;
  table().read({{"loud", "on"},
                {"many", "7"},
                {"size", "2kB"},
                {"most", "5"},
                {"pause", "2s"},
                {"beat", "1500ms"},
                {"colour", "red"},
                {"place", "b"},
                {"path", "/x"},
                {"for_all", "s"}},
               OB_SERVER, sample);
  EXPECT_TRUE(sample.loud);
  EXPECT_EQ(sample.many, 7u);
  EXPECT_EQ(sample.size, 2048u);
  EXPECT_EQ(sample.most, 5);
  EXPECT_EQ(sample.pause, 2s);
  EXPECT_EQ(sample.beat, 2s);
  EXPECT_EQ(sample.colour, Colour::Red);
  EXPECT_EQ(sample.place.text(), "b");
  EXPECT_EQ(sample.path, "/x");
  EXPECT_EQ(sample.for_all, "s");
  EXPECT_EQ(sample.secret, "");
  table().read({{"secret", "hush"}, {"for_all", "m"}, {"many", "8"}}, OB_USER_MAPPING, sample);
  EXPECT_EQ(sample.secret, "hush");
  EXPECT_EQ(sample.for_all, "m");
  EXPECT_EQ(sample.many, 7u) << "it belongs to the server";
}

TEST(OptionTable, LeavesTheRestAsItIs) {
  Sample sample;
  table().read({}, OB_SERVER, sample);
  EXPECT_EQ(sample.many, 20u);
  EXPECT_FALSE(sample.most);
  table().read_one({{"many", "9"}, {"colour", "blue"}}, OptionName("many"), sample);
  EXPECT_EQ(sample.many, 9u);
}

TEST(OptionTable, RefusesWhatARowDoesNotTake) {
  auto refused = [](const char *name, const char *value) {
    Sample sample;
    const BadInput bad = bad_input_of([&] {
      table().read({{name, value}}, spec(name).secret ? OB_USER_MAPPING : OB_SERVER, sample);
    });
    EXPECT_EQ(bad.subject, name);
    return bad.detail;
  };
  EXPECT_EQ(refused("loud", "maybe"), "Expected \"true\" or \"false\".");
  EXPECT_EQ(refused("many", "0"), "Expected a whole number from 1 to 100.");
  EXPECT_EQ(refused("pause", "6min"), "Expected a duration from 100ms to 5min with a unit: ms, s, min (or m), h, d.");
  EXPECT_EQ(refused("size", "1"),
            "Expected a size from 1kB to 4MB: a whole number of bytes, or one with a unit: kB, MB.");
  EXPECT_EQ(refused("colour", "blue"), "Expected one of: red, green.");
  EXPECT_EQ(refused("path", ""), "It is empty.");
}

TEST(OptionTable, SaysWhereDefaultAndValues) {
  auto said = [](const char *name) { return spec(name).fallback + "; " + spec(name).takes; };
  EXPECT_EQ(said("loud"), "`false`; `true`, `false`");
  EXPECT_EQ(said("many"), "20; 1 to 100 events");
  EXPECT_EQ(said("size"), "`1kB`; 1kB to 4MB");
  EXPECT_EQ(said("most"), "no limit; 1 to 9");
  EXPECT_EQ(said("pause"), "`1s`; 100ms to 5min");
  EXPECT_EQ(said("beat"), "`30s`; 1s to 1h");
  EXPECT_EQ(said("colour"), "`green`; `red`, `green`");
  EXPECT_EQ(said("place"), "`a.${aggregate_type}`; a template");
  EXPECT_EQ(said("path"), "`/`; ");
  EXPECT_TRUE(spec("path").superuser && spec("path").in_server && !spec("path").in_mapping);
  EXPECT_TRUE(spec("secret").secret && spec("secret").in_mapping && !spec("secret").in_server);
  EXPECT_TRUE(spec("for_all").in_server && spec("for_all").in_mapping && !spec("for_all").secret);
}

TEST(OptionTable, ALaterRowReplacesAnEarlierOneOfItsName) {
  struct Other : SampleBase {
    std::string pause_in_words;
  };
  OptionTable<Other> other(base_rows(), row("pause", &Other::pause_in_words, Text{}, "In words."));
  ASSERT_EQ(other.specs().size(), 1u);
  EXPECT_STREQ(other.specs()[0].description, "In words.");
  Other config;
  other.read({{"pause", "long"}}, OB_SERVER, config);
  EXPECT_EQ(config.pause_in_words, "long");
}

}  // namespace
