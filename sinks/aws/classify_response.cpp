/*
 * classify_response.cpp: the codes are those of AWS's references of errors (of each operation, and the common ones);
 * the protocols spell some of them in different ways. An entry's error is about that message. An error of the request
 * is about all of them, and no attempt is spent: the sink has one target and one identity, so no other event would
 * fare better.
 */
#include "classify_response.h"

#include <algorithm>
#include <charconv>

#include "delivery/base/clean_text.h"
#include "delivery/base/text.h"

namespace outbox::aws_sink {
namespace {

/* Codes without the suffix "Exception" or "Error". */
constexpr std::pair<Cause, const char *> known[] = {
    {Cause::Throttled,
     "Throttling Throttled RequestThrottled TooManyRequests RequestLimitExceeded BandwidthLimitExceeded "
     "SlowDown PriorRequestNotComplete KMSThrottling KmsThrottled"},
    {Cause::Clock, "RequestTimeTooSkewed RequestInTheFuture RequestExpired"},
    {Cause::Expired, "ExpiredToken"},
    {Cause::Credentials,
     "InvalidClientTokenId UnrecognizedClient InvalidAccessKeyId SignatureDoesNotMatch InvalidSignature "
     "IncompleteSignature MissingAuthenticationToken InvalidSecurity InvalidToken AuthFailure"},
    {Cause::Denied,
     "AccessDenied Authorization NotAuthorized OptInRequired NotAuthorizedForSource "
     "NotAuthorizedForDetailType KMSAccessDenied KMSDisabled KMSInvalidState KMSNotFound KMSOptInRequired "
     "KmsAccessDenied KmsDisabled KmsInvalidKeyUsage KmsInvalidState KmsNotFound KmsOptInRequired"},
    {Cause::Missing,
     "QueueDoesNotExist NonExistentQueue QueueDeletedRecently InvalidAddress NotFound ResourceNotFound"},
    {Cause::Message, "InvalidMessageContents InvalidParameterValue InvalidParameter ParameterValueInvalid "
                     "InvalidAttributeValue InvalidAttributeName InvalidArgument MissingParameter MalformedDetail "
                     "BatchRequestTooLong Validation Serialization UnsupportedOperation"},
    {Cause::ServiceError, "InternalFailure InternalServer Internal ServiceUnavailable Unavailable RequestTimeout"},
};

std::string_view without_suffix(std::string_view code) {
  constexpr std::string_view prefix = "AWS.SimpleQueueService.";
  if (code.starts_with(prefix))
    code.remove_prefix(prefix.size());
  for (std::string_view suffix : {"Exception", "Error"})
    if (code.size() > suffix.size() && code.ends_with(suffix))
      return code.substr(0, code.size() - suffix.size());
  return code;
}

/* The sink's configuration, its identity or its target is wrong, so a user must act. */
bool needs_a_user(Cause cause) {
  return cause == Cause::Clock || cause == Cause::Expired || cause == Cause::Credentials || cause == Cause::Denied ||
         cause == Cause::Missing;
}

ob_reason reason_of(Cause cause, long status) {
  if (needs_a_user(cause))
    return cause == Cause::Missing ? OB_REASON_TOPIC : OB_REASON_AUTH;
  if (cause == Cause::Throttled)
    return OB_REASON_RATE_LIMITED;
  if (cause == Cause::Message)
    return OB_REASON_INVALID;
  return cause == Cause::ServiceError || status >= 500 || status < 300 ? OB_REASON_HTTP_5XX
         : status < 400                                                ? OB_REASON_HTTP_3XX
                                                                       : OB_REASON_HTTP_4XX;
}

/* Of one entry of an answer that is a success otherwise: the others show that the sink works. */
Outcome outcome_of_entry(Cause cause, bool sender_fault) {
  if (needs_a_user(cause))
    return Outcome::Refused;
  if (cause == Cause::Message)
    return Outcome::Rejected;
  if (cause == Cause::Throttled)
    return Outcome::Deferred;
  return cause == Cause::Unknown && sender_fault ? Outcome::Retry : Outcome::RetryBlameSink;
}

Outcome outcome_of_request(Cause cause, size_t n) {
  if (needs_a_user(cause) || cause == Cause::Throttled)
    return Outcome::SinkDown;
  if (cause == Cause::Message)
    return n == 1 ? Outcome::Rejected : Outcome::Returned;
  return cause == Cause::ServiceError ? Outcome::RetryBlameSink : Outcome::Refused;
}

Verdict failed(const Target &target, const Fault &fault, Cause cause, Outcome outcome) {
  std::string what = remedy(cause, target);
  return {outcome, fact_of(fault, target) + (what.empty() ? "" : "; " + what), reason_of(cause, fault.status)};
}

/* The message, of `n`, that the entry at `i` is about; nothing if it is about none. Entries are found by their
 * number; those of EventBridge stand in the request's order. */
std::optional<size_t> message_of(const Target &target, size_t n, const EntryReply &entry, size_t i) {
  if (target.service != Service::EventBridge) {
    const char *end = entry.id.data() + entry.id.size();
    if (auto [rest, wrong] = std::from_chars(entry.id.data(), end, i); wrong != std::errc() || rest != end)
      return {};
  }
  return i < n ? std::optional(i) : std::nullopt;
}

std::vector<Verdict> classify_entries(const Target &target, size_t n, const std::vector<EntryReply> &entries) {
  const Fault silence{{}, "the answer says nothing of this message", 200};
  const Verdict unsaid = failed(target, silence, Cause::ServiceError, Outcome::RetryBlameSink);
  std::vector<Verdict> verdicts(n, unsaid);
  if (target.service == Service::EventBridge && entries.size() != n) /* which entry is whose? */
    return verdicts;
  for (const bool sent : {true, false}) /* of a message that is called both, the failure counts */
    for (size_t i = 0; i < entries.size(); i++) {
      const EntryReply &entry = entries[i];
      const auto number = message_of(target, n, entry, i);
      if (!number || entry.sent != sent)
        continue;
      const Fault fault{entry.code, entry.message};
      const Cause cause = cause_of(fault);
      verdicts[*number] = sent ? Verdict{Outcome::Sent}
                          : fault.code.empty() && fault.message.empty()
                              ? unsaid
                              : failed(target, fault, cause, outcome_of_entry(cause, entry.sender_fault));
    }
  return verdicts;
}

}  // namespace

Cause cause_of(const Fault &fault) {
  const bool signature = fault.code.find("Signature") != fault.code.npos;
  if (signature && (fault.message.find("Signature expired") != fault.message.npos ||
                    fault.message.find("Signature not yet current") != fault.message.npos))
    return Cause::Clock;
  std::string_view bare = without_suffix(fault.code);
  for (const auto &[cause, codes] : known)
    for (std::string_view code : split(codes, ' '))
      if (code == bare || code == fault.code)
        return cause;
  if (fault.status == 429 || (fault.status == 503 && fault.code.empty()))
    return Cause::Throttled;
  if (fault.status == 413)
    return Cause::Message;
  return fault.status >= 500 ? Cause::ServiceError : Cause::Unknown;
}

std::string remedy(Cause cause, const Target &target) {
  switch (cause) {
  case Cause::Clock:
    return "set the clock of the database server";
  case Cause::Expired:
    return "give the user mapping new aws_access_key_id, aws_secret_access_key and aws_session_token, or use keys that do not "
           "expire";
  case Cause::Credentials:
    return "correct aws_access_key_id and aws_secret_access_key of the user mapping, or what aws_credentials 'chain' finds";
  case Cause::Denied:
    return std::string("allow ") + target.words().right + " on " + target.name +
           " to the sink's identity, and the use of the KMS key if it is encrypted with one";
  case Cause::Missing:
    return "make " + target.name + " in region " + target.region + ", or correct option target";
  case Cause::Message:
  case Cause::Throttled:
  case Cause::ServiceError:
    return {};
  case Cause::Unknown:
    break;
  }
  return "correct the options aws_region and endpoint if this is no answer of AWS";
}

std::string fact_of(const Fault &fault, const Target &target) {
  std::string text = fault.code.empty() && fault.status / 100 != 2 && fault.status != 0
                         ? "HTTP " + std::to_string(fault.status)
                         : peer_text(fault.code);
  if (!fault.message.empty())
    text += (text.empty() ? "" : ": ") + peer_text(fault.message);
  return std::string(target.words().service) + ": " + text;
}

bool BatchOutcome::all_sent() const {
  return std::all_of(verdicts.begin(), verdicts.end(),
                     [](const Verdict &verdict) { return verdict.outcome == Outcome::Sent; });
}

static Fault fault_of(const Reply &reply, const HttpReply &http) {
  if (http.status / 100 == 2)
    return reply.valid && reply.code.empty() ? Fault{{}, {}, http.status}
                                             : Fault{{}, "the answer is none of AWS's", http.status};
  Fault fault{reply.code, reply.message, http.status};
  if (fault.code.empty())
    fault.code = http.error_type.substr(0, http.error_type.find(':'));
  return fault;
}

Fault fault_of(const Target &target, const HttpReply &http) {
  return fault_of(read_reply(target.service, http.body), http);
}

BatchOutcome classify_response(const Target &target, size_t n, const HttpReply &http) {
  const Reply reply = read_reply(target.service, http.body);
  const Fault fault = fault_of(reply, http);
  if (fault.is_none())
    return {classify_entries(target, n, reply.entries), {}};
  const Cause cause = cause_of(fault);
  return {std::vector<Verdict>(n, failed(target, fault, cause, outcome_of_request(cause, n))), cause};
}

std::vector<std::string> names_given(const Target &target, size_t n, const std::string &body) {
  std::vector<std::string> names(n);
  Reply reply = read_reply(target.service, body);
  for (size_t i = 0; i < reply.entries.size(); i++)
    if (const auto number = message_of(target, n, reply.entries[i], i))
      names[*number] = std::move(reply.entries[i].name);
  return names;
}

}  // namespace outbox::aws_sink
