/* fuzz.cpp: replies of Redis, of every type, at once and in pieces; and what an error of the server means. */
#include "test/fuzz/stream.h"

#include "sinks/redis/command.h"
#include "sinks/redis/server_errors.h"

using namespace outbox;
using namespace outbox::redis;

namespace {

/* Also counts what hiredis has made of it: no more than was announced and bounded. */
void append(const redisReply &reply, size_t depth, size_t &elements, size_t &bytes, std::string &out) {
  HOLDS(depth <= ReplyReader::most_depth && ++elements <= ReplyReader::most_elements);
  bytes += text_of(reply).size();
  HOLDS(bytes <= ReplyReader::most_bytes);
  out += std::to_string(reply.type) + ":" + std::string(text_of(reply)) + ":";
  out += reply.type == REDIS_REPLY_INTEGER ? std::to_string(reply.integer) : std::string();
  for (size_t i = 0; i < reply.elements; i++)
    append(*reply.element[i], depth + 1, elements, bytes, out);
  out += ";";
}

/* A reply is one of these at most: an error, the id of an entry, OK, a number. */
void judge(const redisReply &reply) {
  const int kinds = is_error(reply) + is_entry_id(reply) + is_status(reply, "OK") + number_of(reply).has_value();
  HOLDS(kinds <= 1 && *kind_of(reply) != '\0');
  if (is_entry_id(reply))
    for (char c : text_of(reply))
      HOLDS((c >= '0' && c <= '9') || c == '-');
  if (is_error(reply)) {
    const std::string said = fuzz::shown(read_error(text_of(reply)).text);
    HOLDS(said.size() <= 1000);
  }
}

bool read_all(ReplyReader &reader, std::string_view bytes, fuzz::Seen &seen) {
  try {
    reader.add(bytes);
    while (Reply reply = reader.next()) {
      size_t elements = 0, size = 0;
      append(*reply, 0, elements, size, seen.units.emplace_back());
      judge(*reply);
    }
    return true;
  } catch (const NotRedis &error) {
    seen.error = error.what();
    return false;
  }
}

}  // namespace

void fuzz::one_input(std::string_view data) {
  Input input(data);
  const size_t piece = 1 + input.digit() % 64;
  read_whole_and_in_pieces<ReplyReader>(input.rest(), piece, read_all);
}
