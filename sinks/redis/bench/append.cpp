/*
 * append.cpp: hiredis alone: appends entries to a stream in pipelines of WINDOW commands, as its documentation shows
 * it. append PORT STREAM ENTRIES WINDOW PAYLOAD_BYTES prints the seconds that it took.
 */
#include <hiredis/hiredis.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

static void must(bool good, const char *what) {
  if (!good) {
    fprintf(stderr, "%s failed\n", what);
    exit(1);
  }
}

int main(int, char **arguments) {
  const int port = atoi(arguments[1]);
  const std::string stream = arguments[2];
  const uint64_t entries = strtoull(arguments[3], nullptr, 10), window = strtoull(arguments[4], nullptr, 10),
                 payload = strtoull(arguments[5], nullptr, 10);
  redisContext *server = redisConnect("127.0.0.1", port);
  must(server && server->err == 0, "connect");

  const std::string body = "{\"x\": \"" + std::string(payload - 9, 'x') + "\"}";
  auto start = std::chrono::steady_clock::now();
  for (uint64_t done = 0; done < entries;) {
    uint64_t sent = 0;
    for (; sent < window && done + sent < entries; sent++) {
      char id[42], key[21];
      snprintf(id, sizeof id, "01a20bc5-30a9-716d-95da-%012lx", done + sent);
      snprintf(key, sizeof key, "%lu", done + sent);
      const std::string words[] = {"XADD",
                                   stream,
                                   "*",
                                   "id",
                                   id,
                                   "type",
                                   "order.made",
                                   "key",
                                   key,
                                   "created_at",
                                   "1700000000000",
                                   "content_type",
                                   "application/json",
                                   "payload",
                                   body};
      const char *texts[std::size(words)];
      size_t sizes[std::size(words)];
      for (size_t i = 0; i < std::size(words); i++) {
        texts[i] = words[i].data();
        sizes[i] = words[i].size();
      }
      must(redisAppendCommandArgv(server, std::size(words), texts, sizes) == REDIS_OK, "append");
    }
    for (uint64_t i = 0; i < sent; i++) {
      void *reply = nullptr;
      must(redisGetReply(server, &reply) == REDIS_OK, "reply");
      must(static_cast<redisReply *>(reply)->type == REDIS_REPLY_STRING, "XADD");
      freeReplyObject(reply);
    }
    done += sent;
  }
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  printf("%.3f\n", took.count());
  redisFree(server);
}
