/*
 * library.cpp: an endpoint takes an event before its answer is known, and the answer may be lost: so a delivery and
 * what the worker hears of it are two things.
 */
#include "test/simulate/library.h"

#include <algorithm>

#include "test/simulate/world.h"

namespace simulate {

using dispatch::Moment;
using dispatch::Outcome;

static constexpr int CIRCUIT_FAILURES = 2;
static constexpr int64_t PROBE_PAUSE_MS = 200;

void Library::start(SinkId sink, Request &request) {
  request.running = true;
  const SinkWorld &its = world_.sink(sink);
  const uint64_t drawn = mix(world_.nature(request.position), 77 + world_.tries(request.position));
  int64_t us = its.latency_us + static_cast<int64_t>(drawn % static_cast<uint64_t>(its.latency_us * 2 + 1));
  if (!world_.settling() && static_cast<int>(drawn >> 32 & 127) < its.hang_percent)
    us *= 200;
  world_.schedule(us, Step::ANSWER, slot_, static_cast<int64_t>(worker_), sink, static_cast<int64_t>(request.serial));
}

void Library::submit(SinkId sink, uint64_t ticket, int64_t position, uint64_t key_hash, int32_t attempts) {
  Sink &its = sinks_[sink - 1];
  its.requests.push_back({ticket, position, key_hash, attempts, ++serial_, false, false, {}, false});
  run_next(sink, key_hash);
}

/* Starts the first request of the key, or any without a key that does not run. */
void Library::run_next(SinkId sink, uint64_t key_hash) {
  for (Request &request : sinks_[sink - 1].requests) {
    if (request.key_hash != key_hash)
      continue;
    if (!request.running)
      start(sink, request);
    if (key_hash != 0)
      return;
  }
}

void Library::end(SinkId sink, const Request &request, Outcome outcome, int64_t retry_after_ms, bool suspect) {
  if (outcome == Outcome::REJECTED)
    world_.truth().rejected(request.position);
  completions_.push_back({request.ticket, outcome, retry_after_ms, suspect});
  world_.log(request.position, "sink %u answers %d", sink, static_cast<int>(outcome));
  world_.answered(slot_);
}

void Library::return_queued(SinkId sink, uint64_t key_hash, bool all_keys) {
  std::vector<Request> &requests = sinks_[sink - 1].requests;
  for (const Request &request : requests)
    if (!request.running && (all_keys || request.key_hash == key_hash))
      end(sink, request, Outcome::RETURNED, -1);
  std::erase_if(requests, [=](const Request &request) {
    return !request.running && (all_keys || request.key_hash == key_hash);
  });
}

void Library::deliver(SinkId sink, const Request &request, bool known) {
  world_.log(request.position, "arrives at sink %u%s", sink, known ? "" : ", and its worker is not told");
  world_.truth().delivered(request.position, sink, request.key_hash, worker_);
  if (known)
    world_.truth().acknowledged(request.position, worker_);
}

void Library::fail(Request &request, Outcome outcome, int64_t retry_after_ms, bool suspect, bool all_return) {
  if (outcome == Outcome::REJECTED)
    world_.truth().rejected(request.position);
  request.failed = true;
  request.answer = {request.ticket, outcome, retry_after_ms, suspect};
  request.all_return = all_return;
  world_.answered(slot_);
}

std::vector<Answer> Library::collect() {
  for (SinkId sink = 1; sink <= sinks_.size(); sink++) {
    std::vector<Request> &requests = sinks_[sink - 1].requests;
    for (size_t i = 0; i < requests.size();) {
      if (!requests[i].failed) {
        i++;
        continue;
      }
      const Request request = requests[i];
      requests.erase(requests.begin() + static_cast<std::ptrdiff_t>(i));
      end(sink, request, request.answer.outcome, request.answer.retry_after_ms, request.answer.suspect);
      if (request.all_return || request.key_hash != 0)
        return_queued(sink, request.key_hash, request.all_return);
      i = 0;
    }
  }
  return std::exchange(completions_, {});
}

/* The whole sink is down. */
void Library::failed_down(SinkId sink, Request &request) {
  Sink &its = sinks_[sink - 1];
  const Moment now = world_.now().moment;
  if (its.failures++ == 0)
    its.down_since = now;
  if (!its.circuit_open && its.failures < CIRCUIT_FAILURES) {
    fail(request, Outcome::RETRY, -1, true);
    return;
  }
  if (its.circuit_open && request.attempts > 0)
    fail(request, Outcome::DEFERRED, 5000, false, true);
  else
    fail(request, Outcome::RETURNED, -1, false, true);
  its.circuit_open = true;
  its.probe_at = moment_after(now, PROBE_PAUSE_MS);
}

void Library::succeeded(SinkId sink, const Request &request, bool twice) {
  Sink &its = sinks_[sink - 1];
  deliver(sink, request, true);
  end(sink, request, Outcome::SENT, -1);
  if (twice)
    end(sink, request, Outcome::SENT, -1);
  its.circuit_open = false;
  its.failures = 0;
}

void Library::answer(SinkId sink, uint64_t serial) {
  Sink &its = sinks_[sink - 1];
  const auto found = std::find_if(its.requests.begin(), its.requests.end(), [=](const Request &request) {
    return request.serial == serial && !request.failed;
  });
  if (found == its.requests.end())
    return;
  const Request request = *found;
  const SinkWorld &world = world_.sink(sink);
  const uint64_t drawn = mix(world_.nature(request.position), 1000 + world_.count_try(request.position));
  int chance = static_cast<int>(drawn % 1000);
  const auto is = [&chance](int of_thousand) { return (chance -= of_thousand) < 0; };
  bool twice = false;
  if (!world_.settling()) {
    if (world.down)
      return failed_down(sink, *found);
    if (is(world.retry))
      return fail(*found, Outcome::RETRY, -1);
    if (is(world.lost_answer)) {
      deliver(sink, request, false);
      return fail(*found, Outcome::RETRY, 100);
    }
    if (is(world.reject) && (world.rule.hold || world.returns_after_reject))
      return fail(*found, Outcome::REJECTED, -1);
    if (chance < 0) {
      its.requests.erase(found);
      end(sink, request, Outcome::REJECTED, -1);
      return run_next(sink, request.key_hash);
    }
    if (is(world.defer))
      return fail(*found, Outcome::DEFERRED, 1000);
    twice = is(world.twice);
  }
  its.requests.erase(found);
  succeeded(sink, request, twice);
  if (its.open)
    run_next(sink, request.key_hash);
}

SinkStatus Library::status(SinkId sink) {
  Sink &its = sinks_[sink - 1];
  const Moment now = world_.now().moment;
  SinkStatus status;
  status.circuit_open = its.circuit_open;
  status.credit = INT32_MAX;
  if (its.circuit_open) {
    status.outage_ms = (now.us - its.down_since.us) / 1000;
    const bool may_probe = now >= its.probe_at && its.requests.empty();
    status.credit = may_probe ? 2 : 0;
    status.retry_in_ms = may_probe || !its.requests.empty() ? -1 : milliseconds_until(now, its.probe_at);
  }
  return status;
}

void Library::close(SinkId sink) {
  sinks_[sink - 1].open = false;
  return_queued(sink, 0, true);
  world_.schedule(1000000, Step::GIVE_UP, slot_, static_cast<int64_t>(worker_), sink, 0);
}

void Library::give_up(SinkId sink) {
  if (!sinks_[sink - 1].open)
    lose_all(sink);
}

void Library::lose_all(SinkId sink) {
  for (Request &request : sinks_[sink - 1].requests) {
    if (request.failed)
      continue;
    if (request.running && mix(world_.nature(request.position), world_.count_try(request.position)) % 4 == 0)
      deliver(sink, request, false);
    fail(request, Outcome::RETURNED, -1, false, true);
  }
}

void Library::die() {
  for (SinkId sink = 1; sink <= sinks_.size(); sink++)
    for (const Request &request : std::exchange(sinks_[sink - 1].requests, {}))
      if (request.running && !request.failed &&
          mix(world_.nature(request.position), world_.count_try(request.position)) % 4 == 0)
        deliver(sink, request, false);
}

}  // namespace simulate
