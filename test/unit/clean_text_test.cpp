#include "delivery/base/clean_text.h"
#include "delivery/base/secret_mask.h"

#include "delivery/base/text.h"

#include <gtest/gtest.h>

using namespace outbox;

TEST(CleanText, IsOneLineOfUtf8WithoutControlCharacters) {
  EXPECT_EQ(clean_text(" two\r\nlines\tand\x1b[31m red \x7f"), "two lines and [31m red");
  EXPECT_EQ(clean_text("a\u0085b\u009bc\u2028d\u2029\u0080e"), "a b c d e") << "controls beyond ASCII";
  EXPECT_EQ(clean_text("gr\u00fcn\u00a0\u00a9 \u2027\u2030 \u65e5\u672c \U0001f600"),
            "gr\u00fcn\u00a0\u00a9 \u2027\u2030 \u65e5\u672c \U0001f600");
  EXPECT_EQ(clean_text("\xc2"), "\ufffd");
  EXPECT_EQ(clean_text("\r\n"), "");
}

TEST(CleanText, ATextThatIsTooLongIsCutAtACharacterAndMarked) {
  EXPECT_EQ(marked_if_cut("0123456789", 10), "0123456789");
  EXPECT_EQ(marked_if_cut("0123456789a", 10), "0123 [cut]");
  EXPECT_EQ(marked_if_cut("012\u65e5\u672c456", 10), "012 [cut]") << "a character of three bytes would need 12";
  EXPECT_EQ(marked_if_cut(marked_if_cut("0123456789abcdef", 15), 10), "0123 [cut]") << "one mark";
}

/* The masked text is cut, wherever in it the secret stands. */
TEST(TextToShow, MasksBeforeItCuts) {
  const std::string secret = "correct-horse-battery";
  SecretMask mask;
  mask.add(secret);
  for (size_t before = 250; before < 320; before++) {
    const std::string shown = text_to_show(
        "refused: " + peer_text(std::string(before, 'x') + secret + std::string(500, 'y')) + ": look at it", mask);
    EXPECT_EQ(shown.find("corr"), shown.npos) << before << shown;
    EXPECT_TRUE(shown.starts_with("refused: xxx") && shown.ends_with(": look at it")) << shown;
    EXPECT_EQ(shown.size(), std::string("refused: : look at it").size() + 300);
  }
}

TEST(TextToShow, TakesTheMarksAway) {
  const SecretMask none;
  EXPECT_EQ(text_to_show("a " + peer_text(" b\x01\x02 ") + in_quotes("") + " c " + peer_text("d"), none),
            "a b\"\" c d");
  EXPECT_EQ(text_to_show("a \x01 b", none), "a b");
  EXPECT_EQ(text_to_show(peer_text(std::string(100'000, 'x')), none), std::string(300, 'x'));
}
