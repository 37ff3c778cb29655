/*
 * delay.cpp: a network in between: a proxy that delays each byte, in both directions, by a fixed time, and has no
 * other limit. Two threads per direction and connection: one reads and notes the time, one writes when it is over.
 *
 *   delay LISTEN_PORT PORT MICROSECONDS       both on 127.0.0.1
 *
 * Prints "ready" when it listens, and runs until it is killed.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void die(const char *what) {
  perror(what);
  _Exit(1);
}

sockaddr_in here(const char *port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(atoi(port)));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

/* The bytes that were read from one side and not yet written to the other. An empty text: the sender has closed. */
class Way {
public:
  void put(std::string bytes, Clock::time_point due) {
    std::lock_guard lock(mutex_);
    under_way_.push_back({due, std::move(bytes)});
    came_.notify_one();
  }
  std::string take() {
    std::unique_lock lock(mutex_);
    came_.wait(lock, [this] { return !under_way_.empty(); });
    auto [due, bytes] = std::move(under_way_.front());
    under_way_.pop_front();
    lock.unlock();
    std::this_thread::sleep_until(due);
    return std::move(bytes);
  }

private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<std::pair<Clock::time_point, std::string>> under_way_;
};

struct Pair {
  int client, server;
  ~Pair() {
    close(client);
    close(server);
  }
};

void carry(std::shared_ptr<Pair> pair, int from, int to, std::chrono::microseconds delay) {
  auto way = std::make_shared<Way>();
  std::thread([pair, way, to] {
    prctl(PR_SET_TIMERSLACK, 1000);
    for (std::string bytes; !(bytes = way->take()).empty();)
      for (size_t sent = 0; sent < bytes.size();) {
        ssize_t n = send(to, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
        if (n <= 0)
          break;
        sent += static_cast<size_t>(n);
      }
    shutdown(to, SHUT_WR);
  }).detach();
  std::thread([pair, way, from, delay] {
    std::string bytes(1 << 18, '\0');
    for (ssize_t n; (n = recv(from, bytes.data(), bytes.size(), 0)) > 0;)
      way->put(bytes.substr(0, static_cast<size_t>(n)), Clock::now() + delay);
    way->put({}, Clock::now() + delay);
  }).detach();
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 4)
    die("LISTEN_PORT PORT MICROSECONDS");
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  const sockaddr_in own = here(argv[1]), target = here(argv[2]);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener, reinterpret_cast<const sockaddr *>(&own), sizeof own) != 0 || listen(listener, 100) != 0)
    die("listen");
  puts("ready");
  fflush(stdout);
  for (int client; (client = accept(listener, nullptr, nullptr)) >= 0;) {
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    std::shared_ptr<Pair> pair(new Pair{client, server});
    if (connect(server, reinterpret_cast<const sockaddr *>(&target), sizeof target) != 0)
      continue;
    for (int socket : {client, server})
      setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    carry(pair, client, server, std::chrono::microseconds(atol(argv[3])));
    carry(pair, server, client, std::chrono::microseconds(atol(argv[3])));
  }
  die("accept");
}
