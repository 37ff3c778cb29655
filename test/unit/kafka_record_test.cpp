/* The record of an event: topic, partition, key, value, headers and timestamp with each option. Pure functions. */
#include "sinks/kafka/kafka_record.h"

#include <gtest/gtest.h>

#include "delivery/base/uuid.h"
#include "sinks/kafka/kafka_config.h"
#include "bad_input.h"
#include "door.h"

using namespace outbox;

namespace {

using Headers = std::vector<std::pair<std::string, std::optional<std::string>>>;

std::optional<std::string> str(const ob_text &text) {
  if (!text.data)
    return std::nullopt;
  return std::string(text.data, text.len);
}

struct Made {
  std::string topic;
  int32_t partition;
  std::optional<std::string> key, value;
  Headers headers;
  int64_t timestamp_ms;
};

class KafkaRecord : public testing::Test {
protected:
  KafkaRecord() { ob_set_origin("shop", 3); }

  Made make(const Options &options) {
    KafkaRecordMaker maker(KafkaRecordOptions::parse(options));
    maker.make(event.raw(), record);
    Made made{record.topic, record.partition, str(record.key), str(record.value), {}, record.timestamp_ms};
    for (const ob_header &header : record.headers)
      made.headers.emplace_back(str(header.name).value(), str(header.value));
    return made;
  }
  std::optional<std::string> value(const Options &options) { return make(options).value; }

  /* The error for these options, or for this event with them. */
  static std::string error_of(const std::function<void()> &body, std::string *rest = nullptr) {
    BadInput bad = bad_input_of(body);
    EXPECT_EQ(bad.kind, *bad.what() ? OB_BAD_VALUE : OB_OK);
    if (rest)
      *rest = bad.detail + " " + bad.hint;
    return bad.what();
  }
  static std::string refused(const Options &options, std::string *rest = nullptr) {
    return error_of([&] { KafkaRecordMaker maker(KafkaRecordOptions::parse(options)); }, rest);
  }
  /* The record of an event that is in the table. */
  std::string check(const Options &options, std::string *rest = nullptr) {
    KafkaRecordMaker maker(KafkaRecordOptions::parse(options));
    return error_of(
        [&] {
          ob_event raw = event.raw();
          if (raw.payload.data) /* at enqueue time the payload must not be read */
            raw.payload.data = reinterpret_cast<const char *>(16);
          maker.check(raw);
        },
        rest);
  }
  /* The record of an event that is being enqueued. */
  std::string check_new(const Options &options, std::string *rest = nullptr) {
    KafkaRecordMaker maker(KafkaRecordOptions::parse(options));
    return error_of([&] { maker.check_new(event.raw()); }, rest);
  }

