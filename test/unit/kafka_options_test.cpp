/* The options of a Kafka sink, and the checks of events, through the delivery API. No broker. */
#include <gtest/gtest.h>

#include <set>

#include "door.h"

namespace {

const door::OptionList good = {{"bootstrap_servers", "localhost:9092"}};

bool check(ob_scope scope, door::OptionList options, ob_error &error, bool superuser = false) {
  if (scope == OB_SERVER)
    options.insert(options.begin(), good[0]);
  return border::check_options("kafka", scope, options, superuser, &error);
}

TEST(KafkaOptions, BootstrapServersIsRequired) {
  ob_error error;
  EXPECT_FALSE(border::check_options("kafka", OB_SERVER, {}, true, &error));
  EXPECT_EQ(error.kind, OB_MISSING_OPTION);
  EXPECT_STREQ(error.subject, "bootstrap_servers");
  EXPECT_STREQ(error.message, "option \"bootstrap_servers\" is required");
  EXPECT_STREQ(error.detail, "A Kafka sink needs a broker to start from.");
  EXPECT_STREQ(error.hint, "Example: OPTIONS (bootstrap_servers 'localhost:9092').");
  EXPECT_TRUE(border::check_options("kafka", OB_SERVER, good, false, &error)) << error.message;
}

TEST(KafkaOptions, BootstrapServersIsAListOfBrokers) {
  ob_error error;
  for (const char *brokers :
       {"a", "a:1", "a:9092,b:9093", " a:9092 , b ", "[::1]:9092", "SSL://a:9092", "10.0.0.1:65535"}) {
    door::OptionList options = {{"bootstrap_servers", brokers}};
    EXPECT_TRUE(border::check_options("kafka", OB_SERVER, options, false, &error)) << brokers;
  }
  for (const char *brokers :
       {"", ",", "a:9092,", "a:0", "a:65536", "a:port", ":9092", "a b:9092", "[::1:9092", "http://a/b"}) {
    door::OptionList options = {{"bootstrap_servers", brokers}};
    EXPECT_FALSE(border::check_options("kafka", OB_SERVER, options, false, &error)) << brokers;
    EXPECT_EQ(error.kind, OB_BAD_VALUE);
    EXPECT_STREQ(error.detail, "Expected a comma-separated list of host:port.");
  }
}

TEST(KafkaOptions, ProducerPropertiesAreTakenWithUnderscores) {
  ob_error error;
  for (ob_option option : door::OptionList{{"linger_ms", "5"},
                                           {"compression_type", "zstd"},
                                           {"message_max_bytes", "2000000"},
                                           {"security_protocol", "ssl"},
                                           {"acks", "all"},
                                           {"retries", "10"},
                                           {"max_in_flight", "5"},
                                           {"partitioner", "consistent"},
                                           {"allow_auto_create_topics", "false"},
                                           {"topic", "events"},
                                           {"format", "debezium"}})
    EXPECT_TRUE(check(OB_SERVER, {option}, error)) << option.name << ": " << error.message << " " << error.detail;
  for (ob_option option :
       door::OptionList{{"sasl_username", "outbox"}, {"sasl_password", "hush"}, {"ssl_keystore_password", "hush"}})
    EXPECT_TRUE(check(OB_USER_MAPPING, {option}, error)) << option.name << ": " << error.message;
}

TEST(KafkaOptions, EveryMistakeHasItsOwnError) {
  auto refused = [](ob_error_kind kind, const char *message, const std::vector<door::Refusal> &refusals,
                    ob_scope scope = OB_SERVER) {
    door::expect_refused("kafka", scope, scope == OB_SERVER ? good : door::OptionList(), kind, message, refusals);
  };
  const char *unknown = "invalid option \"$name\"",
             *topic = "A Kafka topic's name has 1 to 249 characters: letters, digits, \".\", \"_\" and \"-\".",
             *readable = "Every role can read the options of a server.",
             *to_mapping = "Use CREATE USER MAPPING FOR PUBLIC SERVER ... OPTIONS ($name '...').",
             *no_secret = "A user mapping holds names and secrets only.",
             *to_server = "Use ALTER SERVER ... OPTIONS ($name '...').";
  refused(OB_UNKNOWN_OPTION, unknown,
          {{{"linger", "5"}},
           {{"linger.ms", "5"}},
           {{"group_id", "x"}},
           {{"auto_offset_reset", "earliest"}},
           {{"dr_msg_cb", "0"}},
           {{"opaque", "0"}},
           {{"test_mock_num_brokers", "1"}}});
  refused(OB_UNKNOWN_OPTION, unknown, {{{"url", "http://x"}, nullptr, nullptr}}, OB_USER_MAPPING);
  refused(OB_BAD_VALUE, "invalid value for option \"$name\": \"$value\"",
          {{{"linger_ms", "soon"}, "Expected a number from 0 to 900000."},
           {{"linger_ms", "-1"}, "Expected a number from 0 to 900000."},
           {{"compression_type", "rar"}, "Expected one of: none, gzip, snappy, lz4, zstd."},
           {{"acks", "1"}, "Expected \"all\": an event counts as delivered when every in-sync replica has it."},
           {{"request_required_acks", "0"}, nullptr},
           {{"max_in_flight", "6"}, "Expected a whole number from 1 to 5."},
           {{"retries", "0"}, "Expected a whole number from 1 to 2147483647."},
           {{"receive_message_max_bytes", "100000001"}, "Expected a whole number from 1000 to 100000000."},
           {{"topic_metadata_refresh_interval_ms", "99"}, "Expected a whole number from 100 to 3600000."},
           {{"topic", "my topic"}, topic},
           {{"topic", ""}, topic, nullptr},
           {{"topic", ".."}, topic, nullptr},
           {{"timestamp", "sent_at"}, "Expected one of: now, created_at."},
           {{"format", "avro"}, "Expected one of: debezium, cloudevents, cloudevents-structured, raw."}});
  refused(OB_BAD_VALUE, "unknown variable \"tenant\" in the template of option \"topic\"",
          {{{"topic", "outbox.${tenant}"}, "", nullptr}});
  refused(
      OB_BAD_VALUE, "option \"$name\" cannot be set",
      {{{"enable_idempotence", "false"}, "It is always on: retries would reorder and duplicate events without it."},
       {{"message_timeout_ms", "60000"}, "Events queued behind one that timed out could overtake it."},
       {{"delivery_timeout_ms", "60000"}, nullptr},
       {{"statistics_interval_ms", "1000"}, nullptr},
       {{"transactional_id", "x"}, "Events are not sent in Kafka transactions."},
       {{"plugin_library_paths", "/tmp/x.so"}, "It would load code into the database server."},
       {{"log_queue", "false"}, nullptr},
       {{"delivery_report_only_error", "true"}, nullptr},
       {{"metadata_broker_list", "a"}, "Use option \"bootstrap_servers\"."}});
  refused(OB_FORBIDDEN, "only a superuser may set option \"$name\"",
          {{{"ssl_key_location", "/k"}, "The file is read with the rights of the database server."},
           {{"ssl_ca_location", "/k"}, nullptr},
           {{"ssl_providers", "default"}, "It loads code into the database server."},
           {{"ssl_engine_location", "/e"}, nullptr},
           {{"sasl_kerberos_kinit_cmd", "id"}, "It becomes part of a command that the database server runs."},
           {{"sasl_kerberos_principal", "$(id)"}, nullptr}});
  refused(OB_WRONG_PLACE, "option \"$name\" is a secret and cannot be an option of the server",
          {{{"sasl_password", "hush"}, readable, to_mapping},
           {{"ssl_key_pem", "hush"}, readable, to_mapping},
           {{"ssl_keystore_password", "hush"}, readable, to_mapping},
           {{"sasl_oauthbearer_client_secret", "hush"}, readable, to_mapping},
           {{"sasl_oauthbearer_config", "hush"}, readable, to_mapping}});
  refused(OB_WRONG_PLACE, "option \"$name\" belongs to the server, not to its user mapping",
          {{{"bootstrap_servers", "a"}, no_secret, to_server}, {{"linger_ms", "5"}, no_secret, to_server}},
          OB_USER_MAPPING);
}

std::set<std::string> names(ob_scope scope) {
  static const char *found[1000];
  size_t n = ob_kind("kafka")->option_names("kafka", scope, found, 1000);
  return {found, found + n};
}

TEST(KafkaOptions, NamesForAHint) {
  auto server = names(OB_SERVER);
  for (const char *name : {"bootstrap_servers", "topic", "format", "events", "linger_ms", "sasl_username"})
    EXPECT_EQ(server.count(name), 1u) << name;
  for (const char *name : {"sasl_password", "group_id", "enable_idempotence", "dr_cb"})
    EXPECT_EQ(server.count(name), 0u) << name;
  auto mapping = names(OB_USER_MAPPING);
  for (const char *name : {"sasl_username", "sasl_password", "ssl_key_pem"})
    EXPECT_EQ(mapping.count(name), 1u) << name;
  EXPECT_EQ(mapping.count("linger_ms"), 0u);
}

TEST(KafkaOptions, Defaults) {
  ob_common common;
  ob_error error;
  ASSERT_TRUE(border::common_options("kafka", good, &common, &error));
  EXPECT_EQ(common.default_max_attempts, 10);
  EXPECT_STREQ(common.default_retry, "100ms..5min");
}

class KafkaChecker : public testing::Test {
protected:
  void open(door::OptionList options = {}) {
    options.insert(options.begin(), good[0]);
    checker = border::checker_open("kafka", options, nullptr, &error);
    ASSERT_NE(checker, nullptr) << error.message;
  }
  ~KafkaChecker() override { ob_release(checker); }
  bool check() {
    ob_event raw = event.raw();
    return border::check(checker, raw, &error);
  }
  ob_checker *checker = nullptr;
  door::Event event;
  ob_error error{};
};

TEST_F(KafkaChecker, TopicsMustBeLegal) {
  open();
  EXPECT_TRUE(check()) << error.message;
  event.aggregate_type = "My Order";
  EXPECT_FALSE(check());
  EXPECT_EQ(error.kind, OB_BAD_VALUE);
  EXPECT_STREQ(error.message, "\"outbox.event.My Order\" is not a legal topic name");
  EXPECT_STREQ(error.detail,
               "A Kafka topic's name has 1 to 249 characters: letters, digits, \".\", \"_\" and \"-\".");
  EXPECT_STREQ(error.hint, "Change the event's aggregate_type, or option \"topic\" of the sink.");
  event.aggregate_type = std::string(236, 'x');
  EXPECT_TRUE(check());
  event.aggregate_type += "x";
  EXPECT_FALSE(check());
}

TEST_F(KafkaChecker, AFixedTopicTakesAnyAggregate) {
  open({{"topic", "events"}});
  event.aggregate_type = "My Order";
  EXPECT_TRUE(check()) << error.message;
}

TEST_F(KafkaChecker, ATopicMadeOfNothingIsNone) {
  open({{"topic", "${aggregate_type}"}});
  event.aggregate_type = "";
  EXPECT_FALSE(check());
  event.aggregate_type = "..";
  EXPECT_FALSE(check());
}

TEST_F(KafkaChecker, HeadersMustNotForgeOthers) {
  open();
  event.headers = {{"trace", "a\r\nb"}};
  EXPECT_FALSE(check());
  EXPECT_STREQ(error.subject, "headers");
  EXPECT_STREQ(error.message, "value of header \"trace\" contains a line break or NUL");
}

TEST_F(KafkaChecker, SizeCountsKeyAndHeaders) {
  open({{"message_max_bytes", "2000"}, {"additional_placement", ""}});
  EXPECT_EQ(checker->max_payload, 2000u - 38);
  event.key = std::string(100, 'k');
  event.headers = {{"name", std::string(96, 'v')}};
  event.payload = std::string(2000 - 38 - 100 - 100, 'p');
  EXPECT_TRUE(check()) << error.detail;
  event.payload += "p";
  EXPECT_FALSE(check());
  EXPECT_EQ(error.kind, OB_TOO_LARGE);
  EXPECT_STREQ(error.message, "event is too large for a Kafka message");
  EXPECT_STREQ(error.detail, "With its key and headers it has 2001 bytes, and at most 2000 are allowed.");
  EXPECT_NE(std::string(error.hint).find("\"message_max_bytes\""), std::string::npos);
}

TEST_F(KafkaChecker, ATombstoneIsRefusedOnlyWhenItIsNew) {
  open();
  event.has_payload = false;
  ob_event raw = event.raw();
  EXPECT_FALSE(border::check_new(checker, raw, &error));
  EXPECT_EQ(error.kind, OB_BAD_VALUE);
  EXPECT_STREQ(error.message, "payload is NULL, and the sink sends no tombstones");
  EXPECT_TRUE(check()) << error.message;
  event.has_payload = true;
  event.aggregate_type = "My Order";
  raw = event.raw();
  EXPECT_FALSE(border::check_new(checker, raw, &error)) << "what can never be sent is refused when it is new too";
}

TEST_F(KafkaChecker, OnlyTheLengthOfThePayloadCounts) {
  open();
  ob_event raw = event.raw();
  raw.payload = {nullptr, 2'000'000};
  EXPECT_FALSE(border::check(checker, raw, &error));
  EXPECT_EQ(error.kind, OB_TOO_LARGE);
}

}  // namespace
