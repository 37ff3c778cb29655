/* fuzz.cpp: operations of a NATS server, of every kind, at once and in pieces; its INFO; the answers of JetStream. */
#include "test/fuzz/stream.h"

#include "sinks/nats/acknowledgement.h"
#include "sinks/nats/protocol.h"

using namespace outbox;
using namespace outbox::nats;

namespace {

void judge_info(std::string_view json) {
  try {
    const ServerInfo info = ServerInfo::parse(json);
    HOLDS(info.version.size() + info.nonce.size() <= json.size());
  } catch (const NotNats &error) {
    HOLDS(*error.what() != '\0');
  }
}

void judge_answer(const Operation &message) {
  const Acknowledgement answer = read_acknowledgement(message);
  HOLDS(answer.outcome == Outcome::Sent || answer.outcome == Outcome::Deferred ||
        answer.outcome == Outcome::Rejected);
  const bool sent = answer.outcome == Outcome::Sent;
  HOLDS(sent == answer.why.empty() && sent == (answer.reason == OB_REASON_NONE) && (sent || !answer.duplicate));
  HOLDS(fuzz::shown(answer.why).size() <= 2000);
  fuzz::shown(place_of(message.text));
  /* With a status the message is the server's own, not a stream's. */
  HOLDS(!sent || (message.status().empty() && error_of(message.text).empty()));
  /* The usual answer is read by a way of its own, which a line break in front of it leads around. */
  const std::string unusual = "\n" + std::string(message.text);
  Operation same = message;
  same.text = unusual;
  HOLDS(read_acknowledgement(same).outcome == answer.outcome);
  size_t names = 0;
  for (const std::string &name : streams_of(message.text))
    names += name.size();
  HOLDS(names <= message.text.size());
  (void)is_no_ack(message.text);
}

bool read_all(OperationReader &reader, std::string_view bytes, fuzz::Seen &seen) {
  try {
    reader.add(bytes);
    Operation operation{};
    while (reader.next(operation)) {
      const auto &[kind, text, subject, headers] = operation;
      std::string &unit = seen.units.emplace_back(std::to_string(static_cast<int>(kind)));
      for (std::string_view part : {text, subject, headers, operation.status()})
        (unit += "|") += part;
      HOLDS((kind == Operation::Kind::Message) == !subject.empty());
      if (kind == Operation::Kind::Info)
        judge_info(text);
      else if (kind == Operation::Kind::Message)
        judge_answer(operation);
    }
    return true;
  } catch (const NotNats &error) {
    seen.error = error.what();
    return false;
  }
}

}  // namespace

void fuzz::one_input(std::string_view data) {
  Input input(data);
  const size_t mode = input.digit(), piece = 1 + mode % 64;
  if (mode == 9) { /* a body as long as the input: no length in front of it that has to be right */
    const std::string body = input.rest();
    judge_answer({Operation::Kind::Message, body, "s", {}});
    judge_info(body);
    return;
  }
  const std::string stream = input.rest();
  const Seen seen = read_whole_and_in_pieces<OperationReader>(stream, piece, read_all);
  size_t bytes = 0;
  for (const std::string &unit : seen.units)
    bytes += unit.size();
  HOLDS(bytes <= stream.size() * 3 + seen.units.size() * 8);
}
