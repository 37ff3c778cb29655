/*
 * peer_thread.cpp: whatever goes wrong on the thread loses the connection, and nothing else: the events in flight are
 * returned by lose(). Only without memory the thread ends, and the worker with it.
 */
#include "delivery/net/peer_thread.h"

#include <poll.h>

#include <algorithm>

#include "delivery/base/out_of_memory.h"
#include "delivery/base/thread.h"

namespace outbox {

using std::chrono::milliseconds;

static constexpr milliseconds first_backoff{200}, longest_backoff{5000};

void PeerThread::launch() {
  thread_ = start_thread([this] { run(); });
}

void PeerThread::shut_down(const EventFd &wake) {
  ending_ = true;
  wake.wake();
  thread_.join();
}

void PeerThread::run() {
  while (!ending_) {
    try {
      run_once();
    } catch (const Cancelled &) {
      return;
    } catch (const PeerError &error) {
      lose(error);
    } catch (const std::exception &error) {
      lose({"connect", OB_REASON_OTHER, text_unless_memory(error)});
    }
  }
}

void PeerThread::connect_later() {
  backoff_ = std::clamp(backoff_ * 2, first_backoff, longest_backoff);
  connect_at_ = Clock::now() + backoff_;
}

void PeerThread::report_problem(const std::string &problem) {
  if (problem == problem_)
    return;
  problem_ = problem;
  reporter_->degraded(problem);
  if (!problem.empty())
    reporter_->log(OB_LOG_WARNING, problem);
}

void PeerThread::wait_until(Time at, const EventFd &wake, const PeerConnection *connection) {
  int timeout_ms = -1;
  if (at != Time::max())
    timeout_ms = static_cast<int>(
        std::clamp<int64_t>(std::chrono::ceil<milliseconds>(at - Clock::now()).count(), 0, 3'600'000));
  pollfd ready[] = {{wake.fd(), POLLIN, 0}, {-1, 0, 0}};
  if (connection)
    ready[1] = {connection->fd(), connection->events(), 0};
  if (poll(ready, 2, timeout_ms) > 0 && ready[0].revents != 0)
    wake.clear();
}

}  // namespace outbox
