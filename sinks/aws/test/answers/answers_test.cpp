/* Answers as AWS's references show them, and what is none: which message ends how. */
#include <gtest/gtest.h>

#include "delivery/base/clean_text.h"
#include "../../classify_response.h"
#include "../../xml_reader.h"

using namespace outbox;
using namespace outbox::aws_sink;

namespace {

Target target_of(const char *value) {
  TargetOptions options;
  options.target = value;
  return Target::of(options, false);
}
const Target queue = target_of("https://sqs.eu-central-1.amazonaws.com/123456789012/orders"),
             topic = target_of("arn:aws:sns:eu-central-1:123456789012:orders"),
             bus = target_of("arn:aws:events:eu-central-1:123456789012:event-bus/orders");

BatchOutcome classified(const Target &target, size_t n, long status, const std::string &body, const char *type = "") {
  BatchOutcome batch = classify_response(target, n, {status, body, type});
  EXPECT_EQ(batch.verdicts.size(), n);
  for (const Verdict &verdict : batch.verdicts)
    EXPECT_EQ(verdict.error.empty(), verdict.outcome == Outcome::Sent) << verdict.error;
  return batch;
}

std::string xml(const std::string &result) {
  return "<?xml version=\"1.0\"?>\n<PublishBatchResponse xmlns=\"http://sns.amazonaws.com/doc/2010-03-31/\">"
         "<PublishBatchResult>" +
         result +
         "</PublishBatchResult><ResponseMetadata><RequestId>1</RequestId>"
         "</ResponseMetadata></PublishBatchResponse>";
}

}  // namespace

TEST(Answers, OfAQueueInAnyOrder) {
  auto batch = classified(queue, 4, 200, R"({"Failed":[{"Id":"2","SenderFault":true,"Code":"InvalidMessageContents",
    "Message":"bad \u00e4"},{"Id":"0","SenderFault":false,"Code":"InternalError"}],
    "Successful":[{"Id":"1","MessageId":"x","MD5OfMessageBody":"y","New":{"a":[1]}}]})");
  EXPECT_EQ(batch.verdicts[0].outcome, Outcome::RetryBlameSink);
  EXPECT_EQ(batch.verdicts[1].outcome, Outcome::Sent);
  EXPECT_EQ(batch.verdicts[2].outcome, Outcome::Rejected);
  EXPECT_EQ(text_to_show(batch.verdicts[2].error, {}), "Amazon SQS: InvalidMessageContents: bad \u00e4");
  EXPECT_EQ(batch.verdicts[3].outcome, Outcome::RetryBlameSink) << "the answer says nothing of it";
}

TEST(Answers, NumbersThatNoMessageHas) {
  auto batch = classified(queue, 1, 200, R"({"Successful":[{"Id":"1","MessageId":"x"},{"Id":"-1","MessageId":"x"},
    {"Id":"0x","MessageId":"x"},{"Id":"","MessageId":"x"},{"MessageId":"x"}]})");
  EXPECT_EQ(batch.verdicts[0].outcome, Outcome::RetryBlameSink);
}

/* Only a message with an id of AWS is stored, and none that the same answer calls failed. */
TEST(Answers, ThatSayNothingOfAMessage) {
  struct {
    const Target &target;
    std::string body;
  } const cases[] = {
      {queue, R"({})"},
      {queue, R"({"Successful":[]})"},
      {queue, R"({"Successful":[{"Id":"0"}]})"},
      {queue, R"({"Successful":[{"Id":"0","MessageId":""}]})"},
      {queue, R"({"Successful":[{"Id":"0","MessageId":null}]})"},
      {queue, R"({"Successful":[{"Id":"0","MessageId":7}]})"},
      {queue, R"({"Successful":[{"Id":"0","MessageId":"x","Code":"InternalError"}]})"},
      {queue, R"({"Failed":[{"Id":"0"}],"Successful":[{"Id":"0","MessageId":"x"}]})"},
      {queue, R"({"Successful":[{"Id":"0","MessageId":"x"}],"Failed":[{"Id":"0"}]})"},
      {queue, R"({"Failed":[{"Id":"0","MessageId":"x"}]})"},
      {topic, xml("")},
      {topic, xml("<Successful></Successful>")},
      {topic, xml("<Successful><member><Id>0</Id></member></Successful>")},
      {topic, xml("<Successful><member><Id>0</Id><MessageId/></member></Successful>")},
      {bus, R"({"FailedEntryCount":0})"},
      {bus, R"({"FailedEntryCount":0,"Entries":[{}]})"},
      {bus, R"({"FailedEntryCount":0,"Entries":[{"EventId":""}]})"},
      {bus, R"({"FailedEntryCount":0,"Entries":[{"EventId":true}]})"},
      {bus, R"({"FailedEntryCount":0,"Entries":[{"EventId":"1"},{"EventId":"2"}]})"},
  };
  for (const auto &each : cases)
    EXPECT_EQ(classified(each.target, 1, 200, each.body).verdicts[0].outcome, Outcome::RetryBlameSink) << each.body;
  EXPECT_EQ(classified(queue, 1, 200, R"({"Successful":[{"Id":"0","MessageId":"x"}],"N":1e999,)").verdicts[0].outcome,
            Outcome::Refused)
      << "the reading ended at a number";
}