  door::Event event;
  Record record; /* reused, as a sink does */
};

const Headers default_headers = {{"id", door::event_id}, {"eventType", "order.created"}};

TEST_F(KafkaRecord, DefaultsAreDebeziumsWithStringConvertersAndTheEventType) {
  event.headers = {{"traceparent", "00-1"}, {"id", "mine"}};
  Made made = make({});
  EXPECT_EQ(made.topic, "outbox.event.Order");
  EXPECT_EQ(made.partition, -1);
  EXPECT_EQ(made.key, "7");
  EXPECT_EQ(made.value, R"({"total": 12.5})");
  EXPECT_EQ(made.headers, (Headers{{"id", door::event_id}, {"eventType", "order.created"}, {"traceparent", "00-1"}}))
      << "id is said once";
  EXPECT_EQ(made.timestamp_ms, 0) << "a topic would delete what is sent later than its retention";
  EXPECT_EQ(make({{"timestamp", "now"}}).timestamp_ms, 0);
  EXPECT_EQ(make({{"timestamp", "created_at"}}).timestamp_ms, 1614265330000);
}

TEST_F(KafkaRecord, TheDefaultEventTypeGivesWay) {
  EXPECT_EQ(make({{"additional_placement", ""}}).headers, (Headers{{"id", door::event_id}}));
  EXPECT_EQ(make({{"additional_placement", "event_type:header:kind"}}).headers,
            (Headers{{"id", door::event_id}, {"kind", "order.created"}}));
  event.headers = {{"eventType", "OrderCreated"}};
  EXPECT_EQ(make({}).headers, (Headers{{"id", door::event_id}, {"eventType", "OrderCreated"}})) << "the event's own";
}

TEST_F(KafkaRecord, NullsStayNulls) {
  event.has_key = event.has_payload = false;
  for (const char *key : {"raw", "json", "connect_json", "base64"}) {
    Made made = make({{"key_format", key}});
    EXPECT_EQ(made.key, std::nullopt);
    EXPECT_EQ(made.value, std::nullopt);
    EXPECT_EQ(made.headers, default_headers);
  }
}

TEST_F(KafkaRecord, TemplatesOfTopicKeyAndPartition) {
  event.headers = {{"tenant", "42"}};
  event.has_seq = true;
  event.seq = -5;
  Made made = make({{"topic", "${database}.${event_type}-${header.tenant}"},
                    {"key", "${aggregate_type}/${aggregate_id}/${id}/${seq}/${position}/${created_at}"},
                    {"partition", "1${header.tenant}"}});
  EXPECT_EQ(made.topic, "shop.order.created-42");
  EXPECT_EQ(made.key, "Order/7/" + std::string(door::event_id) + "/-5/1/2021-02-25T15:02:10.000123Z");
  EXPECT_EQ(made.partition, 142);
  EXPECT_EQ(make({{"key", "${event_type}"}}).key, "order.created");
  EXPECT_EQ(make({{"key", "fixed"}}).key, "fixed");
  EXPECT_EQ(make({{"key", ""}}).key, "");
  EXPECT_EQ(make({{"partition", "0"}}).partition, 0);
}

TEST_F(KafkaRecord, WhatHasNoValueIsNoTopicAndNoPartitionButANullKey) {
  std::string rest;
  EXPECT_EQ(make({{"key", "${header.tenant}"}}).key, std::nullopt);
  EXPECT_EQ(make({{"key", "a-${dedup_key}"}}).key, std::nullopt);
  EXPECT_EQ(check({{"topic", "x.${header.tenant}"}}, &rest), "event has no value for ${header.tenant}");
  EXPECT_EQ(rest, "Option \"topic\" of the sink needs one. Give the event one, or change the option.");
  EXPECT_EQ(check({{"partition", "${seq}"}}), "event has no value for ${seq}");
  event.headers = {{"tenant", "a b"}, {"shard", "-1"}};
  EXPECT_EQ(check({{"topic", "x.${header.tenant}"}}, &rest), "\"x.a b\" is not a legal topic name");
  EXPECT_NE(rest.find("Change the event's header.tenant, or option \"topic\" of the sink."), rest.npos) << rest;
  for (const char *shard : {"-1", "", "1.5", "2147483648", "x", " 1"}) {
    event.headers = {{"shard", shard}};
    EXPECT_EQ(check({{"partition", "${header.shard}"}}, &rest), "\"" + std::string(shard) + "\" is not a partition");
    EXPECT_EQ(rest, "A partition is a whole number from 0 to 2147483647. Change what the event has for it, or the "
                    "options of the sink.");
  }
  event.headers = {{"shard", "2147483647"}};
  EXPECT_EQ(check({{"partition", "${header.shard}"}}), "");
}

TEST_F(KafkaRecord, KeyFormats) {
  event.key = "a\"😀";
  EXPECT_EQ(make({{"key_format", "raw"}}).key, "a\"😀");
  EXPECT_EQ(make({{"key_format", "json"}}).key, R"("a\"\uD83D\uDE00")");
  EXPECT_EQ(make({{"key_format", "connect_json"}}).key,
            R"({"schema":{"type":"string","optional":false},"payload":"a\"\uD83D\uDE00"})");
  event.key = "AP8K";
  EXPECT_EQ(make({{"key_format", "base64"}}).key, std::string("\0\xff\n", 3));
  event.key = "";
  EXPECT_EQ(make({{"key_format", "base64"}}).key, "");
  EXPECT_EQ(make({{"key_format", "json"}}).key, "\"\"");
  std::string rest;
  for (const char *bad : {"A", "AP8*", "AP 8K", "AP8K=", "===="}) {
    event.key = bad;
    EXPECT_EQ(check({{"key_format", "base64"}}, &rest), "key of the event is not base64") << bad;
  }
  EXPECT_EQ(rest, "Option \"key_format\" of the sink is \"base64\", and the key is \"====\". Give the event a "
                  "partition_key in base64, or change the option.");
  std::string letters;
  for (int i = 0; i < 60; i++)
    letters += "\u00e9";
  event.key = "a" + letters;
  check({{"key_format", "base64"}}, &rest);
  EXPECT_NE(rest.find("the key is \"a" + letters.substr(0, 98) + "\"."), rest.npos) << "cut at a character: " << rest;
}

