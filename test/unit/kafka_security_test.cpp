/* The TLS and authentication options of a Kafka sink, through the delivery API: who may set them, and which fit
 * together. No broker. */
#include <gtest/gtest.h>
#include <librdkafka/rdkafka.h>

#include <algorithm>

#include "authority.h"
#include "delivery/base/text.h"
#include "door.h"

namespace {

using door::OptionList;

struct KafkaSecurity : testing::Test {
  bool check(ob_scope scope, OptionList options, bool superuser = false) {
    if (scope == OB_SERVER)
      options.insert(options.begin(), {"bootstrap_servers", "localhost:9092"});
    return border::check_options("kafka", scope, options, superuser, &error);
  }
  std::string all() const {
    return std::string(error.subject) + " | " + error.message + " | " + error.detail + " | " + error.hint;
  }
  ob_error error{};
};

/* ---- who ---- */

/* Name and description of each property. */
std::vector<std::pair<std::string, std::string>> producer_properties() {
  char *text = nullptr;
  size_t size = 0;
  FILE *memory = open_memstream(&text, &size);
  rd_kafka_conf_properties_show(memory);
  fclose(memory);
  std::vector<std::pair<std::string, std::string>> found;
  for (std::string_view line : outbox::split({text, size}, '\n'))
    if (auto columns = outbox::split(line, '|'); columns.size() > 5 && (columns[1] == "*" || columns[1] == "P"))
      found.emplace_back(columns[0], columns[5]);
  free(text);
  return found;
}

bool contains_one(const std::string &text, std::initializer_list<const char *> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const char *part) { return text.find(part) != std::string::npos; });
}

/* An option that reads a file, runs a command, loads code or fetches an address uses the server's rights. The test
 * recognizes such options by librdkafka's names and descriptions, so that those of newer versions are found. */
TEST_F(KafkaSecurity, FilesCommandsCodeAndAddressesAreForSuperusers) {
  int walked = 0, closed = 0;
  for (auto [name, description] : producer_properties()) {
    walked++;
    if (contains_one(description, {"see dedicated API"}) ||
        (!contains_one(name, {"location", "path", "file", "keytab", "cmd", "plugin", "engine", "provider", "stores",
                              "kerberos", ".url", "metadata.authentication"}) &&
         !contains_one(description, {"Path to", "File or directory", "Shell command", "libraries to load"})))
      continue;
    std::string option = name;
    std::replace(option.begin(), option.end(), '.', '_');
    for (ob_scope scope : {OB_SERVER, OB_USER_MAPPING}) {
      EXPECT_FALSE(check(scope, {{option.c_str(), "x"}})) << name << ": " << description;
      bool refused = error.kind == OB_FORBIDDEN || error.kind == OB_WRONG_PLACE ||
                     std::string(error.message).find("cannot be set") != std::string::npos;
      EXPECT_TRUE(refused) << all();
    }
    closed++;
  }
  EXPECT_GT(walked, 90);
  EXPECT_GE(closed, 16);
}

TEST_F(KafkaSecurity, ASuperuserMayNameFiles) {
  EXPECT_TRUE(check(OB_SERVER,
                    {{"security_protocol", "ssl"}, {"ssl_ca_location", "/etc/ssl/certs/ca-certificates.crt"}}, true))
      << all();
  OptionList kerberos = {{"security_protocol", "sasl_ssl"}, {"sasl_mechanism", "GSSAPI"}};
  EXPECT_TRUE(check(OB_SERVER, kerberos, true)) << all();
  EXPECT_FALSE(check(OB_SERVER, kerberos));
  EXPECT_EQ(error.kind, OB_FORBIDDEN) << all();
  EXPECT_STREQ(error.detail, "It runs kinit, and uses the Kerberos tickets of the database server.");
  EXPECT_FALSE(check(OB_SERVER, {{"plugin_library_paths", "x"}}, true));
}

/* ---- what fits together ---- */

