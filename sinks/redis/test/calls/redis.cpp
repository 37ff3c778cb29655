/*
 * redis.cpp: each allocation and each call of a Redis sink fails once (test/calls), against a server in this process
 * that knows as much of Redis as a writer needs.
 */
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "sinks/redis/command.h"
#include "test/calls/scenario.h"

extern "C" const struct ob_sink_kind *outbox_make_sink_kind(const char *version, int pg_version) noexcept;

namespace calls {
namespace {

using outbox::redis::Reply;
using outbox::redis::ReplyReader;
using outbox::redis::text_of;

constexpr int redis_keys = 3, redis_events = 3;

[[maybe_unused]] const bool made = outbox_make_sink_kind("1.0", 150000) != nullptr;

/* Decides the fate of the n-th entry, counted over all connections. */
enum class Fate { Store, Full, WrongType, Unknown, Replica, HangUp, Ignore };
using Fates = Fate (*)(int n);

class Server {
public:
  explicit Server(Fates fates) : fates_(fates), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr *>(&address), size) != 0 || listen(listener_, 8) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr *>(&address), &size) != 0)
      failed("no listener");
    host = "localhost:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() {
    shutdown(listener_, SHUT_RDWR);
    if (int peer = peer_; peer >= 0)
      shutdown(peer, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  Server(const Server &) = delete;

  std::string host;
  Received received;

private:
  void serve() {
    for (;;) {
      int peer = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (peer < 0)
        return;
      peer_ = peer;
      talk(peer);
      peer_ = -1;
      close(peer);
    }
  }

  static void say(int peer, std::string_view text) { send(peer, text.data(), text.size(), MSG_NOSIGNAL); }

  /* A command has the form of a reply: an array of texts. */
  void talk(int peer) {
    char buffer[4096];
    ReplyReader reader;
    for (;;) {
      while (Reply command = reader.next())
        if (!answer(peer, *command))
          return;
      ssize_t n = recv(peer, buffer, sizeof buffer, 0);
      if (n <= 0)
        return;
      reader.add({buffer, static_cast<size_t>(n)});
    }
  }

  bool answer(int peer, const redisReply &command) {
    std::string_view name = text_of(*command.element[0]);
    if (name == "HELLO")
      say(peer, "*4\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$4\r\nrole\r\n$6\r\nmaster\r\n");
    else if (name == "PING")
      say(peer, "+PONG\r\n");
    else if (name == "WAIT")
      say(peer, ":" + std::to_string(waits_++ % 2) + "\r\n");
    else if (name == "XADD")
      return added(peer, std::string(text_of(*command.element[command.elements - 1])));
    else
      say(peer, "+OK\r\n");
    return true;
  }

  bool added(int peer, const std::string &payload) {
    Fate fate = fates_(n_++);
    switch (fate) {
    case Fate::Store:
      received.add(payload);
      say(peer, "$3\r\n1-" + std::to_string(n_ % 10) + "\r\n");
      return true;
    case Fate::Full:
      say(peer, "-OOM command not allowed when used memory > 'maxmemory'.\r\n");
      return true;
    case Fate::WrongType:
      say(peer, "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n");
      return true;
    case Fate::Unknown:
      say(peer, "-ERR something\r\n");
      return true;
    case Fate::Replica:
      say(peer, "-READONLY You can't write against a read only replica.\r\n");
      return true;
    case Fate::HangUp:
      return false;
    case Fate::Ignore:
      break;
    }
    return true;
  }

  const Fates fates_;
  const int listener_;
  std::atomic<int> peer_{-1};
  int n_ = 0, waits_ = 1;
  std::thread thread_;
};

void deliver_to(Server &server, const char *option = nullptr, const char *value = nullptr) {
  {
    Worker worker;
    std::vector<ob_option> options{{"hosts", server.host.c_str()}, {"stream", "s"}, {"connect_timeout", "3s"}};
    if (option)
      options.push_back({option, value});
    worker.open("redis", options, {{"user", "app"}, {"password", "secret"}});
    worker.deliver(redis_keys, redis_events);
    worker.close(5000);
  }
  server.received.check(redis_keys, redis_events);
}

const Scenario redis_plain("redis", [] {
  Server server([](int) { return Fate::Store; });
  deliver_to(server);
});

const Scenario redis_failing("redis-failing", [] {
  Server server([](int n) {
    return n == 1   ? Fate::Full
           : n == 3 ? Fate::WrongType
           : n == 5 ? Fate::HangUp
           : n == 6 ? Fate::Replica
           : n == 8 ? Fate::Unknown
                    : Fate::Store;
  });
  deliver_to(server);
});

/* Every second WAIT has too few replicas. */
const Scenario redis_waits("redis-waits", [] {
  Server server([](int) { return Fate::Store; });
  deliver_to(server, "wait_replicas", "1");
});

/* It is closed with events in flight. */
const Scenario redis_closed("redis-closed", [] {
  Server server([](int) { return Fate::Ignore; });
  Worker worker;
  worker.open("redis", {{"hosts", server.host.c_str()}, {"stream", "s"}});
  worker.submit_some(redis_keys, redis_events);
  worker.wait(50);
  worker.collect();
  worker.close(100);
});

}  // namespace
}  // namespace calls