TEST_F(KafkaRecord, ValueFormats) {
  event.payload = R"({"a": null, "b": "😀"})";
  EXPECT_EQ(value({{"value_format", "raw"}}), event.payload);
  EXPECT_EQ(value({{"value_format", "json_string"}}), R"("{\"a\": null, \"b\": \"\uD83D\uDE00\"}")");
  EXPECT_EQ(value({{"value_format", "json_compact"}}), R"({"a":null,"b":"\uD83D\uDE00"})");
  EXPECT_EQ(value({{"value_format", "json_compact"}, {"null_behavior", "ignore"}}), R"({"b":"\uD83D\uDE00"})");
  EXPECT_EQ(value({{"value_format", "connect_json"}}),
            R"({"schema":{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1},)"
            R"("payload":"{\"a\": null, \"b\": \"\uD83D\uDE00\"}"})");
  EXPECT_EQ(check({{"value_format", "bytes"}}), "event has a JSON payload, and the sink takes bytes");
}

TEST_F(KafkaRecord, BytesPassUntouchedWhateverTheFormat) {
  event.payload = std::string("\0\0\0\0\x07\xff\n\"", 8); /* framed as Confluent's serializers do */
  event.payload_is_bytes = true;
  for (const char *format : {"raw", "json_string", "json_compact", "connect_json", "bytes"}) {
    EXPECT_EQ(value({{"value_format", format}}), event.payload) << format;
    EXPECT_EQ(check({{"value_format", format}}), "");
  }
  EXPECT_EQ(value({{"format", "raw"}}), event.payload);
  EXPECT_EQ(value({{"format", "cloudevents"}}), event.payload);
  EXPECT_EQ(value({{"value_format", "json_compact"}, {"additional_placement", "id:envelope"}}),
            R"({"payload":"AAAAAAf/CiI=","id":")" + std::string(door::event_id) + "\"}");
  event.payload = "";
  EXPECT_EQ(value({{"value_format", "bytes"}}), "") << "empty is not NULL";
}

TEST_F(KafkaRecord, ATombstoneIsOneUnlessTheOptionSaysOtherwise) {
  event.has_payload = false;
  const Options envelope = {{"additional_placement", "event_type:envelope:eventType"},
                            {"value_format", "json_compact"}};
  for (const char *format : {"raw", "json_string", "json_compact", "connect_json", "bytes"}) {
    EXPECT_EQ(value({{"value_format", format}}), std::nullopt) << format;
    EXPECT_EQ(check({{"value_format", format}}), "");
  }
  EXPECT_EQ(value(envelope), std::nullopt);

  const std::pair<const std::string, std::string> no = {"tombstone_on_empty_payload", "false"};
  EXPECT_EQ(value({no, {"value_format", "raw"}}), std::nullopt) << "a string converter knows no null";
  EXPECT_EQ(value({no, {"value_format", "bytes"}}), std::nullopt);
  EXPECT_EQ(value({no, {"value_format", "json_string"}}), "null");
  EXPECT_EQ(value({no, {"value_format", "json_compact"}}), "null");
  EXPECT_EQ(
      value({no, {"value_format", "connect_json"}}),
      R"({"schema":{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1},"payload":null})");
  Options both = envelope;
  both.insert(no);
  EXPECT_EQ(value(both), R"({"payload":null,"eventType":"order.created"})");
}

