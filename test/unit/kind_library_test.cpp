/* A kind of sink from a library of its own: its struct is used only if it fits. */
#include "delivery/engine/kind_library.h"

#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "door.h"

namespace {

constexpr int PG_VERSION = 150013;

/* A struct that fits, for a kind with these options. Its functions are those of this program. */
ob_sink_kind fitting(const char *name) {
  ob_sink_kind library = *outbox::kinds_of_this_library();
  library.name = name;
  library.version = "1.4";
  library.pg_version = 150002;
  return library;
}

std::string refusal(const ob_sink_kind *library) {
  ob_error error;
  EXPECT_FALSE(ob_kind_register("pigeon", library, PG_VERSION, &error));
  EXPECT_FALSE(ob_kind_is_registered("pigeon"));
  EXPECT_STRNE(error.hint, "");
  return std::string(error.message) + " " + error.detail;
}

TEST(KindLibrary, OfAnotherVersionIsRefused) {
  ob_sink_kind library = fitting("pigeon");
  library.interface++;
  const std::string size = std::to_string(sizeof(ob_sink_kind)), version = std::to_string(OB_KIND_INTERFACE);
  EXPECT_EQ(refusal(&library), "the library of sink kind \"pigeon\" was built for another version of outbox "
                               "It has version " +
                                   std::to_string(OB_KIND_INTERFACE + 1) + " of the interface, with " + size +
                                   " bytes; outbox has version " + version + ", with " + size + ".");
  library = fitting("pigeon");
  library.size -= sizeof(void *);
  EXPECT_NE(refusal(&library).find("was built for another version of outbox"), std::string::npos);
  library = fitting("pigeon");
  library.pg_version = 170001;
  EXPECT_NE(
      refusal(&library).find("was built for another version of PostgreSQL It was built for 17, the server is 15"),
      std::string::npos);
}

TEST(KindLibrary, OfSomethingElseIsRefused) {
  ob_sink_kind library = fitting("pigeon");
  library.magic++;
  EXPECT_NE(refusal(&library).find("is none for outbox"), std::string::npos);
  EXPECT_NE(refusal(nullptr).find("could not make its kind"), std::string::npos);
  library = fitting("dove");
  EXPECT_NE(refusal(&library).find("contains no kind of that name It contains \"dove\" of version 1.4."),
            std::string::npos);
}

TEST(KindLibrary, WhyAKindIsNotAvailableIsTheErrorOfEachUse) {
  ob_error why = {OB_INTERNAL, "", "the library of sink kind \"dove\" cannot be loaded", "no such file",
                  "Install it."};
  ob_error error;
  ob_kind_unavailable("dove", &why);
  EXPECT_FALSE(border::check_options("dove", OB_SERVER, {}, true, &error));
  EXPECT_STREQ(error.message, why.message);
  EXPECT_STREQ(error.detail, "no such file");
  EXPECT_STREQ(error.hint, "Install it.");
  door::Engine engine;
  EXPECT_EQ(engine.open("dove", {}, {}), nullptr);
  EXPECT_STREQ(engine.error.message, why.message);
}

/* What only makes messages accepts every option, and what it made before stays as it is. */
TEST(KindLibrary, OfMessagesDoesNotStandInForOneThatIsNotAvailable) {
  static ob_sink_kind messages = fitting("stork"), whole = fitting("stork");
  messages.messages_only = true;
  messages.check_options = whole.check_options = [](const char *, ob_scope, const ob_sink_options *, bool,
                                                    ob_error *) noexcept { return true; };
  ASSERT_TRUE(ob_kind_register("stork", &messages, PG_VERSION, nullptr));
  EXPECT_EQ(ob_kind("stork"), &messages);
  const ob_error why = {OB_INTERNAL, "", "the library of sink kind \"stork\" cannot be loaded", "", ""};
  ob_kind_unavailable("stork", &why);
  ob_error error;
  EXPECT_FALSE(border::check_options("stork", OB_SERVER, {}, true, &error));
  EXPECT_STREQ(error.message, why.message);
  ASSERT_TRUE(ob_kind_register("stork", &whole, PG_VERSION, nullptr));
  EXPECT_TRUE(border::check_options("stork", OB_SERVER, {}, true, nullptr));
}

/* The file may be there at the next try. The library is told what others were told before. */
TEST(KindLibrary, ThatFitsIsRegisteredOnceAndItsFunctionsAreCalled) {
  static std::vector<std::string> &calls = *new std::vector<std::string>;
  static ob_sink_kind &library = *new ob_sink_kind(fitting("dove"));
  library.configure = [](const char *database, uint32_t timeline, const char *networks) noexcept {
    calls.emplace_back(std::string(database) + " " + std::to_string(timeline) + " " + networks);
  };
  library.check_options = [](const char *kind, ob_scope, const ob_sink_options *, bool, ob_error *) noexcept {
    calls.emplace_back(kind);
    return true;
  };
  ob_set_origin("shop", 1);
  ob_set_networks("10.0.0.0/8");
  for (int i = 0; i < 2; i++)
    EXPECT_TRUE(ob_kind_register("dove", &library, PG_VERSION, nullptr));
  EXPECT_TRUE(ob_kind_is_registered("dove"));
  EXPECT_TRUE(border::check_options("dove", OB_SERVER, {}, true, nullptr));
  ob_set_origin("store", 2);
  ob_set_networks("");
  EXPECT_EQ(calls, (std::vector<std::string>{"shop 1 10.0.0.0/8", "dove", "store 2 10.0.0.0/8", "store 2 "}));
}

bool blocks_signals() {
  sigset_t now;
  pthread_sigmask(SIG_BLOCK, nullptr, &now);
  return sigismember(&now, SIGTERM) == 1 && sigismember(&now, SIGURG) == 1;
}

/* Threads that a kind's client library starts there inherit the mask. */
TEST(KindLibrary, OpensWithSignalsBlocked) {
  static bool blocked_for_sink, blocked_for_probe;
  static ob_sink_kind &library = *new ob_sink_kind(fitting("swan"));
  library.sink_open = [](ob_engine *, const char *, const char *, const ob_sink_options *,
                         ob_error *) noexcept -> ob_sink * {
    blocked_for_sink = blocks_signals();
    return nullptr;
  };
  library.probe_start = [](ob_engine *, const char *, const char *, const ob_sink_options *, int, bool, const char *,
                           ob_error *) noexcept -> ob_probe * {
    blocked_for_probe = blocks_signals();
    return nullptr;
  };
  ASSERT_TRUE(ob_kind_register("swan", &library, PG_VERSION, nullptr));
  ob_engines *engines = ob_engines_open(nullptr);
  EXPECT_EQ(border::sink_open(engines, "lake", "swan", {}, {}, nullptr), nullptr);
  EXPECT_EQ(border::probe_start(engines, "lake", "swan", {}, {}, 1000, false, nullptr), nullptr);
  EXPECT_TRUE(ob_engines_close(engines, 1000));
  EXPECT_TRUE(blocked_for_sink && blocked_for_probe);
  EXPECT_FALSE(blocks_signals());
}

}  // namespace
