/* fuzz.cpp: what a gRPC server writes into its trailers: a status's text and its details in protobuf. */
#include "test/fuzz/stream.h"

#include "delivery/base/base64.h"
#include "sinks/grpc/grpc_status.h"
#include "sinks/grpc/protobuf.h"

using namespace outbox;
using namespace outbox::grpc;

namespace {

void judge_text(const std::string &text) {
  const std::string decoded = percent_decoded(text);
  HOLDS(decoded.size() <= text.size());
  std::string encoded;
  for (unsigned char c : text) {
    char byte[4];
    snprintf(byte, sizeof byte, "%%%02x", c);
    encoded += byte;
  }
  HOLDS(percent_decoded(encoded) == text);

  Status status;
  status.code = static_cast<Code>(text.size() % code_rules().size());
  status.text = decoded;
  const Verdict end = verdict_of(status, false, {});
  HOLDS((end.outcome == Outcome::Sent) == end.error.empty());
  HOLDS(end.error.size() <= 1100 && fuzz::utf8_characters(end.error));
  HOLDS(end.error.find_first_of("\r\n") == std::string::npos);
}

/* The fields of a message lie within it, one behind the other; what is written is read again. */
void judge_fields(const std::string &message) {
  const char *at = message.data();
  size_t fields = 0;
  std::string copy;
  ProtobufWriter writer(copy);
  for (ProtobufReader reader(message); reader.next(); fields++) {
    if (reader.bytes().data()) {
      HOLDS(reader.bytes().data() >= at);
      at = reader.bytes().data() + reader.bytes().size();
      HOLDS(at <= message.data() + message.size());
    }
    writer.varint(static_cast<int>(reader.number() & 0xff), reader.varint());
    writer.bytes(15, reader.bytes());
  }
  HOLDS(fields <= message.size());
  ProtobufReader again(copy);
  for (ProtobufReader reader(message); reader.next();) {
    HOLDS(again.next() && again.number() == (reader.number() & 0xff) && again.varint() == reader.varint());
    HOLDS(again.next() && again.number() == 15 && again.bytes() == reader.bytes());
  }
  HOLDS(!again.next());

  std::string base64;
  append_base64(message, base64);
  const int64_t delay_ms = retry_delay_ms(base64);
  HOLDS(delay_ms >= -1 && delay_ms <= 315'576'000'000 * 1000 + 999);
}

}  // namespace

void fuzz::one_input(std::string_view data) {
  Input input(data);
  const bool fields = input.digit() % 2;
  const std::string rest = input.rest();
  if (fields) {
    judge_fields(rest);
    return;
  }
  judge_text(rest);
  const int64_t delay_ms = retry_delay_ms(rest);
  HOLDS(delay_ms >= -1);
}
