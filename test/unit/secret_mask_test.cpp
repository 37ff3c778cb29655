#include "delivery/base/secret_mask.h"

#include <random>

#include "echoes.h"

using namespace outbox;
using echoes::Encoding;

namespace {

constexpr const char *token = "k/9v+Zx~Q7/wT2_p-L4/m8=N3.sR6/yB1\\uC5/dE0&fG%2F";

void expect_masked(const SecretMask &mask, const std::string &secret) {
  for (const Encoding &encoding : echoes::all()) {
    std::string sent = encoding.encode(secret), text = mask.masked("you sent <" + sent + "> to me");
    echoes::expect_no_part(text, sent, encoding);
    EXPECT_TRUE(text.starts_with("you sent <") && text.ends_with("> to me")) << encoding.name << ": " << text;
    /* The beginning of a secret where the text was cut: also in the middle of an escape. */
    for (size_t length = 30; length < 42; length++) {
      std::string beginning = sent.substr(0, std::min(length, sent.size() - 1));
      text = mask.masked("you sent <" + beginning, true);
      echoes::expect_no_part(text, beginning, encoding);
      EXPECT_TRUE(text.starts_with("you sent <")) << encoding.name << ": " << text;
    }
  }
}

bool is_base64(const Encoding &encoding) {
  return std::string_view(encoding.name).find("base64") != std::string_view::npos;
}

/* An "&" of the secret's own, which looks like the beginning of an escape, stands before the escape that was cut. */
TEST(SecretMask, ASecretWithTheBeginningOfAnEscapeIsFoundWhereItIsCut) {
  SecretMask mask;
  mask.add("k/&#+Zx~Q7/wT2");
  const std::string sent = "<k%2f%26%23%2bZx%7eQ7%2fwT2";
  for (size_t length = 13; length < sent.size(); length++)
    EXPECT_EQ(mask.masked(sent.substr(0, length), true).find("k%2f%26"), std::string::npos) << sent.substr(0, length);
}

}  // namespace

TEST(SecretMask, FindsATokenInEachEncoding) {
  SecretMask mask;
  mask.add(token);
  expect_masked(mask, token);
  EXPECT_EQ(mask.masked(std::string("Bearer ") + token + ", Bearer " + token), "Bearer ***, Bearer ***");
}

TEST(SecretMask, FindsBasicCredentialsAsAWholeAndInParts) {
  std::string password = "p/a\"s\\s w<o>rd+é:/&%41";
  SecretMask mask, of_a_key, of_a_short_one;
  mask.add_basic("alad/din", password);
  for (const std::string &secret : {password, "alad/din:" + password, echoes::base64("alad/din:" + password)})
    expect_masked(mask, secret);
  EXPECT_EQ(mask.masked("user alad/din"), "user alad/din");
  of_a_key.add_basic("sk_live_4242/only", "");
  expect_masked(of_a_key, "sk_live_4242/only");
  expect_masked(of_a_key, echoes::base64("sk_live_4242/only:"));
  of_a_short_one.add_basic("aladdin", "pw");
  expect_masked(of_a_short_one, "aladdin:pw");
  EXPECT_EQ(of_a_short_one.masked("pwd: pw"), "pwd: pw") << "too short to be told from other text";
}

TEST(SecretMask, FindsAHeaderAndItsParts) {
  SecretMask mask;
  mask.add_header("Token s3cr3t/k3y+of=mine");
  mask.add_header("session=abcdef0123456789; tenant=acme");
  mask.add_header("Basic dXNlcjpwL2Fzcy93b3Jk");
  for (const char *secret : {"Token s3cr3t/k3y+of=mine", "s3cr3t/k3y+of=mine", "abcdef0123456789",
                             "dXNlcjpwL2Fzcy93b3Jk", "user:p/ass/word", "p/ass/word"})
    expect_masked(mask, secret);
  EXPECT_EQ(mask.masked("tenant is not acme."), "tenant is not acme.");
}

TEST(SecretMask, FindsAUrlAndItsParts) {
  SecretMask mask;
  mask.add_url("https://example.com/hooks/t0ken/of-mine?key=with%2Fslash-in-it");
  for (const char *secret : {"https://example.com/hooks/t0ken/of-mine?key=with%2Fslash-in-it",
                             "/hooks/t0ken/of-mine?key=with%2Fslash-in-it", "with/slash-in-it"})
    expect_masked(mask, secret);
  EXPECT_EQ(mask.masked("POST /hooks/t0ken/of-mine?key=with%2Fslash-in-it HTTP/1.1"), "POST *** HTTP/1.1");
}

