#include "delivery/http_loop.h"

#include <chrono>
#include <stdexcept>
#include <utility>

#include "delivery/thread.h"

namespace outbox {

void init_libcurl() {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (ready != CURLE_OK)
    throw std::runtime_error(std::string("libcurl could not start: ") + curl_easy_strerror(ready));
}

std::shared_ptr<HttpLoop> HttpLoop::shared() {
  // Leaked on purpose: no destructor runs at exit.
  static auto &mutex = *new std::mutex;
  static auto &current = *new std::weak_ptr<HttpLoop>;
  init_libcurl();
  std::lock_guard lock(mutex);
  auto loop = current.lock();
  if (!loop) {
    loop.reset(new HttpLoop);
    current = loop;
  }
  return loop;
}

HttpLoop::HttpLoop() : multi_(curl_multi_init()) {
  if (!multi_)
    throw std::runtime_error("libcurl could not start: out of memory");
  try {
    thread_ = start_thread([this] { run(); });
  } catch (...) {
    curl_multi_cleanup(multi_);
    throw;
  }
}

HttpLoop::~HttpLoop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    curl_multi_wakeup(multi_);  // under the lock: the thread, once it knows, makes an end of the multi
  }
  thread_.join();
}

void HttpLoop::post(Task task) {
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  curl_multi_wakeup(multi_);
}

void HttpLoop::start(CURL *easy, Done done) {
  running_[easy] = std::move(done);
  if (CURLMcode code = curl_multi_add_handle(multi_, easy); code != CURLM_OK) {
    running_.erase(easy);
    throw std::runtime_error(curl_multi_strerror(code));
  }
}

void HttpLoop::cancel(CURL *easy) {
  if (running_.erase(easy))
    curl_multi_remove_handle(multi_, easy);
}

void HttpLoop::keep_connections(long more) {
  connections_ += more;
  curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, connections_ > 0 ? connections_ : 1L);
}

void HttpLoop::run() {
  for (;;) {
    run_tasks();
    {
      std::lock_guard lock(mutex_);
      if (stopping_ && tasks_.empty())
        break;
    }
    int running = 0;
    CURLMcode code = curl_multi_perform(multi_, &running);
    finish_transfers();
    if (code == CURLM_OK)
      code = curl_multi_poll(multi_, nullptr, 0, 60'000, nullptr);  // a wake-up or libcurl's own timer ends it sooner
    if (code != CURLM_OK)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // out of memory, say: do not spin
  }
  for (auto &[easy, done] : running_)
    curl_multi_remove_handle(multi_, easy);
  running_.clear();
  curl_multi_cleanup(multi_);  // here, where signals are blocked: it says goodbye on TLS connections
}

void HttpLoop::run_tasks() {
  std::vector<Task> tasks;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (Task &task : tasks)
    try {
      task(*this);
    } catch (...) {
      // A task settles its own failures; whatever is left must not end the thread that serves all sinks.
    }
}

void HttpLoop::finish_transfers() {
  int left = 0;
  while (CURLMsg *message = curl_multi_info_read(multi_, &left)) {
    if (message->msg != CURLMSG_DONE)
      continue;
    CURL *easy = message->easy_handle;
    CURLcode code = message->data.result;
    curl_multi_remove_handle(multi_, easy);  // the message is gone from here on
    auto done = running_.extract(easy);
    try {
      if (!done.empty())
        done.mapped()(code);
    } catch (...) {
    }
  }
}

}  // namespace outbox
