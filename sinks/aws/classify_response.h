/*
 * classify_response.h: what an answer of AWS means for each message of a batch, and for the sink. Pure functions.
 */
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "delivery/engine/sink.h"
#include "reply.h"
#include "target.h"

namespace outbox::aws_sink {

/* Why AWS refuses a request or an entry of it. */
enum class Cause {
  Throttled,    /* too many requests */
  Clock,        /* signed at a time that AWS takes for wrong */
  Expired,      /* the session token */
  Credentials,  /* unknown keys, or a signature that does not match them */
  Denied,       /* a right is missing, of the target or of its KMS key */
  Missing,      /* the target is not there */
  Message,      /* what is sent is invalid */
  ServiceError, /* AWS cannot do it now */
  Unknown
};

struct Fault {
  std::string code, message; /* as AWS says them */
  long status = 0;           /* of HTTP; 0: of an entry in an answer that is a success */
  bool is_none() const { return code.empty() && message.empty() && status / 100 == 2; }
};
Cause cause_of(const Fault &fault);

/* The next step for a user; empty if there is none. */
std::string remedy(Cause cause, const Target &target);
/* "Amazon SQS: QueueDoesNotExist: The specified queue does not exist" */
std::string fact_of(const Fault &fault, const Target &target);

struct HttpReply {
  long status = 0;
  const std::string &body;
  std::string_view error_type = {}; /* the header x-amzn-errortype */
};

/* Of the request as a whole. */
Fault fault_of(const Target &target, const HttpReply &http);

struct BatchOutcome {
  std::vector<Verdict> verdicts; /* one for each message of the batch */
  std::optional<Cause> whole;    /* why the request as a whole was refused */
  bool all_sent() const;
  /* Any one of the messages may be to blame: send each alone. */
  bool blames_one() const { return whole == Cause::Message && verdicts.size() > 1; }
};

/* A batch of `n` messages was answered. */
BatchOutcome classify_response(const Target &target, size_t n, const HttpReply &http);
/* By which AWS knows each of the `n` messages: "MessageId …", of EventBridge "EventId …"; empty where the answer does
 * not say it. */
std::vector<std::string> names_given(const Target &target, size_t n, const std::string &body);

}  // namespace outbox::aws_sink
