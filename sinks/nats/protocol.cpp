/*
 * protocol.cpp: bytes that are no NATS end the reading at once: the peer may be anything that listens on a port, and
 * must not make the sink keep what it sends.
 */
#include "protocol.h"

#include <array>
#include <charconv>

#include "delivery/base/json_reader.h"
#include "delivery/base/text.h"

namespace outbox::nats {
namespace {

constexpr std::string_view line_end = "\r\n";
constexpr size_t longest_line = 1UL << 20;    /* the INFO of a large cluster names all its servers */
constexpr size_t longest_message = 1UL << 20; /* a sink gets acknowledgements, a probe lists of streams */

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

/* Whether the line begins with this word, in capitals or not. */
bool begins(std::string_view line, std::string_view word) {
  if (line.size() < word.size() || (line.size() > word.size() && !is_blank(line[word.size()])))
    return false;
  for (size_t i = 0; i < word.size(); i++)
    if (line[i] != word[i] && line[i] != (word[i] | 0x20))
      return false;
  return true;
}

size_t number(std::string_view text) {
  size_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value > longest_message)
    throw NotNats("the length of a message cannot be read");
  return value;
}

}  // namespace

std::string_view Operation::status() const {
  if (!headers.starts_with("NATS/1.0 "))
    return {};
  std::string_view line = headers.substr(9, headers.find(line_end) - 9);
  return line.substr(0, line.find(' '));
}

void OperationReader::add(std::string_view bytes) {
  if (at_ > 0) {
    bytes_.erase(0, at_);
    at_ = 0;
  }
  bytes_ += bytes;
}

bool OperationReader::next(Operation &operation) {
  using Kind = Operation::Kind;
  constexpr std::array<std::pair<std::string_view, Kind>, 7> words{{{"MSG", Kind::Message},
                                                                    {"HMSG", Kind::Message},
                                                                    {"PING", Kind::Ping},
                                                                    {"PONG", Kind::Pong},
                                                                    {"INFO", Kind::Info},
                                                                    {"+OK", Kind::Ok},
                                                                    {"-ERR", Kind::Error}}};
  std::string_view rest = std::string_view(bytes_).substr(at_);
  size_t end = rest.find(line_end);
  std::string_view line = rest.substr(0, end);
  for (const auto &[word, kind] : words) {
    if (end == rest.npos ? line.size() > word.size() && begins(line, word) : begins(line, word)) {
      if (end == rest.npos) {
        if (line.size() > longest_line)
          throw NotNats("a line has no end");
        return false;
      }
      operation = {kind, trim(line.substr(word.size())), {}, {}};
      if (kind == Kind::Message)
        return read_message(line, word == "HMSG", operation);
      if (kind == Kind::Error && operation.text.size() >= 2 && operation.text.front() == '\'' &&
          operation.text.back() == '\'')
        operation.text = operation.text.substr(1, operation.text.size() - 2);
      at_ += end + line_end.size();
      return true;
    }
  }
  if (end == rest.npos && line.size() < 6) /* the first word is not complete */
    return false;
  throw NotNats("it does not speak the protocol of NATS");
}

/* MSG subject sid [reply] bytes; HMSG subject sid [reply] bytes-of-headers bytes. */
bool OperationReader::read_message(std::string_view line, bool with_headers, Operation &operation) {
  std::array<std::string_view, 6> words;
  size_t n = 0;
  for (std::string_view left = line; !left.empty();) {
    size_t end = left.find_first_of(" \t");
    if (end != 0) {
      if (n == words.size())
        throw NotNats("a message cannot be read");
      words[n++] = left.substr(0, end);
    }
    left.remove_prefix(end == left.npos ? left.size() : end + 1);
  }
  const size_t fewest = with_headers ? 5 : 4;
  if (n != fewest && n != fewest + 1)
    throw NotNats("a message cannot be read");
  const size_t size = number(words[n - 1]), headers_size = with_headers ? number(words[n - 2]) : 0;
  if (headers_size > size)
    throw NotNats("the length of a message cannot be read");
  std::string_view data = std::string_view(bytes_).substr(at_ + line.size() + line_end.size());
  if (data.size() < size + line_end.size())
    return false;
  operation.subject = words[1];
  operation.headers = data.substr(0, headers_size);
  operation.text = data.substr(headers_size, size - headers_size);
  at_ += line.size() + line_end.size() + size + line_end.size();
  return true;
}

ServerInfo ServerInfo::parse(std::string_view json) {
  ServerInfo info;
  auto bad = read_json(std::string(json), [&](const JsonPath &path, const JsonValue &value) {
    if (path.size() != 1)
      return;
    const std::string &name = path[0];
    const bool yes = value.kind == JsonValue::Kind::Boolean && value.text == "true";
    if (name == "version")
      info.version = value.text;
    else if (name == "nonce")
      info.nonce = value.text;
    else if (name == "max_payload")
      std::from_chars(value.text.data(), value.text.data() + value.text.size(), info.max_payload);
    else if (name == "headers")
      info.headers = yes;
    else if (name == "tls_required")
      info.tls_required = yes;
    else if (name == "tls_available")
      info.tls_available = yes;
  });
  if (bad)
    throw NotNats("its INFO is no JSON");
  return info;
}

void append_header(std::string_view name, std::string_view value, std::string &block) {
  (((block += name) += ": ") += value) += line_end;
}

void append_publish(std::string_view subject, std::string_view reply, std::string_view data, size_t headers_size,
                    std::string &out) {
  ((((out += "HPUB ") += subject) += ' ') += reply) += ' ';
  (((out += std::to_string(headers_size)) += ' ') += std::to_string(data.size())) += line_end;
  (out += data) += line_end;
}

void append_request(std::string_view subject, std::string_view reply, std::string_view body, std::string &out) {
  ((((out += "PUB ") += subject) += ' ') += reply) += ' ';
  (((out += std::to_string(body.size())) += line_end) += body) += line_end;
}

}  // namespace outbox::nats
