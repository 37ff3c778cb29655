/*
 * server.h: HTTP, by libmicrohttpd, which parses what strangers send. Every request is bounded: by size, by the time
 * in which it must be complete, and by the number of connections.
 */
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "console/server/message.h"

struct MHD_Daemon;
struct MHD_Connection;

namespace console {

struct Listen {
  std::string address = "127.0.0.1"; /* numeric */
  uint16_t port = 0;                 /* 0: any that is free */
  std::string certificate, key;      /* PEM; empty: no TLS */
};

/* Connections that must have got on by a time, or are cut. */
class Deadlines {
public:
  using Clock = std::chrono::steady_clock;
  void set(int socket, Clock::duration from_now);
  void remove(int socket);
  void cut_late(Clock::time_point now);

private:
  std::mutex lock_;
  std::unordered_map<int, Clock::time_point> by_socket_;
};

class Server {
public:
  using Handler = std::function<Response(const Request &)>; /* of any thread; may throw nothing */

  static constexpr unsigned most_connections = 100, most_of_one_address = 50;
  static constexpr size_t most_header_bytes = 32 * 1024, most_form_bytes = 64 * 1024;
  static constexpr std::chrono::seconds request_limit{10}, answer_limit{90}, stream_limit{330};
  static constexpr size_t stack_bytes = 1024 * 1024;

  /* Throws std::runtime_error if it cannot listen. `tick` runs once a second. */
  Server(const Listen &listen, bool is_behind_proxy, Handler handler, std::function<void()> tick);
  ~Server();
  Server(const Server &) = delete;
  Server &operator=(const Server &) = delete;

  uint16_t port() const { return port_; }

private:
  struct Reading;
  friend struct Callbacks;

  const Handler handler_;
  const std::function<void()> tick_;
  Deadlines deadlines_;
  std::unique_ptr<MHD_Daemon, void (*)(MHD_Daemon *)> daemon_;
  uint16_t port_ = 0;
  std::mutex lock_;
  std::condition_variable ending_;
  bool ends_ = false;
  std::thread janitor_;
};

}  // namespace console
