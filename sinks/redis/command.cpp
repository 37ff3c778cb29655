/* command.cpp: hiredis reports "out of memory" as an error of the reader, which is then of no use any more. */
#include "command.h"

#include <array>
#include <charconv>
#include <new>

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
  constexpr size_t longest = 41; /* two numbers of 64 bits */
  return reply.type == REDIS_REPLY_STRING && id.size() <= longest && dash != id.npos && dash > 0 && id[dash] == '-' &&
         dash + 1 < id.size() && id.find_first_not_of(digits, dash + 1) == id.npos;
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
  reader_->maxbuf = 0; /* hiredis asserts that there is memory when it shrinks its buffer; most_bytes bounds it */
}

void ReplyReader::throw_error() const {
  if (reader_->err == REDIS_ERR_OOM)
    throw std::bad_alloc();
  throw NotRedis("it does not speak the protocol of Redis");
}

void ReplyReader::add(std::string_view bytes) {
  input_.erase(0, read_);
  read_ = 0;
  input_ += bytes;
}

/* The size of the next reply; 0 if it is not there as a whole. What it announces counts at once: nothing of a reply
 * that would be too large is waited for. */
size_t ReplyReader::whole_reply() const {
  constexpr std::string_view line_end = "\r\n";
  const std::string_view rest = std::string_view(input_).substr(read_);
  auto refuse = [](const char *why) { throw NotRedis(why); };
  auto too_large = [&] { refuse("a reply is larger than any that Redis gives to what the sink asks for"); };
  std::array<size_t, most_depth + 1> left{1}; /* elements to come, of each list that is open */
  size_t depth = 0, elements = 0, at = 0;
  for (;;) {
    while (depth > 0 && left[depth] == 0)
      depth--;
    if (left[depth] == 0)
      return at;
    if (at == rest.size())
      return 0;
    const char type = rest[at];
    if (std::string_view("+-:$*").find(type) == std::string_view::npos)
      refuse("it does not speak the protocol of Redis");
    const size_t end = rest.find(line_end, at);
    if (end == rest.npos) {
      if (rest.size() > most_bytes)
        too_large();
      return 0;
    }
    const std::string_view line = rest.substr(at + 1, end - at - 1);
    at = end + line_end.size();
    left[depth]--;
    if (++elements > most_elements || at > most_bytes)
      too_large();
    if ((type != '$' && type != '*') || line == "-1")
      continue;
    size_t n = 0;
    auto [stop, wrong] = std::from_chars(line.data(), line.data() + line.size(), n);
    if (wrong == std::errc::result_out_of_range)
      too_large();
    if (line.empty() || wrong != std::errc() || stop != line.data() + line.size())
      refuse("it does not speak the protocol of Redis");
    if (n > (type == '$' ? most_bytes - at : most_elements - elements))
      too_large();
    if (type == '$') {
      at += n + line_end.size();
      if (at > rest.size())
        return 0;
      continue;
    }
    if (depth == most_depth)
      too_large();
    left[++depth] = n;
  }
}

Reply ReplyReader::next() {
  const size_t size = whole_reply();
  if (size == 0)
    return nullptr;
  void *reply = nullptr;
  if (redisReaderFeed(reader_.get(), input_.data() + read_, size) != REDIS_OK ||
      redisReaderGetReply(reader_.get(), &reply) != REDIS_OK)
    throw_error();
  if (!reply)
    throw NotRedis("it does not speak the protocol of Redis");
  read_ += size;
  return Reply(static_cast<redisReply *>(reply));
}

}  // namespace outbox::redis
