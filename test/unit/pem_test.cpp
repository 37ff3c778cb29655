/* Private keys in PEM: without a password, and of their certificates. */
#include "delivery/options/pem.h"

#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include "bad_input.h"
#include "authority.h"

using namespace outbox;

namespace {

TEST(Pem, AKeyThatAPasswordProtectsIsRefusedWithTheCure) {
  Authority own("127.0.0.1");
  auto refusal = [](const std::string &key) {
    const BadInput bad = bad_input_of([&] { check_key_pem("ssl_key_pem", key); });
    EXPECT_EQ(ERR_peek_error(), 0u);
    EXPECT_EQ(bad.subject, "ssl_key_pem");
    return bad.hint;
  };
  const std::string old = Authority::written([&](BIO *bio) {
    PEM_write_bio_PrivateKey_traditional(bio, own.key, EVP_aes_128_cbc(),
                                         reinterpret_cast<const unsigned char *>("open"), 4, nullptr, nullptr);
  });
  for (const std::string &key : {own.key_pem("open"), old, own.pem() + own.key_pem("open")})
    EXPECT_NE(refusal(key).find("openssl pkey -in"), std::string::npos) << refusal(key);
  EXPECT_EQ(refusal("no key").find("openssl"), std::string::npos);
}

TEST(Pem, AKeyBelongsToItsCertificate) {
  Authority own("127.0.0.1"), other("127.0.0.1");
  const std::string old = Authority::written(
      [&](BIO *bio) { PEM_write_bio_PrivateKey_traditional(bio, own.key, nullptr, nullptr, 0, nullptr, nullptr); });
  for (const std::string &key : {own.key_pem(), old}) {
    EXPECT_NO_THROW(check_key_pem("ssl_key_pem", key));
    EXPECT_NO_THROW(check_key_pair(key, own.pem()));
    EXPECT_EQ(bad_input_of([&] { check_key_pair(key, other.pem()); }).subject, "ssl_key_pem");
  }
  EXPECT_EQ(bad_input_of([&] { check_key_pair("no key", own.pem()); }).subject, "ssl_key_pem");
  EXPECT_EQ(bad_input_of([&] { check_key_pair(own.key_pem(), "no certificate"); }).subject, "ssl_certificate_pem");
}

}  // namespace