TEST_F(KafkaRecord, ANewEventMayBeATombstoneWhereTheSinkSaysSo) {
  const std::string refusal = "payload is NULL, and the sink sends no tombstones";
  event.has_payload = false;
  for (const char *format : {"raw", "json_string", "json_compact", "connect_json", "bytes"}) {
    Options options = {{"value_format", format}};
    std::string rest;
    EXPECT_EQ(check_new(options, &rest), refusal) << format;
    EXPECT_NE(rest.find("\"tombstone_on_empty_payload\""), std::string::npos) << rest;
    EXPECT_EQ(check(options), "") << format << ": what is in the table is sent";
    options["tombstone_on_empty_payload"] = "true";
    EXPECT_EQ(check_new(options), "") << format;
    options["tombstone_on_empty_payload"] = "false";
    bool has_null = format != std::string("raw") && format != std::string("bytes");
    EXPECT_EQ(check_new(options), has_null ? "" : refusal) << format;
    EXPECT_EQ(check(options), "") << format;
  }
  EXPECT_EQ(check_new({{"format", "raw"}}), refusal);
  EXPECT_EQ(check_new({{"format", "raw"}, {"tombstone_on_empty_payload", "false"}}), refusal);
  EXPECT_EQ(check_new({{"format", "raw"}, {"tombstone_on_empty_payload", "true"}}), "");
  for (const char *format : {"cloudevents", "cloudevents-structured"})
    EXPECT_EQ(check_new({{"format", format}}), "") << "an event without data";

  event.has_payload = true;
  event.payload = "";
  EXPECT_EQ(check_new({{"value_format", "bytes"}}), "") << "empty is not NULL";
}

TEST_F(KafkaRecord, HeadersArePlacedInTheOrderOfTheOption) {
  event.headers = {{"tenant", "acme"}, {"eventType", "forged"}, {"other", "o"}};
  Made made = make({{"additional_placement",
                     "type:header:eventType, aggregateid:header,dedup_key:header:dedup,header.tenant:header:"
                     "x-tenant, header.none:header, position:header"}});
  EXPECT_EQ(made.headers, (Headers{{"id", door::event_id},
                                   {"eventType", "order.created"},
                                   {"aggregateid", "7"},
                                   {"dedup", std::nullopt}, /* as Debezium sends NULL */
                                   {"x-tenant", "acme"},
                                   {"none", std::nullopt}, /* the event does not have this either */
                                   {"position", "1"},
                                   {"other", "o"}}));
  EXPECT_EQ(make({{"additional_placement", "id:header"}}).headers.size(), 5u) << "twice, as Debezium sends it";
}

TEST_F(KafkaRecord, ColumnsInTheEnvelope) {
  event.headers = {{"tenant", "a\"b"}};
  event.has_seq = true;
  event.seq = 9007199254740993;
  const char *columns = "type:envelope:eventType, seq:envelope, dedup_key:envelope, header.tenant:envelope, "
                        "created_at:envelope, aggregate_id:header";
  const char *rest = R"("eventType":"order.created","seq":9007199254740993,"dedup_key":null,"tenant":"a\"b",)"
                     R"("created_at":"2021-02-25T15:02:10.000123Z"})";
  Made made = make({{"additional_placement", columns}, {"value_format", "json_string"}});
  EXPECT_EQ(made.value, R"({"payload":"{\"total\": 12.5}",)" + std::string(rest));
  EXPECT_EQ(made.headers, (Headers{{"id", door::event_id}, {"aggregate_id", "7"}})) << "tenant is in the envelope";
  EXPECT_EQ(value({{"additional_placement", columns}, {"value_format", "json_compact"}}),
            R"({"payload":{"total":12.5},)" + std::string(rest));
}

TEST_F(KafkaRecord, AColumnIsThePartition) {
  const Options options = {{"additional_placement", "header.shard:partition"}};
  EXPECT_EQ(make(options).partition, -1) << "NULL: by the key";
  event.headers = {{"shard", "3"}};
  Made made = make(options);
  EXPECT_EQ(made.partition, 3);
  EXPECT_EQ(made.headers, (Headers{{"id", door::event_id}})) << "shard is the partition";
}

