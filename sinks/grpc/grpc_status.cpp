/*
 * grpc_status.cpp: the table of codes follows gRPC's own definition of them: what a client may try again, and what
 * cannot succeed until something was corrected. The page's table is compared with it by a test.
 */
#include "grpc_status.h"

#include <charconv>

#include "delivery/base/base64.h"
#include "delivery/base/clean_text.h"
#include "delivery/base/text.h"
#include "protobuf.h"

namespace outbox::grpc {
namespace {

constexpr size_t longest_text = 1000;

int digit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
}

/* The number of a decimal text, or `fallback`. */
int64_t number(std::string_view text, int64_t fallback) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : fallback;
}

/* From the trailers; an answer that consists of trailers alone has them as its headers. */
std::string field(const HttpTransfer &answer, const char *name) {
  std::string value = answer.trailer(name);
  return value.empty() ? answer.header(name) : value;
}

std::string_view bytes_of(std::string_view message, uint64_t number) {
  std::string_view found;
  for (ProtobufReader reader(message); reader.next();)
    if (reader.number() == number)
      found = reader.bytes();
  return found;
}

/* Of a google.protobuf.Duration: seconds = 1, nanos = 2. -1 if it is negative. */
int64_t duration_ms(std::string_view duration) {
  int64_t seconds = 0, nanos = 0;
  for (ProtobufReader reader(duration); reader.next();)
    if (reader.number() <= 2)
      (reader.number() == 1 ? seconds : nanos) = static_cast<int64_t>(reader.varint());
  if (seconds < 0 || nanos < 0)
    return -1;
  constexpr int64_t longest_s = 315'576'000'000; /* of a Duration: 10,000 years */
  return std::min(seconds, longest_s) * 1000 + std::min<int64_t>(nanos, 999'999'999) / 1'000'000;
}

}  // namespace

/* Each detail is an Any: type_url = 1, value = 2. */
int64_t retry_delay_ms(std::string_view base64) {
  std::string status;
  append_base64_decoded(base64, status);
  for (ProtobufReader reader(status); reader.next();)
    if (reader.number() == 3 && bytes_of(reader.bytes(), 1).ends_with("/google.rpc.RetryInfo"))
      if (std::string_view delay = bytes_of(bytes_of(reader.bytes(), 2), 1); !delay.empty())
        return duration_ms(delay);
  return -1;
}

namespace {

/* Returns the delay that the server asks for, by the trailer of gRPC's retries, by the detail of Google's error model
 * or, as proxies do, by Retry-After; -1 if it asks for none. */
int64_t asked_delay_ms(const HttpTransfer &answer) {
  const int64_t pushback = number(field(answer, "grpc-retry-pushback-ms"), -1);
  if (pushback >= 0)
    return pushback;
  const int64_t delay = retry_delay_ms(field(answer, "grpc-status-details-bin"));
  return delay >= 0 ? delay : answer.retry_after_ms();
}

bool is_grpc(const HttpTransfer &answer) {
  return answer.header("content-type").starts_with("application/grpc");
}

bool is_success(Code code) {
  return code_rules().at(static_cast<size_t>(code)).outcome == Outcome::Sent;
}

}  // namespace

bool says_too_large(const Status &status) {
  return status.code == Code::ResourceExhausted && (status.text.find("larger than max") != std::string::npos ||
                                                    status.text.find("exceeds maximum size") != std::string::npos);
}

void MessageSizes::accepted(size_t size) {
  largest_accepted_ = std::max(largest_accepted_, size);
  accepted_since_ = true;
}

/* A small difference of size, or a small message, says nothing: the server may be overloaded. */
bool MessageSizes::is_too_large(size_t size) {
  constexpr size_t small = 65'536;
  if (size <= small || size / 2 <= largest_accepted_)
    return false;
  if (accepted_since_ && size >= smallest_refused_)
    return true;
  smallest_refused_ = std::min(smallest_refused_, size);
  accepted_since_ = false;
  return false;
}

const std::vector<CodeRule> &code_rules() {
  static const auto &rules = *new std::vector<CodeRule>{
      {"OK", Outcome::Sent, OB_REASON_NONE},
      {"CANCELLED", Outcome::RetryBlameSink, OB_REASON_OTHER},
      {"UNKNOWN", Outcome::RetryBlameSink, OB_REASON_BROKER},
      {"INVALID_ARGUMENT", Outcome::Rejected, OB_REASON_INVALID},
      {"DEADLINE_EXCEEDED", Outcome::RetryBlameSink, OB_REASON_TIMEOUT}, /* it may have arrived */
      {"NOT_FOUND", Outcome::Retry, OB_REASON_OTHER},
      {"ALREADY_EXISTS", Outcome::Sent, OB_REASON_NONE}, /* a handler that keeps ids says so */
      {"PERMISSION_DENIED", Outcome::Refused, OB_REASON_AUTH},
      {"RESOURCE_EXHAUSTED", Outcome::RetryBlameSink, OB_REASON_RATE_LIMITED},
      {"FAILED_PRECONDITION", Outcome::Rejected, OB_REASON_INVALID}, /* until a user acts */
      {"ABORTED", Outcome::Retry, OB_REASON_OTHER},
      {"OUT_OF_RANGE", Outcome::Retry, OB_REASON_OTHER},
      {"UNIMPLEMENTED", Outcome::Refused, OB_REASON_OTHER},
      {"INTERNAL", Outcome::RetryBlameSink, OB_REASON_BROKER},
      {"UNAVAILABLE", Outcome::RetryBlameSink, OB_REASON_BROKER},
      {"DATA_LOSS", Outcome::RetryBlameSink, OB_REASON_BROKER},
      {"UNAUTHENTICATED", Outcome::Refused, OB_REASON_AUTH},
  };
  return rules;
}

