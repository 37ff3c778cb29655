/* A kind of sink from a library of its own: it is made only if both libraries were built alike. */
#include "delivery/engine/kind_library.h"

#include <gtest/gtest.h>

#include <cstring>

#include "door.h"

namespace {

int made;
void make_nothing() {
  made++;
}

std::string refusal(const ob_kind_build &build) {
  ob_error error;
  made = 0;
  EXPECT_FALSE(ob_kind_register("pigeon", &build, make_nothing, &error));
  EXPECT_FALSE(ob_kind_is_registered("pigeon"));
  EXPECT_STRNE(error.hint, "");
  return std::string(error.message) + " " + error.detail;
}

TEST(KindLibrary, OfAnotherVersionIsNotCalled) {
  ob_kind_build build = outbox::this_build();
  build.interface++;
  EXPECT_EQ(refusal(build), "the library of sink kind \"pigeon\" was built for another version of outbox "
                            "It has version " +
                                std::to_string(OB_KIND_INTERFACE + 1) + " of the interface, outbox has version " +
                                std::to_string(OB_KIND_INTERFACE) + ".");
  EXPECT_EQ(made, 0);
}

TEST(KindLibrary, OfAnotherCompilerIsNotCalled) {
  ob_kind_build build = outbox::this_build();
  build.cxx_abi++;
  EXPECT_NE(refusal(build).find("was built by another compiler"), std::string::npos);
  EXPECT_EQ(made, 0);
  build = outbox::this_build();
  strcpy(build.cxx_library, "another");
  EXPECT_NE(refusal(build).find("It was built with another and ABI"), std::string::npos);
  EXPECT_EQ(made, 0);
}

TEST(KindLibrary, WithoutAKindOfThatNameIsRefused) {
  EXPECT_NE(refusal(outbox::this_build()).find("contains no kind of that name"), std::string::npos);
  EXPECT_EQ(made, 1);
}

TEST(KindLibrary, WhyAKindIsNotAvailableIsTheErrorOfEachUse) {
  ob_error why = {OB_INTERNAL, "", "the library of sink kind \"dove\" cannot be loaded", "no such file",
                  "Install it."};
  ob_error error;
  ob_kind_unavailable("dove", &why);
  EXPECT_FALSE(ob_check_options("dove", OB_SERVER, nullptr, 0, true, &error));
  EXPECT_STREQ(error.message, why.message);
  EXPECT_STREQ(error.detail, "no such file");
  EXPECT_STREQ(error.hint, "Install it.");
  door::Engine engine;
  EXPECT_EQ(engine.open("dove", {}, {}), nullptr);
  EXPECT_STREQ(engine.error.message, why.message);
}

class Dove final : public outbox::SinkKind {
public:
  Dove() : SinkKind("dove") {}
  const std::vector<outbox::OptionSpec> &options() const override {
    static const auto &none = *new std::vector<outbox::OptionSpec>;
    return none;
  }
  std::shared_ptr<const outbox::SinkConfig> parse(const outbox::Options &, const outbox::Options *) const override {
    return nullptr;
  }
  std::unique_ptr<outbox::Sink> open(const std::string &, std::shared_ptr<const outbox::SinkConfig>,
                                     std::shared_ptr<outbox::Reporter>) const override {
    return nullptr;
  }
  outbox::KindDefaults defaults(const outbox::Options &) const override { return {10, "exponential 1s..5min"}; }
};

/* The file may be there at the next try. */
TEST(KindLibrary, ThatFitsIsRegisteredOnce) {
  static int doves;
  ob_kind_build build = outbox::this_build();
  auto make_dove = [] {
    doves++;
    [[maybe_unused]] static const auto *const dove = new Dove;
  };
  for (int i = 0; i < 2; i++)
    EXPECT_TRUE(ob_kind_register("dove", &build, make_dove, nullptr));
  EXPECT_EQ(doves, 1);
  EXPECT_TRUE(ob_check_options("dove", OB_SERVER, nullptr, 0, true, nullptr));
}

}  // namespace
