/*
 * http_loop.h: the one thread of this process that speaks HTTP: a libcurl multi and everything that waits for it.
 *
 * It starts with the first webhook sink and ends with the last one. It knows nothing of events: others hand it easy
 * handles and get them back when they are done.
 */
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include <curl/curl.h>

namespace outbox {

/* Makes libcurl ready, once. Throws std::runtime_error. */
void init_libcurl();

class HttpLoop {
public:
  using Task = std::function<void(HttpLoop &)>;
  using Done = std::function<void(CURLcode)>;

  /* The process's loop, started when there is none. Must not be let go of on the loop's own thread. Throws
   * std::runtime_error when it cannot start. */
  static std::shared_ptr<HttpLoop> shared();
  /* Gives up what still runs, without a word to anybody, and waits for the thread: it never blocks for long. */
  ~HttpLoop();
  HttpLoop(const HttpLoop &) = delete;
  HttpLoop &operator=(const HttpLoop &) = delete;

  /* Any thread: runs the task on the loop's thread, soon and in order. */
  void post(Task task);

  /* The loop's thread only. The handle stays the caller's; `done` is called once, unless cancel() comes first. */
  void start(CURL *easy, Done done);
  void cancel(CURL *easy);
  /* How many idle connections are kept for reuse: grows and shrinks with the sinks. */
  void keep_connections(long more);

private:
  HttpLoop();
  void run();
  void run_tasks();
  void finish_transfers();

  CURLM *multi_;
  std::mutex mutex_;  // guards tasks_ and stopping_
  std::vector<Task> tasks_;
  bool stopping_ = false;
  std::unordered_map<CURL *, Done> running_;
  long connections_ = 0;
  std::thread thread_;
};

}  // namespace outbox