TEST(SecretMask, FindsTheHostOfAUrlAndItsLongerLabels) {
  SecretMask mask, with_port;
  mask.add_url("https://T0ken-of-mine.hooks.example.com/x");
  with_port.add_url("https://t0ken.example:8443");
  for (const char *text : {"Could not resolve host: T0ken-of-mine.hooks.example.com",
                           "Could not resolve host: t0ken-of-mine.hooks.example.com"})
    EXPECT_EQ(mask.masked(text), "Could not resolve host: ***");
  EXPECT_EQ(mask.masked("no tenant T0ken-of-mine"), "no tenant ***");
  EXPECT_EQ(mask.masked("made out to *.example.com"), "made out to *.example.com");
  EXPECT_EQ(with_port.masked("Failed to connect to t0ken.example port 8443"), "Failed to connect to *** port 8443");
}

TEST(SecretMask, LeavesOtherTextsAsTheyAre) {
  SecretMask none, mask;
  mask.add(token);
  mask.add("abc");
  for (const char *text : {"", "HTTP 500: {\"error\":\"a\\/b\\u00e9 %2F &amp; abc\"}", "50 % of \\u00zz, \\", "k/9",
                           "\xff\xfe broken \xc3"}) {
    EXPECT_EQ(none.masked(text, true), text);
    EXPECT_EQ(mask.masked(text, true), text);
    EXPECT_EQ(mask.masked(text), text);
  }
  EXPECT_EQ(mask.masked("ends with k/9v+Zx~"), "ends with k/9v+Zx~") << "it ends because its writer ended it";
  EXPECT_EQ(mask.masked("ends with k/9v+Zx~", true), "ends with ***");
  EXPECT_EQ(mask.masked("broken\n k/9v+Zx~Q7/wT2_p-L4/m8=N3\r\n .sR6/yB1\\uC5/dE0&fG%2F"), "broken\n ***");
}

TEST(SecretMask, FindsATokenWhoseFirstLetterLooksLikeTheEndOfAnEscape) {
  for (const std::string secret :
       {"ntoken-of-mine", "u0041-token", "25-token-of-mine", "lt;token-of-mine", "\\token"}) {
    SecretMask mask;
    mask.add(secret);
    for (const char *before : {"CORP\\", "100%", "a&", "<", "\\u00"})
      EXPECT_EQ(mask.masked(before + secret + ", it says").find(secret), std::string::npos) << before << secret;
  }
}

TEST(SecretMask, HoldsForRandomSecretsInTwoEncodingsAtOnce) {
  std::mt19937 random(4711);
  const std::string characters = "abcXYZ0189+/=-_.~:@!$&'()*,;?% #<>\"";
  for (int i = 0; i < 100; i++) {
    std::string secret = "a"; /* no blank, which would stay */
    for (size_t length = 12 + random() % 30; secret.size() < length;)
      secret += characters[random() % characters.size()];
    secret += 'z';
    SecretMask mask;
    mask.add(secret);
    for (const Encoding &inner : echoes::all())
      for (const Encoding &outer : echoes::all()) {
        if (is_base64(outer) && std::string_view(inner.name) != "plain")
          continue; /* not part of the secret */
        std::string sent = outer.encode(inner.encode(secret)), text = mask.masked("<" + sent + ">");
        auto left = [](const Encoding &encoding) { return encoding.others + (is_base64(encoding) ? 4 : 0); };
        ASSERT_LE(text.size(), std::string_view("<***>").size() + left(outer) + 6 * left(inner))
            << inner.name << ", " << outer.name << ": " << secret << ": " << text;
      }
  }
}

/* Redis 5 repeats 104 of 120 bytes of a password, and then goes on. */
TEST(SecretMask, TheBeginningOfASecretWithinAText) {
  const std::string secret = "correct-horse-battery-staple-0123456789";
  SecretMask mask;
  mask.add(secret);
  for (size_t n = secret.size() / 2 + 1; n <= secret.size(); n++)
    EXPECT_EQ(mask.masked("args: `AUTH`, `" + secret.substr(0, n) + "`, "), "args: `AUTH`, `***`, ") << n;
  EXPECT_EQ(mask.masked("correct, he says"), "correct, he says");
}
