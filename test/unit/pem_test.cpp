/* Private keys in PEM: what they cost to decrypt is known before they are decrypted. */
#include "delivery/options/pem.h"

#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/pkcs12.h>

#include <chrono>

#include "bad_input.h"
#include "authority.h"
#include "delivery/engine/opened_keys.h"
#include "sinks/kafka/kafka_config.h"
#include "patience.h"

using namespace outbox;

namespace {

/* An encrypted key with these parameters, and bytes that no password decrypts. */
std::string with_parameters(X509_ALGOR *algorithm) {
  X509_SIG *encrypted = X509_SIG_new();
  X509_ALGOR *into;
  ASN1_OCTET_STRING *bytes;
  X509_SIG_getm(encrypted, &into, &bytes);
  X509_ALGOR_copy(into, algorithm);
  ASN1_OCTET_STRING_set(bytes, reinterpret_cast<const unsigned char *>("0123456789abcdef"), 16);
  std::string text = Authority::written([&](BIO *bio) { PEM_write_bio_PKCS8(bio, encrypted); });
  X509_SIG_free(encrypted);
  X509_ALGOR_free(algorithm);
  return text;
}

std::string pbkdf2(int iterations) {
  return with_parameters(PKCS5_pbe2_set(EVP_aes_256_cbc(), iterations, nullptr, 0));
}
std::string scrypt(uint64_t n, uint64_t r, uint64_t p) {
  return with_parameters(PKCS5_pbe2_set_scrypt(EVP_aes_256_cbc(), nullptr, 0, nullptr, n, r, p));
}
std::string pkcs12(int iterations) {
  return with_parameters(PKCS5_pbe_set(NID_pbe_WithSHA1And3_Key_TripleDES_CBC, iterations, nullptr, 0));
}

/* The DETAIL of the refusal; empty if the key is accepted. */
std::string refusal(const std::string &key) {
  const auto began = std::chrono::steady_clock::now();
  std::string detail = bad_input_of([&] { check_key_pem("ssl_key_pem", key); }).detail;
  EXPECT_LT(std::chrono::steady_clock::now() - began, patient(std::chrono::seconds(1))) << "the password was derived";
  EXPECT_EQ(ERR_peek_error(), 0u);
  return detail;
}

TEST(Pem, AKeyWhosePasswordTakesTooLongIsRefused) {
  EXPECT_EQ(refusal(pbkdf2(1'000'000)), "");
  EXPECT_EQ(refusal(pbkdf2(1'000'001)),
            "Its password is derived with 1000001 iterations, and at most 1000000 are allowed.");
  EXPECT_NE(refusal(pbkdf2(INT32_MAX)), "");
  EXPECT_EQ(refusal(pkcs12(1'000'000)), "");
  EXPECT_NE(refusal(pkcs12(35'000'000)), "");
  EXPECT_EQ(refusal(scrypt(16384, 8, 1)), "");
  EXPECT_NE(refusal(scrypt(16384, 8, 16)), "");
  EXPECT_NE(refusal(scrypt(2, 1, 1 << 25)), "");
  /* Whatever comes before it in the text. */
  Authority own("127.0.0.1");
  EXPECT_NE(refusal(own.pem() + pbkdf2(35'000'000)), "");
}

TEST(Pem, AKeyIsOpenedOnce) {
  Authority own("127.0.0.1"), other("127.0.0.1");
  const std::string key = SSL_KEY_PEM, password = SSL_KEY_PASSWORD;
  const std::string right = "open", wrong = "shut", own_pem = own.pem(), other_pem = other.pem();
  auto opened = [&](const std::string &text, const std::string *with, const std::string *of) -> std::string {
    try {
      return open_key({text, of, with});
    } catch (const BadInput &bad) {
      return bad.subject;
    }
  };
  EXPECT_EQ(opened(own.key_pem("open"), &right, &own_pem), own.key_pem());
  EXPECT_EQ(opened(own.key_pem("open"), &right, nullptr), own.key_pem());
  EXPECT_EQ(opened(own.key_pem(), nullptr, &own_pem), own.key_pem());
  EXPECT_EQ(opened(own.key_pem("open"), &right, &other_pem), key);
  EXPECT_EQ(opened(own.key_pem("open"), &wrong, &own_pem), password);
  EXPECT_EQ(opened(own.key_pem("open"), nullptr, &own_pem), password);
  EXPECT_EQ(opened(pbkdf2(35'000'000), &right, &own_pem), key);
  EXPECT_EQ(opened("no key", &right, &own_pem), key);

  /* The old kind, encrypted and not. */
  for (const EVP_CIPHER *cipher : {EVP_aes_128_cbc(), static_cast<const EVP_CIPHER *>(nullptr)}) {
    std::string old = Authority::written([&](BIO *bio) {
      PEM_write_bio_PrivateKey_traditional(bio, own.key, cipher,
                                           cipher ? reinterpret_cast<const unsigned char *>("open") : nullptr,
                                           cipher ? 4 : 0, nullptr, nullptr);
    });
    EXPECT_EQ(opened(old, cipher ? &right : nullptr, &own_pem), cipher ? own.key_pem() : old);
    if (cipher) {
      EXPECT_EQ(opened(old, &wrong, &own_pem), password);
    }
  }
}

/* librdkafka would decrypt it on the main thread, each time a client starts. */
TEST(Pem, LibrdkafkaGetsTheOpenKey) {
  Authority own("127.0.0.1");
  Options mapping{
      {"ssl_certificate_pem", own.pem()}, {"ssl_key_pem", own.key_pem("open")}, {"ssl_key_password", "open"}};
  KafkaConfig config({{"bootstrap_servers", "127.0.0.1:1"}, {"security_protocol", "ssl"}}, &mapping);
  KafkaConf conf = config.conf();
  std::string text(4096, '\0');
  size_t size = text.size();
  ASSERT_EQ(rd_kafka_conf_get(conf.get(), "ssl.key.pem", text.data(), &size), RD_KAFKA_CONF_OK);
  EXPECT_STREQ(text.c_str(), own.key_pem().c_str());
  EXPECT_NE(rd_kafka_conf_get(conf.get(), "ssl.key.password", text.data(), &size), RD_KAFKA_CONF_OK);
}

TEST(OpenedKeys, AKeyThatNobodyFetchesIsForgottenAfterAMinute) {
  const Options mapping{{"ssl_key_pem", pbkdf2(1)}, {"ssl_key_password", "correct horse"}};
  const auto now = std::chrono::steady_clock::now();
  auto asked = [&](OpenedKeys &keys, BackgroundJobs &jobs) {
    Options copy = mapping;
    bool opened = keys.open(copy, jobs);
    EXPECT_TRUE(jobs.finish(std::chrono::steady_clock::now() + std::chrono::seconds(60)));
    return opened;
  };
  OpenedKeys keys;
  BackgroundJobs jobs;
  EXPECT_FALSE(asked(keys, jobs)) << "it is being opened";
  keys.forget_unfetched(now + std::chrono::seconds(59));
  EXPECT_THROW(asked(keys, jobs), BadInput) << "no password decrypts it";
  EXPECT_FALSE(asked(keys, jobs));
  keys.forget_unfetched(std::chrono::steady_clock::now() + std::chrono::seconds(61));
  EXPECT_FALSE(asked(keys, jobs)) << "it was forgotten";
  EXPECT_THROW(asked(keys, jobs), BadInput);
}

}  // namespace
