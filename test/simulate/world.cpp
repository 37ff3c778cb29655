/*
 * world.cpp: time, workers and faults. Virtual time goes from one thing to the next. When the script is over, the
 * world is healed and runs on, and then everything must have been delivered.
 */
#include "test/simulate/world.h"

#include <algorithm>
#include <cassert>
#include <cstdarg>
#include <cstdio>
#include <set>

#include "test/simulate/worker.h"

namespace simulate {

using dispatch::Moment;

static constexpr int64_t WAL_WRITER_US = 20000;

static bool is_later(const Step &a, const Step &b) {
  return std::pair(a.at_us, a.order) > std::pair(b.at_us, b.order);
}

World::World(const Script &script, int level, bool verbose)
    : script_(script), verbose_(verbose), random_(mix(script.seed, 3)), truth_(table_, rules_) {
  Random drawn(mix(script.seed, 2));
  static constexpr int MAX_IN_FLIGHT[] = {2, 4, 8, 20, 100};
  settings_ = {MAX_IN_FLIGHT[drawn.below(5)],         static_cast<int>(drawn.between(50, 1000)),
               static_cast<int>(drawn.between(1, 3)), static_cast<int>(drawn.between(1, 12)),
               drawn.percent(50) ? 100 : 50,          drawn.percent(70) ? 100 : 60,
               drawn.percent(80) ? 100 : 50,          mix(script.seed, 4) % 4 == 0 ? 60 : 0,
               mix(script.seed, 5) % 4 == 0};
  settings_.max_in_flight = std::max(settings_.max_in_flight, settings_.n_sinks);
  for (int i = 0; i < settings_.n_sinks; i++) {
    SinkWorld sink;
    sink.rule.ordered = drawn.percent(85);
    sink.rule.hold = sink.rule.ordered && drawn.percent(30);
    sink.rule.max_attempts = static_cast<int32_t>(drawn.between(1, 4));
    sink.latency_us = 100 << drawn.below(9);
    sink.retry = drawn.percent(50) ? static_cast<int>(drawn.below(drawn.percent(20) ? 500 : 150)) : 0;
    sink.reject = drawn.percent(40) ? static_cast<int>(drawn.below(drawn.percent(20) ? 300 : 80)) : 0;
    if (level >= 2) {
      sink.hang_percent = drawn.percent(20) ? 3 : 0;
      sink.lost_answer = drawn.percent(30) ? 30 : 0;
      sink.defer = drawn.percent(30) ? static_cast<int>(drawn.below(80)) : 0;
      sink.twice = drawn.percent(30) ? 100 : 0;
      sink.returns_after_reject = drawn.percent(50);
    }
    sinks_.push_back(sink);
    rules_.push_back(sink.rule);
  }
  if (level >= 3)
    workers_ = static_cast<int>(drawn.between(1, MAX_WORKERS));
  natures_.push_back(0);
  tries_.push_back(0);
}

World::~World() = default;

void World::log(int64_t position, const char *format, ...) {
  if (!verbose_)
    return;
  char text[256], line[300];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  snprintf(line, sizeof(line), "%10.3f ms  %s", static_cast<double>(now_us_ - 1000000000) / 1000, text);
  history_.emplace_back(position, line);
}

/* ---- time ----------------------------------------------------------------------------------------------------- */

void World::schedule(int64_t in_us, Step::Kind kind, int64_t a, int64_t b, int64_t c, int64_t d) {
  agenda_.push_back({now_us_ + std::max<int64_t>(in_us, 0), ++order_, kind, a, b, c, d});
  std::push_heap(agenda_.begin(), agenda_.end(), is_later);
}

void World::take(const Step &step) {
  const auto its_worker = [&]() -> Worker * {
    Slot &slot = slots_[step.a];
    return slot.pid == static_cast<Incarnation>(step.b) && slot.worker && !slot.worker->is_dead() ? slot.worker.get()
                                                                                                  : nullptr;
  };
  switch (step.kind) {
  case Step::ACTION:
    act(script_.actions[step.a]);
    break;
  case Step::INSERT:
    insert(step.a);
    break;
  case Step::END:
    end_producer(step.a);
    break;
  case Step::RESOLVE:
  case Step::UNLOCK:
    resolve(static_cast<Xid>(step.a), step.b != 0);
    break;
  case Step::UP:
    sink(static_cast<SinkId>(step.a)).down = false;
    break;
  case Step::RESUME:
    sink(static_cast<SinkId>(step.a)).stopped = false;
    wake(true);
    break;
  case Step::GOOD_ROW:
    bad_rows_.erase(step.a);
    break;
  case Step::GOOD_SINK:
    sink(static_cast<SinkId>(step.a)).unrecordable = false;
    break;
  case Step::ANSWER:
    if (Worker *worker = its_worker())
      worker->library().answer(static_cast<SinkId>(step.c), static_cast<uint64_t>(step.d));
    break;
  case Step::GIVE_UP:
    if (Worker *worker = its_worker())
      worker->library().give_up(static_cast<SinkId>(step.c));
    break;
  case Step::REDRIVE: {
    const Xid xid = table_.begin();
    redrive_row(step.a, xid, false);
    resolve(xid, true);
    break;
  }
  case Step::WAL_WRITER:
    table_.flush(table_.end_of_log());
    schedule(WAL_WRITER_US, Step::WAL_WRITER, 0, 0, 0, 0);
    break;
  }
}

/* The next thing until then: a step of the world, or a turn of a worker. False: there is none. */
bool World::step(int64_t until_us) {
  int next = -1;
  int64_t at_us = agenda_.empty() ? INT64_MAX : agenda_.front().at_us;
  for (int i = 0; i < MAX_WORKERS; i++) {
    const Slot &slot = slots_[i];
    const int64_t wakes = slot.busy       ? INT64_MAX
                          : slot.pid != 0 ? slot.wake_at.us
                          : i < workers_  ? slot.start_at.us
                                          : INT64_MAX;
    if (wakes < at_us) {
      at_us = wakes;
      next = i;
    }
  }
  if (at_us > until_us || (next >= 0 && depth_ >= 2))
    return false;
  now_us_ = std::max(now_us_, at_us);
  table_.step();
  if (next >= 0) {
    run_worker(next);
    return true;
  }
  std::pop_heap(agenda_.begin(), agenda_.end(), is_later);
  const Step step = agenda_.back();
  agenda_.pop_back();
  take(step);
  return true;
}

void World::pass(Worker &) {
  if (random_.percent(50))
    return;
  const int64_t until_us = now_us_ + (random_.percent(5) ? random_.below(20000) : random_.below(300));
  while (step(until_us))
    ;
  now_us_ = std::max(now_us_, until_us);
}

/* ---- workers -------------------------------------------------------------------------------------------------- */

void World::answered(int index) {
  Slot &slot = slots_[index];
  if (slot.worker && !slot.worker->is_gathering())
    slot.wake_at = std::min(slot.wake_at, {now_us_});
}

void World::wake(bool rescan) {
  for (int i = 0; i < MAX_WORKERS; i++) {
    Slot &slot = slots_[i];
    if (rescan)
      slot.recalled = true;
    if (rescan || std::exchange(slot.needs_wakeup, false))
      slot.wake_at = std::min(slot.wake_at, {now_us_});
    if (slot.pid == 0)
      slot.start_at = std::min(slot.start_at, {now_us_});
  }
}

void World::run_worker(int index) {
  Slot &slot = slots_[index];
  slot.busy = true;
  depth_++;
  if (slot.pid == 0) {
    slot.pid = ++last_pid_;
    slot.worker = std::make_unique<Worker>(*this, index, slot.pid);
    slot.needs_wakeup = slot.recalled = false;
    slot.crash_in = slot.fail_in = 0;
    log(0, "worker %d starts", index);
    for (Slot &each : slots_) {
      each.shards_changed = true;
      if (each.pid != 0)
        each.wake_at = std::min(each.wake_at, {now_us_});
    }
    slot.wake_at = {now_us_};
    depth_--;
    slot.busy = false;
    return;
  }
  slot.wake_at = dispatch::MOMENT_NEVER;
  try {
    const Moment wake_at = slot.worker->loop();
    slot.wake_at = std::min(slot.wake_at, std::max(wake_at, {now_us_ + 1}));
    if (const char *bound = slot.worker->over_bounds())
      throw Broken(bound, {});
    if (slot.worker->wants_to_exit()) {
      const Moment until = slot.worker->away_until();
      slot.worker.reset();
      slot.pid = 0;
      slot.shards = {};
      slot.draining.clear();
      slot.start_at = until;
      log(0, "worker %d exits", index);
    }
  } catch (const Crashed &) {
    kill_worker(index, "is killed");
  }
  depth_--;
  slot.busy = false;
}

void World::kill_worker(int index, const char *how) {
  Slot &slot = slots_[index];
  log(0, "worker %d %s", index, how);
  slot.worker->die();
  if (!slot.worker->is_dead())
    truth_.died(slot.pid, settings_.max_in_flight);
  slot.worker.reset();
  slot.pid = 0;
  slot.shards = {};
  slot.draining.clear();
  slot.crash_in = slot.fail_in = 0;
  slot.start_at = {now_us_ + random_.below(5000)};
  for (Slot &each : slots_)
    each.shards_changed = true;
}

void World::kill_server() {
  log(0, "the server is killed");
  table_.crash();
  for (Incarnation pid = 1; pid <= last_pid_; pid++) /* of those that have left, too, recordings may be lost */
    truth_.died(pid, settings_.max_in_flight);
  for (int i = 0; i < MAX_WORKERS; i++) {
    Slot &slot = slots_[i];
    if (slot.pid == 0)
      continue;
    slot.worker->server_died();
    slot.shards = {};
    slot.draining.clear();
    if (!slot.busy)
      kill_worker(i, "dies with it");
  }
  std::erase_if(key_locks_, [this](const auto &lock) { return !table_.is_running(lock.second); });
  /* Recordings that were not flushed never were. */
  const Snapshot snapshot = table_.snapshot(NO_XID);
  for (int64_t position = 1; position <= table_.last_position(); position++) {
    Truth::Event &event = truth_.at(position);
    const Found row = table_.find(position, snapshot);
    if (!table_.is_committed(event.xid))
      truth_.never_was(position);
    if (row.version == nullptr)
      continue;
    if (event.deleted) /* asynchronously: later events of its key went on, and now it is there again */
      truth_.changed(position);
    event.recorded = event.deleted = false;
    if (event.sink != row.version->sink || event.key_hash != row.version->key_hash)
      truth_.moved(position, row.version->sink, row.version->key_hash);
    truth_.committed(position, event.deliveries > 0);
  }
}

/* ---- the end -------------------------------------------------------------------------------------------------- */

bool World::is_quiet() {
  const Snapshot snapshot = table_.snapshot(NO_XID);
  for (int64_t position = table_.first_alive(); position <= table_.last_position(); position++) {
    const Found row = table_.find(position, snapshot);
    if (row.version && !row.version->failed)
      return false;
  }
  for (const Slot &slot : slots_)
    if (slot.pid != 0 && (slot.worker->leftover() || !slot.draining.empty()))
      return false;
  return true;
}

void World::run_until_quiet(const char *why) {
  const int64_t end_us = now_us_ + 300 * 1000000LL;
  for (int i = 0; now_us_ < end_us; i++) {
    if (i % 32 == 0) {
      table_.vacuum();
      if (is_quiet())
        return;
    }
    if (i > 200000)
      throw Broken("stuck: the workers go round and round", {});
    (void)step(INT64_MAX - 1);
  }
  check_delivered();
  const char *leftover = nullptr;
  for (const Slot &slot : slots_)
    if (slot.pid != 0 && slot.worker->leftover())
      leftover = slot.worker->leftover();
  throw Broken(std::string("stuck, ") + why + ": " + (leftover ? leftover : "a shard is handed over for ever"), {});
}

/* A pending row now is an event that is stuck. */
void World::check_delivered() {
  const Snapshot snapshot = table_.snapshot(NO_XID);
  for (int64_t position = 1; position <= table_.last_position(); position++) {
    const Found row = table_.find(position, snapshot);
    if (row.version && !row.version->failed)
      throw Broken("stuck: the event is not delivered although all is well", {position});
    const Truth::Event &event = truth_.at(position);
    if (row.version == nullptr && table_.is_committed(event.xid) && !event.deleted && event.deliveries == 0)
      throw Broken("lost: the event has left the table and never arrived", {position});
  }
}

/* Nothing of some sinks can be recorded, and all else is healed: the others deliver what no dead letter blocks. An
 * event that a user has given to another sink while it was in flight waits until its first sink's end is recorded,
 * and the later ones of its key wait for it. */
bool World::check_other_sinks() {
  if (std::none_of(sinks_.begin(), sinks_.end(), [](const SinkWorld &sink) { return sink.unrecordable; }))
    return false;
  const int64_t until_us =
      now_us_ + 100 * 1000000LL; /* a row that made recordings fail is tried after 64 s at most */
  while (now_us_ < until_us && step(until_us))
    ;
  const Snapshot snapshot = table_.snapshot(NO_XID);
  std::set<std::pair<SinkId, uint64_t>> waiting_keys;
  for (int64_t position = table_.first_alive(); position <= table_.last_position(); position++) {
    const Version *row = table_.find(position, snapshot).version;
    if (row == nullptr || row->failed || sink(row->sink).unrecordable || rules_[row->sink - 1].hold ||
        row->available_at > now().wall)
      continue;
    if (std::any_of(slots_.begin(), slots_.end(), [&](const Slot &slot) {
          return slot.pid != 0 && slot.worker->has_given_away(position, row->sink);
        }))
      waiting_keys.emplace(row->sink, row->key_hash);
    else if (!waiting_keys.contains({row->sink, row->key_hash}))
      throw Broken("stuck: the recordings of another sink fail", {position});
  }
  for (SinkWorld &sink : sinks_)
    sink.unrecordable = false;
  return true;
}

/* Time was enough: what is pending waits behind a dead letter that blocks its key, or for a time. */
void World::check_waiting() {
  const Snapshot snapshot = table_.snapshot(NO_XID);
  std::set<std::pair<SinkId, uint64_t>> stopped_keys;
  for (int64_t position = table_.first_alive(); position <= table_.last_position(); position++) {
    const Version *row = table_.find(position, snapshot).version;
    if (row == nullptr)
      continue;
    if (row->failed ? rules_[row->sink - 1].hold : row->available_at != dispatch::WALL_TIME_BEGIN)
      stopped_keys.emplace(row->sink, row->key_hash);
    else if (!row->failed && !stopped_keys.contains({row->sink, row->key_hash}))
      throw Broken("stuck: the event waits for no dead letter before it", {position});
  }
}

/* All is healed: what is pending is delivered but behind dead letters that block their keys; then those are redriven.
 */
void World::settle() {
  settling_ = true;
  for (SinkWorld &sink : sinks_)
    sink.down = sink.stopped = false;
  bad_rows_.clear();
  wake(true);
  (void)check_other_sinks();
  log(0, "all is healed");
  const int64_t until_us = now_us_ + 100 * 1000000LL; /* recordings that failed are tried again within 64 s */
  while (now_us_ < until_us && !is_quiet() && step(until_us))
    ;
  check_waiting();
  redrive(0, true);
  run_until_quiet("after all dead letters were redriven");
  check_delivered();
  truth_.ended();
}

void World::run() {
  for (size_t i = 0; i < script_.actions.size(); i++)
    schedule(script_.actions[i].at_us, Step::ACTION, static_cast<int64_t>(i), 0, 0, 0);
  schedule(WAL_WRITER_US, Step::WAL_WRITER, 0, 0, 0, 0);
  const int64_t end_us = now_us_ + (script_.actions.empty() ? 0 : script_.actions.back().at_us) + 100000;
  for (int i = 0; step(end_us); i++) {
    if (i % 256 == 0)
      table_.vacuum();
    if (i > 400000)
      throw Broken("stuck: the workers go round and round", {});
  }
  now_us_ = end_us;
  for (const auto &[xid, rows] : std::exchange(rows_of_, {}))
    if (table_.is_running(xid))
      table_.abort(xid);
  for (Producer &producer : producers_)
    if (table_.is_running(producer.xid))
      resolve(producer.xid, true);
  settle();
}

}  // namespace simulate
