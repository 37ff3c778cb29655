/*
 * acknowledgement.cpp: a stream says that it is full, or that the server is short of something, with the same JSON as
 * that a message is too large, or has a header that the stream does not accept. Only the latter two are the event's
 * fault; all else is over one day, so the event waits. (The codes: errors.json of nats-server.)
 */
#include "acknowledgement.h"

#include <algorithm>
#include <charconv>

#include "delivery/base/clean_text.h"
#include "delivery/base/json_reader.h"

namespace outbox::nats {
namespace {

constexpr int message_exceeds_maximum = 10054, header_exceeds_maximum = 10097, store_failed = 10077,
              stream_not_match = 10060;

/* Of a message's own headers: what it says of the stream's last message, a rollup, a batch, a time to live, a
 * counter, a schedule. */
constexpr int own_errors[] = {10070, 10071, 10111, 10164, 10165, 10166, 10168, 10169, 10170, 10171, 10174,
                              10175, 10176, 10177, 10179, 10188, 10189, 10190, 10191, 10192, 10193, 10199,
                              10200, 10201, 10203, 10205, 10206, 10207, 10208, 10212, 10223};

struct Answer {
  bool is_json = false, has_error = false, is_duplicate = false;
  int code = 0;
  std::string description, stream, sequence;
};

int number(const std::string &text) {
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/* Streams count from 1, in 64 bits. */
bool is_place(std::string_view sequence) {
  constexpr size_t longest = 20;
  return !sequence.empty() && sequence.size() <= longest && sequence[0] != '0' &&
         sequence.find_first_not_of("0123456789") == sequence.npos;
}

/* {"stream":"ORDERS", "seq":17}, as servers write it for nearly every message: the reading of any JSON takes many
 * times as long. Whatever else there is in it is left to that. */
bool is_usual_answer(std::string_view json) {
  auto take = [&json](std::string_view begin) {
    json.remove_prefix(std::min(json.find_first_not_of(' '), json.size()));
    const bool is = json.starts_with(begin);
    json.remove_prefix(is ? begin.size() : 0);
    return is;
  };
  auto take_while = [&json](auto good) {
    const auto n = static_cast<size_t>(std::find_if_not(json.begin(), json.end(), good) - json.begin());
    json.remove_prefix(n);
    return n > 0;
  };
  auto in_name = [](char c) { return c > ' ' && c < 0x7F && c != '"' && c != '\\'; };
  return take("{") && take("\"stream\":") && take("\"") && take_while(in_name) && take("\"") && take(",") &&
         take("\"seq\":") && (take(""), json.ends_with('}')) && is_place(json.substr(0, json.size() - 1));
}

Answer read(std::string_view json) {
  Answer answer;
  bool is_whole = true;
  auto bad = read_json(std::string(json), [&](const JsonPath &path, const JsonValue &value) {
    if (value.kind == JsonValue::Kind::Number && value.text.empty())
      is_whole = false; /* the reading ends at such a number */
    if (path.size() == 1 && path[0] == "stream" && value.kind == JsonValue::Kind::Text)
      answer.stream = value.text;
    else if (path.size() == 1 && path[0] == "seq" && value.kind == JsonValue::Kind::Number)
      answer.sequence = value.text;
    else if (path.size() == 1 && path[0] == "duplicate")
      answer.is_duplicate = value.text == "true";
    else if (!path.empty() && path[0] == "error")
      answer.has_error = true;
    if (path.size() != 2 || path[0] != "error")
      return;
    if (path[1] == "err_code")
      answer.code = number(value.text);
    else if (path[1] == "description")
      answer.description = value.text;
  });
  answer.is_json = !bad && is_whole;
  return answer;
}

bool is_too_large(const Answer &answer) {
  return answer.code == message_exceeds_maximum || answer.code == header_exceeds_maximum ||
         (answer.code == store_failed && answer.description.find("large") != answer.description.npos);
}

Acknowledgement of_error(const Answer &answer) {
  const std::string stream = answer.stream.empty() ? "its stream" : "stream " + in_quotes(answer.stream);
  const std::string said = stream + " refuses the message: " + peer_text(answer.description);
  if (is_too_large(answer))
    return {Outcome::Rejected, OB_REASON_TOO_LARGE, said + ": see max_msg_size of the stream"};
  if (std::find(std::begin(own_errors), std::end(own_errors), answer.code) != std::end(own_errors))
    return {Outcome::Rejected, OB_REASON_INVALID, said};
  if (answer.code == stream_not_match)
    return {Outcome::Deferred, OB_REASON_TOPIC,
            "is stored by another stream than the one of option stream: correct subject or stream"};
  return {Outcome::Deferred, OB_REASON_BROKER, "cannot be stored now: " + said};
}

}  // namespace

Acknowledgement read_acknowledgement(const Operation &message) {
  if (message.status() == "503")
    return {Outcome::Deferred, OB_REASON_TOPIC,
            "is taken by no stream: create one for it, enable JetStream, or correct option subject"};
  if (message.status().empty() && is_usual_answer(message.text))
    return {};
  Answer answer = read(message.text);
  if (answer.is_json && answer.has_error)
    return of_error(answer);
  if (answer.is_json && message.status().empty() && !answer.stream.empty() && is_place(answer.sequence)) {
    Acknowledgement stored;
    stored.duplicate = answer.is_duplicate;
    return stored;
  }
  return {Outcome::Deferred, OB_REASON_TOPIC,
          "is answered by a subscriber that is no stream: correct option subject"};
}

std::string place_of(std::string_view json) {
  Answer answer = read(json);
  return "stream " + peer_text(answer.stream) + ", sequence " + peer_text(answer.sequence) +
         (answer.is_duplicate ? ", duplicate" : "");
}

std::string error_of(std::string_view json) {
  Answer answer = read(json);
  return answer.is_json && answer.has_error ? peer_text(answer.description) : std::string();
}

bool is_no_ack(std::string_view json) {
  bool found = false;
  read_json(std::string(json), [&](const JsonPath &path, const JsonValue &value) {
    found = found || (path.size() == 2 && path[0] == "config" && path[1] == "no_ack" && value.text == "true");
  });
  return found;
}

std::vector<std::string> streams_of(std::string_view json) {
  std::vector<std::string> names;
  read_json(std::string(json), [&](const JsonPath &path, const JsonValue &value) {
    if (path.size() == 2 && path[0] == "streams" && value.kind == JsonValue::Kind::Text)
      names.push_back(value.text);
  });
  return names;
}

}  // namespace outbox::nats
