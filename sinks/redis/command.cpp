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