TEST_F(KafkaRecord, RawHasNothingButTheIdBeside) {
  event.headers = {{"tenant", "acme"}};
  EXPECT_EQ(make({{"format", "raw"}}).headers, (Headers{{"id", door::event_id}, {"tenant", "acme"}}));
  event.content_type = "application/x-protobuf";
  EXPECT_EQ(make({{"format", "raw"}}).headers,
            (Headers{{"id", door::event_id}, {"content-type", "application/x-protobuf"}, {"tenant", "acme"}}));
  EXPECT_EQ(make({{"additional_placement", ""}}).headers, (Headers{{"id", door::event_id}, {"tenant", "acme"}}));
  event.headers = {{"id", "mine"}};
  EXPECT_EQ(make({{"format", "raw"}, {"additional_placement", "id:header:event-id"}}).headers,
            (Headers{{"content-type", "application/x-protobuf"}, {"event-id", door::event_id}, {"id", "mine"}}))
      << "the id went elsewhere";
}

TEST_F(KafkaRecord, BinaryHeadersArriveByteForByte) {
  event.headers = {{"__value_schema_id", std::string("\x01\0\r\n\xff", 5)}};
  event.binary_headers = true;
  EXPECT_EQ(make({}).headers.back(), (Headers::value_type{"__value_schema_id", std::string("\x01\0\r\n\xff", 5)}));
  EXPECT_EQ(
      value({{"value_format", "json_compact"}, {"additional_placement", "header.__value_schema_id:envelope:schema"}}),
      R"({"payload":{"total":12.5},"schema":"AQANCv8="})");
  EXPECT_EQ(make({{"key", "${header.__value_schema_id}"}}).key, std::string("\x01\0\r\n\xff", 5));
}

TEST_F(KafkaRecord, MistakesInOptionsAreToldAtOnce) {
  const std::string syntax = "Expected a comma-separated list of column:place or column:place:alias, where place is "
                             "header, envelope or partition.";
  auto refuses = [](const Options &options, const std::string &message, const std::string &rest = {}) {
    std::string found;
    EXPECT_EQ(refused(options, &found), message);
    if (!rest.empty()) {
      EXPECT_EQ(found, rest);
    }
  };
  auto with = [](const char *headers) {
    return Options{{"value_format", "json_string"}, {"additional_placement", headers}};
  };
  auto headers = [&](const char *value, const std::string &why, const std::string &rest = {}) {
    refuses(with(value), "invalid value for option \"additional_placement\": " + why, rest);
  };
  auto meaningless = [&](const Options &options, const std::string &name, const std::string &rest = {}) {
    refuses(options, "option \"" + name + "\" has no meaning here", rest);
  };
  refuses({{"format", "avro"}}, "invalid value for option \"format\": \"avro\"",
          "Expected one of: debezium, cloudevents, cloudevents-structured, raw. ");
  refuses({{"key_format", "avro"}}, "invalid value for option \"key_format\": \"avro\"",
          "Expected one of: raw, json, connect_json, base64. ");
  refuses({{"value_format", "json"}}, "invalid value for option \"value_format\": \"json\"",
          "Expected one of: raw, json_string, json_compact, connect_json, bytes. ");
  meaningless({{"format", "cloudevents"}, {"value_format", "raw"}}, "value_format",
              "It says how format \"debezium\" writes a payload, and the format is another. ");
  meaningless({{"format", "cloudevents"}, {"tombstone_on_empty_payload", "true"}}, "tombstone_on_empty_payload");
  meaningless({{"null_behavior", "keep"}}, "null_behavior", "It is about value_format \"json_compact\". ");
  meaningless({{"source", "/x"}}, "source", "It is an attribute of CloudEvents, and the format is another. ");
  meaningless({{"additional_placement", "seq:partition"}, {"partition", "1"}}, "partition",
              "Option \"additional_placement\" names a column that is the partition. ");
  for (const Options &options : {Options{{"additional_placement", "type:envelope"}},
                                 {{"additional_placement", "type:envelope"}, {"value_format", "connect_json"}}})
    refuses(options, "an envelope needs value_format \"json_string\" or \"json_compact\"");
  refuses({{"additional_placement", "type:envelope"}, {"format", "cloudevents"}},
          "only format \"debezium\" has an envelope");
  headers("type", "\"type\"", syntax + " Example: 'event_type:header:eventType, header.tenant:envelope'.");
  headers(",", "\"\"");
  headers("type:header,", "\"\"");
  headers("type:header:a:b", "\"type:header:a:b\"");
  headers("type:body", "unknown place \"body\"");
  headers("event_typ:header", "unknown column \"event_typ\"",
          " Perhaps you meant \"event_type\". Known columns are aggregate_type, aggregate_id, event_type, "
          "partition_key, dedup_key, content_type, id, seq, position, created_at, database, timeline, header.NAME.");
  headers("type:header:", "\"type:header:\"", "The alias is empty. ");
  headers("seq:partition:p", "\"seq:partition:p\"", "A partition has no alias. ");
  headers("type:envelope:payload", "\"type:envelope:payload\"");
  headers("type:header:a, seq:header:a", "\"a\" is given twice",
          "Two headers would have this name. Give one of them an alias: column:place:alias.");
  headers("type:envelope, event_type:envelope:type", "\"type\" is given twice",
          "Two members of the envelope would have this name. Give one of them an alias: column:place:alias.");
  headers("type:header:id", "\"id\" is given twice",
          "The format itself sends a header of this name. Give the column another alias: column:header:alias.");
  refuses({{"additional_placement", "type:header:ce_type"}, {"format", "cloudevents"}},
          "invalid value for option \"additional_placement\": \"ce_type\" is given twice");
  headers("seq:partition, position:partition", "two columns are the partition",
          "A record goes to one partition. Leave one of them out.");
  refuses(with("type:header:a\nb"), "header name \"a?b\" contains a line break or NUL");
  EXPECT_EQ(refused(with("type:header, type:envelope")), "") << "one column may go to two places";
}

