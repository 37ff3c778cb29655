/*
 * http_loop.h: the one thread of this process that speaks HTTP: a libcurl multi and everything that waits for it.
 *
 * It starts with the first webhook sink and ends with the last one. It knows nothing of events: others hand it easy
 * handles and get them back when they are done. What a round costs depends on the connections on which something
 * happens, not on those that are open.
 */
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <curl/curl.h>

#include "delivery/http/connection_quota.h"

namespace outbox {

/* Makes libcurl ready, once. Throws std::runtime_error. */
void init_libcurl();

/* A multi handle that neither waits for a hanging resolver when it is cleaned up, nor lets one name's hold up the
 * others'. Null when there is no memory. */
CURLM *open_multi();

class HttpLoop {
public:
  using Task = std::function<void(HttpLoop &)>;
  /* Who shares a number of connections: all of this process, and those of one host. */
  struct Sharers {
    explicit Sharers(size_t total) : share(total) {}
    ConnectionQuota share;
    std::deque<Task> waiting;
    bool freed = false;  // since they were last asked
  };
  using Done = std::function<void(CURLcode)>;
  using Time = std::chrono::steady_clock::time_point;

  /* The process's loop, started when there is none. Must not be let go of on the loop's own thread. Throws
   * std::runtime_error when it cannot start. */
  static std::shared_ptr<HttpLoop> shared();
  /* Gives up what still runs, without a word to anybody, and waits for the thread: it never blocks for long. */
  ~HttpLoop();
  HttpLoop(const HttpLoop &) = delete;
  HttpLoop &operator=(const HttpLoop &) = delete;

  /* Any thread: runs the task on the loop's thread, soon and in order. */
  void post(Task task);

  bool is_loop_thread() const noexcept { return std::this_thread::get_id() == loop_thread_; }

  /* The loop's thread only, all that follows. */
  void post_at(Time when, Task task);

  /* Those who connect to the same scheme, host and port; one of them may want so many connections. */
  std::shared_ptr<Sharers> host(const std::string &name, size_t at_least);
  /* Null when there is a connection for one more transfer of somebody who has so many. Else who has none: what is
   * `waiting` there runs when there may be one, each in its turn. */
  Sharers *no_room(Sharers &host, size_t running);
  /* The handle stays the caller's; `done` is called once, unless cancel() comes first. */
  void start(CURL *easy, std::shared_ptr<Sharers> host, Done done);
  void cancel(CURL *easy);
  /* There was no descriptor for a connection: fewer for a while. */
  void descriptors_ran_out();

  /* How many idle connections are kept for reuse: grows and shrinks with the sinks. */
  void keep_connections(long more);

private:
  HttpLoop();
  void run();
  void run_tasks();
  void run_timers();
  void run_task(const Task &task);
  void finish_transfers();
  void closed(const std::shared_ptr<Sharers> &host);
  void offer_room();
  void offer_room(Sharers &sharers);
  void limit_connections(size_t total);
  void limit_idle();
  void watch_sockets();
  void wait();
  bool end_idle(int fd);
  static int on_socket(CURL *, curl_socket_t fd, int what, void *self, void *);
  static int on_timer(CURLM *, long timeout_ms, void *self);

  CURLM *multi_;
  int epoll_fd_ = -1, wake_fd_ = -1;
  std::thread::id loop_thread_;  // known as soon as it runs
  std::mutex mutex_;             // guards tasks_ and stopping_
  std::vector<Task> tasks_;
  bool stopping_ = false;
  std::multimap<Time, Task> timers_;
  Time curl_at_ = Time::max();            // libcurl wants to be called then
  std::unordered_map<int, int> sockets_;  // what libcurl waits for on each, since epoll was last told
  std::unordered_set<int> idle_;          // on which nothing is due to come
  struct Running {
    Done done;
    std::shared_ptr<Sharers> host;
  };
  std::unordered_map<CURL *, Running> running_;
  Sharers all_;
  const size_t allowed_;
  std::unordered_map<std::string, std::weak_ptr<Sharers>> hosts_;
  std::vector<std::shared_ptr<Sharers>> freed_;
  long connections_ = 0;
  std::thread thread_;
};

}  // namespace outbox
