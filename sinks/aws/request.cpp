/*
 * request.cpp: SQS and EventBridge speak AWS's JSON protocol, whose operation is a header; SNS speaks the query
 * protocol, whose operation is a parameter of a form.
 */
#include "request.h"

#include "delivery/formats/json_text.h"

namespace outbox::aws_sink {
namespace {

constexpr const char *sns_version = "2010-03-31";

aws::Headers json_headers(Service service, const char *operation) {
  const bool sqs = service == Service::Sqs;
  return {{"content-type", sqs ? "application/x-amz-json-1.0" : "application/x-amz-json-1.1"},
          {"x-amz-target", std::string(sqs ? "AmazonSQS." : "AWSEvents.") + operation}};
}

aws::Headers form_headers() {
  return {{"content-type", "application/x-www-form-urlencoded; charset=utf-8"}};
}

std::string json_member(const char *name, const std::string &value) {
  std::string member = "{\"" + std::string(name) + "\":";
  append_json_string(value, member);
  return member;
}

std::string form(const char *operation, const std::string &topic) {
  std::string body = "Action=" + std::string(operation) + "&Version=" + sns_version + "&TopicArn=";
  aws::append_uri_encoded(topic, body);
  return body;
}

}  // namespace

Content batch_request(const Target &target, const std::vector<const Fields *> &entries) {
  Content content;
  std::string &body = content.body;
  if (target.service == Service::Sns) {
    content.headers = form_headers();
    body = form("PublishBatch", target.id);
    for (size_t i = 0; i < entries.size(); i++) {
      const std::string prefix = "&PublishBatchRequestEntries.member." + std::to_string(i + 1) + ".";
      body.append(prefix).append("Id=").append(std::to_string(i));
      for (const std::string &field : *entries[i])
        body.append(prefix).append(field);
    }
    return content;
  }
  const bool sqs = target.service == Service::Sqs;
  content.headers = json_headers(target.service, sqs ? "SendMessageBatch" : "PutEvents");
  body = sqs ? json_member("QueueUrl", target.id) + ",\"Entries\":[" : "{\"Entries\":[";
  for (size_t i = 0; i < entries.size(); i++) {
    body.append(i == 0 ? "{" : ",{");
    if (sqs)
      body.append("\"Id\":\"").append(std::to_string(i)).append("\"");
    for (size_t field = 0; field < entries[i]->size(); field++)
      body.append(sqs || field > 0 ? "," : "").append((*entries[i])[field]);
    body += '}';
  }
  body += "]}";
  return content;
}

Content question(const Target &target) {
  switch (target.service) {
  case Service::Sqs:
    return {json_member("QueueUrl", target.id) + ",\"AttributeNames\":[\"QueueArn\"]}",
            json_headers(target.service, "GetQueueAttributes")};
  case Service::Sns:
    return {form("GetTopicAttributes", target.id), form_headers()};
  case Service::EventBridge:
    break;
  }
  return {json_member("Name", target.id) + "}", json_headers(target.service, "DescribeEventBus")};
}

bool asks_for_bus(std::string_view body) {
  return body.starts_with("{\"Name\":");
}

}  // namespace outbox::aws_sink