TEST(Answers, OfATopic) {
  auto batch = classified(
      topic, 3, 200,
      xml("<Failed><member><Id>1</Id><Code>InternalError</Code><Message>a &lt;b&gt; &amp; "
          "c</Message><SenderFault>false"
          "</SenderFault></member></Failed><Successful><member><MessageId>m</MessageId><Id>2</Id><SequenceNumber>1"
          "</SequenceNumber></member><member><Id>0</Id><MessageId>n</MessageId></member></Successful>"));
  EXPECT_EQ(batch.verdicts[0].outcome, Outcome::Sent);
  EXPECT_EQ(text_to_show(batch.verdicts[1].error, {}), "Amazon SNS: InternalError: a <b> & c");
  EXPECT_EQ(batch.verdicts[2].outcome, Outcome::Sent);
}

TEST(Answers, OfABusInTheOrderOfTheRequest) {
  auto batch = classified(bus, 3, 200, R"({"FailedEntryCount":2,"Entries":[{"ErrorCode":"ThrottlingException",
    "ErrorMessage":"slow"},{"EventId":"1"},{"ErrorCode":"MalformedDetail","ErrorMessage":"x"}]})");
  EXPECT_EQ(batch.verdicts[0].outcome, Outcome::Deferred);
  EXPECT_EQ(batch.verdicts[1].outcome, Outcome::Sent);
  EXPECT_EQ(batch.verdicts[2].outcome, Outcome::Rejected);
}

TEST(Answers, OfARequestThatFails) {
  struct {
    const Target &target;
    long status;
    std::string body;
    Cause cause;
    Outcome outcome;
  } const cases[] = {
      {queue, 400, R"({"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"gone"})", Cause::Missing,
       Outcome::SinkDown},
      {queue, 400, R"({"__type":"AWS.SimpleQueueService.NonExistentQueue","Message":"gone"})", Cause::Missing,
       Outcome::SinkDown},
      {queue, 403, R"({"__type":"com.amazon.coral.service#AccessDeniedException","Message":"no"})", Cause::Denied,
       Outcome::SinkDown},
      {queue, 403, R"({"__type":"InvalidSignatureException","message":"Signature expired: 1 is now earlier than 2"})",
       Cause::Clock, Outcome::SinkDown},
      {queue, 403, R"({"__type":"InvalidSignatureException","message":"does not match"})", Cause::Credentials,
       Outcome::SinkDown},
      {queue, 403, R"({"__type":"ExpiredTokenException:http://x#y","message":"old"})", Cause::Expired,
       Outcome::SinkDown},
      {queue, 400, R"({"__type":"com.amazonaws.sqs#RequestThrottled"})", Cause::Throttled, Outcome::SinkDown},
      {queue, 400, R"({"__type":"com.amazonaws.sqs#BatchRequestTooLong","message":"long"})", Cause::Message,
       Outcome::Returned},
      {queue, 500, R"({"__type":"InternalFailure"})", Cause::ServiceError, Outcome::RetryBlameSink},
      {queue, 503, R"({"__type":"ServiceUnavailable"})", Cause::ServiceError, Outcome::RetryBlameSink},
      {queue, 503, "", Cause::Throttled, Outcome::SinkDown},
      {queue, 502, "<html>", Cause::ServiceError, Outcome::RetryBlameSink},
      {queue, 404, "<html>", Cause::Unknown, Outcome::Refused},
      {queue, 200, "", Cause::Unknown, Outcome::Refused},
      {queue, 200, R"({"Successful":[{"Id":"0"})", Cause::Unknown, Outcome::Refused},
      {topic, 404,
       "<ErrorResponse xmlns=\"x\"><Error><Type>Sender</Type><Code>NotFound</Code><Message>gone</Message>"
       "</Error></ErrorResponse>",
       Cause::Missing, Outcome::SinkDown},
      {topic, 400, "<ErrorResponse><Error><Code>Throttling</Code></Error></ErrorResponse>", Cause::Throttled,
       Outcome::SinkDown},
      {topic, 200, xml("<Successful><member><Id>0</Id>"), Cause::Unknown, Outcome::Refused},
      {bus, 400, R"({"__type":"ResourceNotFoundException","message":"gone"})", Cause::Missing, Outcome::SinkDown},
  };
  for (const auto &each : cases) {
    auto batch = classified(each.target, 2, each.status, each.body);
    EXPECT_EQ(batch.whole, each.cause) << each.body;
    EXPECT_EQ(batch.verdicts[1].outcome, each.outcome) << each.body;
    EXPECT_EQ(batch.blames_one(), each.cause == Cause::Message);
  }
}

TEST(Answers, AMessageAloneIsToBlame) {
  auto batch = classified(queue, 1, 400, R"({"__type":"com.amazonaws.sqs#InvalidMessageContents","message":"bad"})");
  EXPECT_EQ(batch.verdicts[0].outcome, Outcome::Rejected);
  EXPECT_FALSE(batch.blames_one());
}

TEST(Answers, TheTypeInAHeader) {
  EXPECT_EQ(classified(bus, 1, 400, "", "ResourceNotFoundException:http://x").whole, Cause::Missing);
}

TEST(Xml, NoDocumentTypeAndNoEntities) {
  auto none = [](const XmlPath &, const std::string &, bool) {};
  EXPECT_TRUE(read_xml("<a><b>x</b></a>", none));
  EXPECT_FALSE(read_xml("<!DOCTYPE a [<!ENTITY x \"y\">]><a>&x;</a>", none));
  for (const char *wrong : {"", "x", "<a>", "<a></b>", "<a/><b/>", "<a>&y;</a>", "<a>\xff</a>"})
    EXPECT_FALSE(read_xml(wrong, none)) << wrong;
}

TEST(Xml, AnExceptionReachesTheCaller) {
  EXPECT_THROW(read_xml("<a><b/></a>", [](const XmlPath &, const std::string &, bool) { throw 1; }), int);
}