TEST_F(KafkaRecord, TheCheckCountsWhatCannotBeLess) {
  event.payload = R"({"a": 1, "b": "x"})";
  auto least = [&](const Options &options) {
    return KafkaRecordMaker(KafkaRecordOptions::parse(options)).check(event.raw());
  };
  for (const Options &options :
       {Options{}, Options{{"value_format", "json_string"}}, Options{{"value_format", "json_compact"}},
        Options{{"value_format", "json_compact"}, {"null_behavior", "ignore"}},
        Options{{"value_format", "connect_json"}}, Options{{"format", "cloudevents"}},
        Options{{"format", "cloudevents-structured"}}}) {
    KafkaRecordMaker(KafkaRecordOptions::parse(options)).make(event.raw(), record);
    EXPECT_LE(least(options), record.size() + 2); /* an empty JSON string has quotes */
    EXPECT_GE(least(options), record.key.len + event.payload.size() * (options.count("null_behavior") ? 0 : 1) / 2);
  }
  EXPECT_EQ(KafkaRecordMaker(KafkaRecordOptions::parse(Options{})).max_payload(1000), 1000u);
  EXPECT_EQ(KafkaRecordMaker(KafkaRecordOptions::parse(Options{{"value_format", "json_compact"}})).max_payload(1000),
            2000u);
  EXPECT_EQ(KafkaRecordMaker(
                KafkaRecordOptions::parse(Options{{"value_format", "json_compact"}, {"null_behavior", "ignore"}}))
                .max_payload(1000),
            SIZE_MAX);
}

TEST(Uuid, LowerCaseWithHyphens) {
  door::Event event;
  EXPECT_EQ(uuid_text(event.raw().id), door::event_id);
}

/* What a session checks without librdkafka is what the worker sends with it. */
TEST(KafkaMessages, HaveTheSizeThatLibrdkafkaTakes) {
  for (const char *bytes : {"", "1000", "0x100000", "1000000000"}) {
    Options server{{"bootstrap_servers", "localhost"}};
    if (*bytes)
      server["message_max_bytes"] = bytes;
    const KafkaConfig config(server, nullptr);
    char text[32];
    size_t size = sizeof text;
    ASSERT_EQ(rd_kafka_conf_get(config.conf().get(), "message.max.bytes", text, &size), RD_KAFKA_CONF_OK);
    EXPECT_EQ(KafkaMessages(KafkaRecordOptions(), server).max_message_bytes(), std::stoul(text)) << bytes;
  }
}

}  // namespace
