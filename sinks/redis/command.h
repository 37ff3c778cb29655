/*
 * command.h: commands of Redis as bytes, and its replies. hiredis encodes and parses them; its sockets are not used,
 * because they block (transport.h).
 */
#pragma once

#include <hiredis/hiredis.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace outbox::redis {

class Command {
public:
  Command(const std::vector<std::string_view> &words); /* throws std::bad_alloc */
  Command(std::initializer_list<std::string_view> words) : Command(std::vector(words)) {}
  std::string_view bytes() const { return {bytes_.get(), size_}; }

private:
  struct Free {
    void operator()(char *bytes) const { redisFreeCommand(bytes); }
  };
  std::unique_ptr<char, Free> bytes_;
  size_t size_ = 0;
};

struct FreeReply {
  void operator()(redisReply *reply) const { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;

inline std::string_view text_of(const redisReply &reply) {
  return reply.str ? std::string_view(reply.str, reply.len) : std::string_view();
}
inline bool is_error(const redisReply &reply) {
  return reply.type == REDIS_REPLY_ERROR;
}

/* Only these count as what the command was sent for: a proxy, a transaction that somebody left open, or a peer that
 * is no Redis also replies. */
bool is_entry_id(const redisReply &reply);                      /* XADD: a bulk string such as 1526919030474-55 */
bool is_status(const redisReply &reply, std::string_view word); /* "+OK" */
std::optional<uint64_t> number_of(const redisReply &reply);     /* an integer from 0 on */
/* What came instead, for an error: "an integer". */
const char *kind_of(const redisReply &reply);

/* The peer does not speak the protocol of Redis, or a reply is larger than any that a sink asks for. The text
 * contains nothing of what it has sent. */
struct NotRedis : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/* Cuts a stream of bytes into replies. hiredis gets whole ones only, whose size, elements and depth have been
 * counted: it makes room for what a reply announces. Not thread-safe: each connection has its own. */
class ReplyReader {
public:
  static constexpr size_t most_bytes = 1UL << 20, most_elements = 4096, most_depth = 6;

  ReplyReader(); /* throws std::bad_alloc */

  /* Both throw std::bad_alloc. */
  void add(std::string_view bytes);
  /* Null when no complete reply is there. Throws NotRedis; then the reader is of no use. */
  Reply next();

private:
  [[noreturn]] void throw_error() const;
  size_t whole_reply() const;

  std::string input_;
  size_t read_ = 0; /* of input_ */
  std::unique_ptr<redisReader, void (*)(redisReader *)> reader_;
};

}  // namespace outbox::redis
