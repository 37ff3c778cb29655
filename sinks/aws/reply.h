/* reply.h: reads the body of an answer, JSON of SQS and EventBridge or XML of SNS, into one form. */
#pragma once

#include <string>
#include <vector>

#include "target.h"

namespace outbox::aws_sink {

/* The answer about one entry of a batch. */
struct EntryReply {
  std::string id; /* empty from EventBridge, which answers in the request's order */
  std::string code, message;
  std::string name; /* by which AWS knows the message: "MessageId …", of EventBridge "EventId …" */
  bool sent = false;
  bool sender_fault = false;
};

struct Reply {
  bool valid = false;        /* the body is what the service answers with */
  std::string code, message; /* of an error of the whole request; `code` is empty if there is none */
  std::vector<EntryReply> entries;
};

/* Throws only std::bad_alloc. */
Reply read_reply(Service service, const std::string &body);

}  // namespace outbox::aws_sink
