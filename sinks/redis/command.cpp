/* command.cpp: hiredis reports "out of memory" as an error of the reader, which is then of no use any more. */
#include "command.h"

#include <new>
#include <stdexcept>

namespace outbox::redis {

Command::Command(const std::vector<std::string_view> &words) {
  std::vector<const char *> texts;
  std::vector<size_t> sizes;
  texts.reserve(words.size());
  sizes.reserve(words.size());
  for (std::string_view word : words) {
    texts.push_back(word.data());
    sizes.push_back(word.size());
  }
  char *bytes = nullptr;
  auto size = redisFormatCommandArgv(&bytes, static_cast<int>(words.size()), texts.data(), sizes.data());
  if (size < 0)
    throw std::bad_alloc();
  bytes_.reset(bytes);
  size_ = static_cast<size_t>(size);
}

bool is_entry_id(const redisReply &reply) {
  constexpr std::string_view digits = "0123456789";
  std::string_view id = text_of(reply);
  const size_t dash = id.find_first_not_of(digits);
  return reply.type == REDIS_REPLY_STRING && dash != id.npos && dash > 0 && id[dash] == '-' && dash + 1 < id.size() &&
         id.find_first_not_of(digits, dash + 1) == id.npos;
}

bool is_status(const redisReply &reply, std::string_view word) {
  return reply.type == REDIS_REPLY_STATUS && text_of(reply) == word;
}

std::optional<uint64_t> number_of(const redisReply &reply) {
  if (reply.type != REDIS_REPLY_INTEGER || reply.integer < 0)
    return std::nullopt;
  return static_cast<uint64_t>(reply.integer);
}

const char *kind_of(const redisReply &reply) {
  switch (reply.type) {
  case REDIS_REPLY_STRING:
    return "another text";
  case REDIS_REPLY_STATUS:
    return is_status(reply, "QUEUED") ? "QUEUED, as within a transaction" : "a status";
  case REDIS_REPLY_INTEGER:
    return "a number";
  case REDIS_REPLY_NIL:
    return "nothing";
  case REDIS_REPLY_ERROR:
    return "an error";
  default:
    return "a list";
  }
}

ReplyReader::ReplyReader() : reader_(redisReaderCreate(), redisReaderFree) {
  if (!reader_)
    throw std::bad_alloc();
  reader_->maxbuf = 0; /* hiredis asserts that there is memory when it shrinks its buffer. The reads bound it. */
}

void ReplyReader::throw_error() const {
  if (reader_->err == REDIS_ERR_OOM)
    throw std::bad_alloc();
  throw std::runtime_error("it does not speak the protocol of Redis");
}

void ReplyReader::add(std::string_view bytes) {
  if (redisReaderFeed(reader_.get(), bytes.data(), bytes.size()) != REDIS_OK)
    throw_error();
}

Reply ReplyReader::next() {
  void *reply = nullptr;
  if (redisReaderGetReply(reader_.get(), &reply) != REDIS_OK)
    throw_error();
  return Reply(static_cast<redisReply *>(reply));
}

}  // namespace outbox::redis