Code code_of_http(long status) {
  switch (status) {
  case 400:
    return Code::Internal;
  case 401:
    return Code::Unauthenticated;
  case 403:
    return Code::PermissionDenied;
  case 404:
    return Code::Unimplemented;
  case 429:
  case 502:
  case 503:
  case 504:
    return Code::Unavailable;
  default:
    return Code::Unknown;
  }
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); i++) {
    int high = text[i] == '%' && i + 2 < text.size() ? digit(text[i + 1]) : -1;
    int low = high >= 0 ? digit(text[i + 2]) : -1;
    out += low < 0 ? text[i] : static_cast<char>(high << 4 | low);
    i += low < 0 ? 0 : 2;
  }
  return out;
}

Status status_of(const HttpTransfer &answer, CURLcode code) {
  Status status;
  status.http = answer.status();
  status.delay_ms = asked_delay_ms(answer);
  if (std::string given = field(answer, "grpc-status"); !given.empty()) {
    const int64_t n = number(given, -1);
    status.code = n >= 0 && n < static_cast<int64_t>(code_rules().size()) ? static_cast<Code>(n) : Code::Unknown;
    status.text = percent_decoded(field(answer, "grpc-message"));
    /* A proxy's page, or an answer that was cut off behind its head, may have the field too: that is no success. */
    if (!is_success(status.code) || (status.http == 200 && code == CURLE_OK && is_grpc(answer)))
      return status;
    status = {Code::Unknown, {}, status.http, status.delay_ms};
  }
  if (status.http != 200) {
    status.code = code_of_http(status.http);
    status.text = "HTTP " + std::to_string(status.http) + ", without a gRPC status";
  } else if (code == CURLE_OPERATION_TIMEDOUT) {
    status.code = Code::DeadlineExceeded;
    status.text = "the answer was not complete within the timeout";
  } else if (code == CURLE_WRITE_ERROR) {
    status.code = Code::Unavailable;
    status.text = "the answer is larger than any of gRPC's clients takes, and its end was not read";
  } else if (code != CURLE_OK) {
    status.code = Code::Unavailable;
    status.text = "the connection ended before the answer was complete";
  } else if (!is_grpc(answer)) {
    status.text = "the answer is not one of gRPC: its content type is " + answer.header("content-type");
  } else {
    status.text =
        "the answer has no grpc-status: its end was lost with the connection, or a proxy has removed the trailers";
  }
  return status;
}

const char *remedy(Code code) {
  switch (code) {
  case Code::Unauthenticated:
    return "Look at token, headers and ssl_certificate_pem in PUBLIC's user mapping.";
  case Code::PermissionDenied:
    return "Let the server allow this client to call the method, or look at the credentials in PUBLIC's user "
           "mapping.";
  case Code::Unimplemented:
    return "Correct option method: it is /PACKAGE.SERVICE/METHOD of a unary method that the server has.";
  default:
    return "";
  }
}

Verdict verdict_of(const Status &status, bool too_large, const SecretMask &secrets) {
  const CodeRule &rule = code_rules().at(static_cast<size_t>(status.code));
  if (rule.outcome == Outcome::Sent)
    return {Outcome::Sent};
  Verdict verdict{.outcome = rule.outcome, .reason = rule.reason, .retry_after_ms = status.delay_ms};
  if (too_large) {
    verdict.outcome = Outcome::Retry;
    verdict.reason = OB_REASON_TOO_LARGE;
  }
  /* Mask first: of a secret that is cut, a part would stay visible. */
  std::string text = clean_text(secrets.masked(status.text));
  text.resize(utf8_prefix(text, longest_text));
  verdict.error = std::string(rule.name) + (text.empty() ? "" : ": ") + text;
  return verdict;
}

std::string acknowledgement_of(const HttpTransfer &answer, const SecretMask &secrets) {
  constexpr size_t longest = 100;
  const CodeRule &rule = code_rules().at(static_cast<size_t>(status_of(answer, CURLE_OK).code));
  const std::string id = secrets.masked(field(answer, "x-request-id"));
  return rule.name + (id.empty() ? "" : ", x-request-id " + id.substr(0, longest));
}

}  // namespace outbox::grpc
