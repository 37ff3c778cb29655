/*
 * grpc_status.h: what the status of a call means for the event and for the sink. Pure functions, but for the reading
 * of the answer.
 */
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "delivery/http/http_sender.h"

namespace outbox::grpc {

/* The codes of gRPC, by their numbers. */
enum class Code {
  Ok,
  Cancelled,
  Unknown,
  InvalidArgument,
  DeadlineExceeded,
  NotFound,
  AlreadyExists,
  PermissionDenied,
  ResourceExhausted,
  FailedPrecondition,
  Aborted,
  OutOfRange,
  Unimplemented,
  Internal,
  Unavailable,
  DataLoss,
  Unauthenticated
};

struct CodeRule {
  const char *name; /* as gRPC writes it: INVALID_ARGUMENT */
  Outcome outcome;
  ob_reason reason;
};
/* The rules by number; a number that gRPC does not have is UNKNOWN. */
const std::vector<CodeRule> &code_rules();

/* The status of a call that the server has answered. */
struct Status {
  Code code = Code::Unknown;
  std::string text; /* the server's, or what is wrong with the answer */
  long http = 200;
  int64_t delay_ms = -1; /* until the next attempt, as the server asks for; -1 = it does not */
};
Status status_of(const HttpTransfer &answer, CURLcode code);

/* For an answer without grpc-status. */
Code code_of_http(long status);

/* Decodes grpc-message. A % that is not followed by two hexadecimal digits stays, as gRPC requires. */
std::string percent_decoded(std::string_view text);

/* The retry_delay = 1 of a google.rpc.RetryInfo among the details = 3 of a google.rpc.Status, which is the value of
 * grpc-status-details-bin. -1 if there is none, or it is negative. */
int64_t retry_delay_ms(std::string_view base64);

/* Whether a server refuses a message by its size. gRPC's own libraries say so in a text; other servers have texts of
 * their own for a status that usually means an overload. So a large message that is refused twice, while smaller ones
 * were accepted in between, is too large. Used by one thread. */
class MessageSizes {
public:
  void accepted(size_t size);
  /* The server has answered RESOURCE_EXHAUSTED. */
  bool is_too_large(size_t size);

private:
  size_t largest_accepted_ = 0, smallest_refused_ = SIZE_MAX;
  bool accepted_since_ = false; /* since smallest_refused_ was refused */
};

/* Whether the text of the status says so. */
bool says_too_large(const Status &status);

/* How the event ended. `secrets`: masked in the server's text. */
Verdict verdict_of(const Status &status, bool too_large, const SecretMask &secrets);
/* Of a call that was answered: the name of its status, and x-request-id of the trailers or the headers. */
std::string acknowledgement_of(const HttpTransfer &answer, const SecretMask &secrets);
/* The next step for a user; empty if there is none. Static string. */
const char *remedy(Code code);

}  // namespace outbox::grpc
