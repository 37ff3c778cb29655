/*
 * http_loop.h: the only thread of this process that speaks HTTP: a libcurl multi handle, timers, and endpoints that
 * wait for a connection. It starts with the first webhook sink and ends with the last one, and knows nothing of
 * events: callers hand in easy handles and get them back when they are done. The cost of an iteration depends on
 * the connections with activity, not on the number of open ones.
 */
#pragma once

#include <chrono>
#include <functional>
#include <list>
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
#include "delivery/kind.h"

namespace outbox {

/* Initializes libcurl, once. Throws std::runtime_error; the next call tries again. */
void init_libcurl();
/* The versions of libcurl and OpenSSL. */
void describe_libcurl(ob_client_library &out);

/* A multi handle whose cleanup does not wait for a hanging resolver, and in which one name's resolver does not delay
 * others. Returns null if memory is short. */
CURLM *open_multi();

/*
 * Threads: any thread may call shared() and post(); everything else belongs to the loop's thread. mutex_ guards
 * tasks_ and stopping_ only.
 *
 * Wake-ups: post() writes to wake_fd_ when tasks_ was empty, and run_tasks() takes all tasks at once,
 * so a task in tasks_ is always announced. The loop reads wake_fd_ in wait(), before the next run_tasks(). Timers,
 * sockets and waiting tasks change only on the loop's thread, which looks at all of them in each iteration.
 */
class HttpLoop {
public:
  using Task = std::function<void(HttpLoop &)>;
  /* Endpoints that share a quota of connections: all of this process, or those of one host. */
  struct QuotaGroup {
    explicit QuotaGroup(size_t total) : quota(total) {}
    ConnectionQuota quota;
    std::list<Task> waiting;
    bool freed = false;  // a connection became free since start_waiting()
  };
  using Done = std::function<void(CURLcode)>;
  using Time = std::chrono::steady_clock::time_point;

  /* The loop of this process; starts it if there is none. The last reference must not be dropped on the loop's own
   * thread. Throws std::runtime_error if it cannot start. */
  static std::shared_ptr<HttpLoop> shared();
  /* Cancels all transfers without calling `done`, and waits for the thread, which ends soon. */
  ~HttpLoop();
  HttpLoop(const HttpLoop &) = delete;
  HttpLoop &operator=(const HttpLoop &) = delete;

  /* Runs the task on the loop's thread, soon and in order. Any thread. */
  void post(Task task);

  bool is_loop_thread() const noexcept { return std::this_thread::get_id() == loop_thread_; }

  /* All functions below: only on the loop's thread. */
  void post_at(Time when, Task task);

  /* The group of endpoints with this scheme, host and port. `at_least` is the concurrency that one of them wants. */
  std::shared_ptr<QuotaGroup> host(const std::string &name, size_t at_least);
  /* Returns null if an endpoint of `host` that has `running` transfers may start one more. Otherwise returns the
   * group whose quota is used up: append a task to its `waiting`, which runs when a connection may be free. Waiting
   * tasks run in turn. */
  QuotaGroup *exhausted_quota(QuotaGroup &host, size_t running);
  /* Starts a transfer. The caller keeps the handle; `done` is called once, unless cancel() is called first.
   * `timeout`: its CURLOPT_TIMEOUT_MS. */
  void start(CURL *easy, std::shared_ptr<QuotaGroup> host, Done done, std::chrono::milliseconds timeout, bool http2);
  /* To be called when a request over HTTP/2 has timed out. If nothing at all has arrived on its connection for as
   * long as any request to the host may take, all that use the connection are broken off: libcurl would go on to use
   * it as long as requests overlap, however dead it is. */
  void end_silent_connection(CURL *easy, const QuotaGroup &host, std::chrono::milliseconds http2_timeout);
  void cancel(CURL *easy);
  /* The process ran out of descriptors: reduces the quota for 10 s. */
  void descriptors_ran_out();

  /* Changes the number of idle connections that are kept for reuse. */
  void keep_connections(long more);

private:
  HttpLoop();
  void run();
  bool turn();
  void run_tasks();
  void run_timers();
  void run_task(const Task &task);
  void finish_transfers();
  void connection_freed(const std::shared_ptr<QuotaGroup> &host);
  void start_waiting();
  void start_waiting(QuotaGroup &group);
  void limit_connections(size_t total);
  void limit_idle();
  void watch_sockets();
  void wait();
  void limit_transfers(bool limited);
  void end_late_transfers();
  bool end_idle(int fd);
  static int on_socket(CURL *easy, curl_socket_t fd, int what, void *self, void *);
  static int on_timer(CURLM *, long timeout_ms, void *self);

  CURLM *multi_;
  int epoll_fd_ = -1, wake_fd_ = -1;
  std::thread::id loop_thread_;  // set by the thread itself when it starts
  std::mutex mutex_;             // guards tasks_ and stopping_; all other members belong to the loop's thread
  std::vector<Task> tasks_;
  bool stopping_ = false;
  std::multimap<Time, Task> timers_;
  Time curl_at_ = Time::max();     // when libcurl wants to be called next
  std::unordered_set<int> http2_;  // sockets of connections of HTTP/2; also numbers of closed ones
  struct Wanted {
    int what;
    bool http2;  // the connection may get frames while no request uses it
  };
  std::unordered_map<int, Wanted> sockets_;  // changes of what libcurl waits for, not yet passed to epoll
  std::unordered_set<int> busy_;             // sockets of transfers
  std::unordered_set<int> idle_;             // sockets of idle connections of HTTP/1.1, on which no data is expected
  struct Running {
    Done done;
    std::shared_ptr<QuotaGroup> host;
    std::chrono::milliseconds timeout;
    bool http2;
  };
  std::unordered_map<CURL *, Running> running_;
  QuotaGroup all_;
  const size_t allowed_;
  std::unordered_map<std::string, std::weak_ptr<QuotaGroup>> hosts_;
  std::vector<std::shared_ptr<QuotaGroup>> freed_hosts_;
  long connections_ = 0;
  std::thread thread_;
};

}  // namespace outbox