TEST_F(KafkaSecurity, WhatDoesNotFitTogetherIsRefused) {
  Authority authority("127.0.0.1");
  std::string ca = authority.pem();
  auto refused = [&](const OptionList &options, ob_error_kind kind, const char *subject,
                     const char *message = nullptr) {
    ASSERT_FALSE(check(OB_SERVER, options)) << options.back().name;
    EXPECT_EQ(error.kind, kind) << all();
    EXPECT_STREQ(error.subject, subject);
    EXPECT_EQ(message ? std::string(message) : error.message, error.message);
    EXPECT_NE(error.detail[0], '\0') << all();
  };
  refused({{"ssl_ca_pem", ca.c_str()}}, OB_BAD_VALUE, "ssl_ca_pem",
          "option \"ssl_ca_pem\" has no effect with security_protocol \"plaintext\"");
  refused({{"security_protocol", "SASL_PLAINTEXT"}, {"sasl_mechanism", "PLAIN"}, {"ssl_ca_pem", ca.c_str()}},
          OB_BAD_VALUE, "ssl_ca_pem",
          "option \"ssl_ca_pem\" has no effect with security_protocol \"sasl_plaintext\"");
  refused({{"security_protocol", "ssl"}, {"sasl_mechanism", "PLAIN"}}, OB_BAD_VALUE, "sasl_mechanism",
          "option \"sasl_mechanism\" has no effect with security_protocol \"ssl\"");
  refused({{"sasl_username", "outbox"}}, OB_BAD_VALUE, "sasl_username");
  refused({{"security_protocol", "sasl_ssl"}}, OB_MISSING_OPTION, "sasl_mechanism",
          "option \"sasl_mechanism\" is required with security_protocol \"sasl_ssl\"");
  refused({{"security_protocol", "sasl_ssl"}, {"sasl_mechanism", "plain"}}, OB_BAD_VALUE, "sasl_mechanism",
          "invalid value for option \"sasl_mechanism\": \"plain\"");
  refused({{"security_protocol", "sasl_ssl"}, {"sasl_mechanisms", "PLAIN,GSSAPI"}}, OB_BAD_VALUE, "sasl_mechanisms");
  refused({{"security_protocol", "ssl"}, {"ssl_ca_pem", "-----BEGIN CERTIFICATE-----"}}, OB_BAD_VALUE, "ssl_ca_pem",
          "invalid value for option \"ssl_ca_pem\"");
  EXPECT_FALSE(check(OB_SERVER, {{"security_protocol", "sasl_ssl"}, {"sasl_mechanism", "OAUTHBEARER"}}));
  EXPECT_NE(error.detail[0], '\0') << all();
  EXPECT_TRUE(check(OB_SERVER, {{"security_protocol", "SASL_SSL"},
                                {"sasl_mechanisms", "PLAIN"},
                                {"sasl_username", "outbox"},
                                {"ssl_ca_pem", ca.c_str()}}))
      << all();
}

TEST_F(KafkaSecurity, AKeyAndItsCertificateBelongTogether) {
  Authority mine("127.0.0.1"), other("127.0.0.1");
  std::string certificate = mine.pem(), key = mine.key_pem(), wrong = other.key_pem(),
              locked = mine.key_pem("sesame");
  auto pair = [&](const std::string &key_pem) {
    return check(OB_USER_MAPPING, {{"ssl_certificate_pem", certificate.c_str()}, {"ssl_key_pem", key_pem.c_str()}});
  };
  EXPECT_TRUE(pair(key)) << all();
  EXPECT_FALSE(pair(wrong));
  EXPECT_STREQ(error.detail, "It is not the key of the certificate in option \"ssl_certificate_pem\".") << all();
  EXPECT_FALSE(pair(locked));
  EXPECT_NE(std::string(error.hint).find("openssl pkey -in"), std::string::npos) << all();
  EXPECT_FALSE(check(OB_USER_MAPPING, {{"ssl_key_password", "hush"}}));
  EXPECT_NE(all().find("openssl pkey -in"), std::string::npos) << all();
  EXPECT_EQ(all().find("hush"), std::string::npos);
  EXPECT_FALSE(pair(certificate));
  EXPECT_STREQ(error.subject, "ssl_key_pem");
  EXPECT_EQ(all().find("BEGIN CERTIFICATE"), std::string::npos) << all();
}

/* ---- what only server and mapping together show ---- */

TEST_F(KafkaSecurity, ASinkIsNotOpenedWithHalfOfItsCredentials) {
  Authority mine("127.0.0.1");
  std::string key = mine.key_pem(), certificate = mine.pem();
  door::Engine engine;
  const OptionList plaintext = {{"bootstrap_servers", "127.0.0.1:1"}};
  OptionList tls = plaintext, plain = plaintext;
  tls.push_back({"security_protocol", "ssl"});
  plain.push_back({"security_protocol", "sasl_plaintext"});
  plain.push_back({"sasl_mechanism", "PLAIN"});

  const std::tuple<OptionList, OptionList, const char *> halves[] = {
      {plain, {}, "option \"sasl_username\" is required with sasl_mechanism \"PLAIN\""},
      {plain, {{"sasl_username", "outbox"}}, "option \"sasl_password\" is required with sasl_mechanism \"PLAIN\""},
      {plaintext,
       {{"sasl_username", "outbox"}, {"sasl_password", "hush"}},
       "option \"sasl_password\" has no effect with security_protocol \"plaintext\""},
      {tls, {{"ssl_key_pem", key.c_str()}}, "option \"ssl_certificate_pem\" is required with ssl_key_pem"},
      {tls,
       {{"ssl_certificate_pem", certificate.c_str()}},
       "option \"ssl_key_pem\" is required with ssl_certificate_pem"},
  };
  for (const auto &[server, mapping, message] : halves) {
    EXPECT_EQ(engine.open("kafka", server, mapping), nullptr) << message;
    EXPECT_STREQ(engine.error.message, message);
    EXPECT_NE(engine.error.detail[0], '\0');
  }
}

}  // namespace
