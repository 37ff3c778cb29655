/* scenario.cpp: a worker without a server. It waits on the engine's descriptor alone, so a lost wake-up is a hang. */
#include "scenario.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include <poll.h>
#include <unistd.h>

namespace calls {

/* Far more than any timeout or pause of a scenario, on a busy machine too. */
static constexpr int hang_ms = 30'000;

using Clock = std::chrono::steady_clock;

std::vector<const Scenario *> &Scenario::all() {
  static auto &all = *new std::vector<const Scenario *>;
  return all;
}

Scenario::Scenario(const char *name_, void (*run_)()) : name(name_), run(run_) {
  all().push_back(this);
}

void failed(const char *format, ...) {
  va_list more;
  va_start(more, format);
  fputs("broken: ", stderr);
  vfprintf(stderr, format, more);
  fputs("\n", stderr);
  va_end(more);
  if (getenv("CALLS_ABORT")) /* for a debugger */
    abort();
  _exit(3);
}

ob_event event_of(int key, int seq, const std::string &payload) {
  static const char *const keys[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
  static const ob_header headers[] = {{text("trace"), text("00-4bf92f3577b34da6a3ce929d0e0e4736-01"), false}};
  ob_event event{};
  event.key_hash = static_cast<uint64_t>(key) + 1;
  event.position = seq + 1;
  event.created_at_us = 1714564800007000;
  event.id[0] = static_cast<uint8_t>(key);
  event.id[1] = static_cast<uint8_t>(seq);
  event.aggregate_type = text("Order");
  event.aggregate_id = text(keys[key]);
  event.event_type = text("order.created");
  event.key = text(keys[key]);
  event.payload = text(payload);
  event.attempt = 1;
  event.headers = headers;
  event.n_headers = 1;
  return event;
}

static std::string payload_of(int key, int seq) {
  return "{\"key\": " + std::to_string(key) + ", \"seq\": " + std::to_string(seq) + "}";
}

Worker::Worker() {
  ob_error error{};
  engine_ = second_try("ob_engines_open()", [&] { return under_test([&] { return ob_engines_open(&error); }); });
}

Worker::~Worker() {
  if (!under_test([&] { return ob_engines_close(engine_, hang_ms); }))
    failed("a thread hangs when the engine is closed");
}

void Worker::open(const char *kind, const OptionList &options, const OptionList &mapping) {
  ob_error error{};
  open_again_ = [=, this] { open(kind, options, mapping); };
  sink_ = second_try("ob_sink_open()", [&] {
    ob_sink *sink = under_test([&] { return border::sink_open(engine_, "main", kind, options, mapping, &error); });
    if (!sink && error.message[0] == '\0')
      failed("ob_sink_open() failed without a message");
    return sink;
  });
  under_test([&] {
    ob_sink_order order{};
    order.of = 1;
    order.begin_slowly = true;
    sink_->kind->sink_tell(sink_, &order);
    return true;
  });
}

bool Worker::wait(int ms) {
  pollfd fd{ob_engines_fd(engine_), POLLIN, 0};
  return poll(&fd, 1, ms) == 1;
}

void Worker::ended(const ob_completion &completion) {
  auto found = in_flight_.find(completion.ticket);
  if (found == in_flight_.end())
    failed("ticket %llu got an outcome (%d) and is not in flight: a second one, or of an event that was not accepted",
           static_cast<unsigned long long>(completion.ticket), completion.outcome);
  Flight flight = found->second;
  in_flight_.erase(found);
  Key &key = keys_[static_cast<size_t>(flight.key)];
  key.in_flight--;
  if (completion.outcome == OB_REJECTED)
    failed("an event became a dead letter: %s", completion.error);
  if (completion.outcome != OB_SENT && !completion.error)
    failed("outcome %d has no error text", completion.outcome);
  if (completion.outcome == OB_SENT && key.failed_at >= 0 && flight.seq > key.failed_at)
    failed("event %d of key %d was sent, although event %d had failed", flight.seq, flight.key, key.failed_at);
  if (completion.outcome == OB_SENT)
    key.sent++;
  else if (key.failed_at < 0 || flight.seq < key.failed_at)
    key.failed_at = flight.seq;
  if (completion.outcome == OB_DEFERRED)
    key.due = std::max(key.due, Clock::now() + std::chrono::milliseconds(completion.retry_after_ms));
  if (key.in_flight == 0 && key.failed_at >= 0) {
    key.next = key.failed_at;
    key.failed_at = -1;
  }
}

size_t Worker::collect() {
  ob_completion batch[4]; /* few, so that collections are cut short */
  size_t all = 0;
  while (size_t n = under_test([&] { return ob_collect(engine_, batch, std::size(batch)); })) {
    for (size_t i = 0; i < n; i++)
      ended(batch[i]);
    all += n;
  }
  ob_log_line line;
  while (!is_out_of_memory_ && under_test([&] { return ob_next_log(engine_, &line); })) {
    is_out_of_memory_ = line.level == OB_LOG_FATAL;
    fprintf(stderr, "log: %s\n", line.text);
  }
  return all;
}

/* The worker has ended for want of memory. The next one begins where its outcomes end. */
void Worker::begin_again() {
  if (!under_test([&] { return ob_engines_close(engine_, hang_ms); }))
    failed("a thread hangs when the engine is closed");
  ob_error error{};
  engine_ = under_test([&] { return ob_engines_open(&error); });
  is_out_of_memory_ = false;
  in_flight_.clear();
  for (Key &key : keys_)
    key = {.sent = key.sent, .next = key.sent};
  const std::function<void()> open = open_again_; /* a copy: it replaces that member */
  open();
}

/* False: some events are left that the sink does not take now. */
bool Worker::submit(int each, Clock::time_point now) {
  std::vector<std::string> payloads;
  std::vector<ob_event> events;
  std::vector<Flight> flights;
  payloads.reserve(keys_.size() * static_cast<size_t>(each)); /* events point into it */
  for (int seq = 0; seq < each; seq++)
    for (size_t k = 0; k < keys_.size(); k++)
      if (seq >= keys_[k].next && keys_[k].failed_at < 0 && keys_[k].due <= now) {
        Flight flight{static_cast<int>(k), seq};
        events.push_back(event_of(flight.key, seq, payloads.emplace_back(payload_of(flight.key, seq))));
        events.back().ticket = ++last_ticket_;
        flights.push_back(flight);
      }
  if (events.empty())
    return true;
  size_t taken = under_test([&] { return sink_->kind->submit(sink_, events.data(), events.size()); });
  for (size_t i = 0; i < taken; i++) {
    in_flight_[events[i].ticket] = flights[i];
    Key &key = keys_[static_cast<size_t>(flights[i].key)];
    key.in_flight++;
    key.next = flights[i].seq + 1;
  }
  return taken == events.size();
}

/* A cause is over: what was deferred for it is due. */
void Worker::look_for_resumed() {
  char error[200];
  while (!is_out_of_memory_ && under_test([&] { return sink_->kind->sink_next_resumed(sink_, error, sizeof error); }))
    for (Key &key : keys_)
      key.due = {};
}

int Worker::ms_until_due(Clock::time_point submitted_at) const {
  const Clock::time_point now = Clock::now();
  Clock::time_point next = now + std::chrono::milliseconds(hang_ms);
  for (const Key &key : keys_)
    if (key.due > submitted_at)
      next = std::min(next, std::max(now, key.due));
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(next - now).count());
}

void Worker::submit_some(int keys, int each) {
  keys_.assign(static_cast<size_t>(keys), {});
  submit(each, Clock::now());
}

void Worker::deliver(int keys, int each) {
  keys_.assign(static_cast<size_t>(keys), {});
  for (int idle_ms = 0;;) {
    const Clock::time_point now = Clock::now();
    bool all_taken = submit(each, now);
    bool done = true;
    for (const Key &key : keys_)
      done = done && key.sent == each;
    if (done)
      break;
    ob_sink_status status;
    under_test([&] {
      sink_->kind->sink_get_status(sink_, &status);
      return true;
    });
    if (status.state == OB_SINK_DISABLED)
      failed("the sink is disabled: %s", status.last_error);
    /* While events wait for the sink, the worker looks again; else an outcome must wake it. */
    int ms = all_taken ? ms_until_due(now) : 20;
    bool woken = wait(ms);
    const bool any = collect() > 0;
    look_for_resumed();
    if (is_out_of_memory_)
      begin_again();
    if (any || woken)
      idle_ms = 0;
    else if ((idle_ms += ms) >= hang_ms)
      failed("nothing happened for %d ms: %zu events are in flight, %s; state %d, credit %u, \"%s\"", idle_ms,
             in_flight_.size(), all_taken ? "all were accepted" : "some are not accepted", status.state,
             status.credit, status.last_error);
  }
  if (!in_flight_.empty())
    failed("%zu outcomes too few", in_flight_.size());
}

void Worker::close(int grace_ms) {
  under_test([&] {
    sink_->kind->sink_close(sink_, grace_ms);
    return true;
  });
  while (!is_out_of_memory_ && !under_test([&] { return sink_->kind->sink_closed(sink_); })) {
    bool woken = wait(hang_ms);
    if (collect() == 0 && !woken)
      failed("a closing sink has not ended: %zu events have no outcome", in_flight_.size());
  }
  if (!in_flight_.empty() && !is_out_of_memory_)
    failed("the sink is closed, and %zu events have no outcome", in_flight_.size());
}

static std::mutex received_mutex;

void Received::add(const std::string &payload) {
  Armed not_here(false);
  std::lock_guard lock(received_mutex);
  payloads_.push_back(payload);
}

void Received::check(int keys, int each) const {
  std::lock_guard lock(received_mutex);
  for (int key = 0; key < keys; key++) {
    int seen = 0; /* events 0 to seen - 1 have arrived */
    for (const std::string &payload : payloads_)
      for (int seq = 0; seq < each; seq++)
        if (payload.find(payload_of(key, seq)) != std::string::npos) {
          if (seq > seen)
            failed("event %d of key %d arrived before event %d", seq, key, seen);
          seen = std::max(seen, seq + 1);
        }
    if (seen != each)
      failed("%d of %d events of key %d arrived", seen, each, key);
  }
}

}  // namespace calls
