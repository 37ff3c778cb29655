/* users.cpp: what producers and users do in a world: the actions of its script. */
#include <algorithm>

#include "test/simulate/worker.h"
#include "test/simulate/world.h"

namespace simulate {

/* As hashtextextended() spreads keys: over all 64 bits, differently in each world. 0 stands for no key. */
uint64_t World::hash_of_key(uint64_t key) const {
  return std::max<uint64_t>(mix(mix(script_.seed, 5), key), 1);
}

/* ---- producers ------------------------------------------------------------------------------------------------ */

void World::begin_producer(uint64_t drawn) {
  Random random(drawn);
  Producer producer = {table_.begin(), NO_XID, {}, 0, drawn, random.percent(settings_.serial_percent), false, {}};
  const int n = static_cast<int>(random.percent(20) ? random.between(5, 25) : random.between(1, 4));
  for (int i = 0; i < n; i++) {
    const uint64_t key = static_cast<uint64_t>(random.below(settings_.n_keys));
    for (SinkId id = 1; id <= static_cast<SinkId>(n_sinks()); id++)
      if (id == 1 + key % settings_.n_sinks || random.percent(30))
        producer.rows.emplace_back(id, random.percent(3) ? 0 : hash_of_key(key));
  }
  producers_.push_back(producer);
  schedule(random.below(500), Step::INSERT, static_cast<int64_t>(producers_.size() - 1), 0, 0, 0);
}

/* A transaction locks the keys that it writes, as one does that changes the aggregate's row. */
bool World::may_lock_key(uint64_t key, Xid xid) {
  const auto [lock, added] = key_locks_.try_emplace(key, xid);
  if (!added && lock->second != xid && table_.is_running(lock->second))
    return false;
  lock->second = xid;
  return true;
}

void World::insert(int64_t index) {
  Producer &producer = producers_[index];
  if (!table_.is_running(producer.xid))
    return;
  Random random(mix(producer.drawn, producer.next));
  const int burst = random.percent(50) ? 1 : 8;
  for (int i = 0; i < burst && producer.next < producer.rows.size(); i++) {
    const auto [sink_id, key] = producer.rows[producer.next];
    if (producer.serial && !may_lock_key(key, producer.xid)) {
      if (producer.next > 0) { /* no deadlocks: it does without the rest */
        producer.rows.resize(producer.next);
        break;
      }
      schedule(200, Step::INSERT, index, 0, 0, 0);
      return;
    }
    if (random.percent(10)) {
      if (producer.in_sub && random.percent(50))
        table_.abort(producer.sub);
      producer.in_sub = !producer.in_sub;
      if (producer.in_sub)
        producer.sub = table_.begin_sub(producer.xid);
    }
    const bool scheduled = random.percent(5);
    const Xid xid = producer.in_sub ? producer.sub : producer.xid;
    const int64_t position = table_.draw_position();
    natures_.push_back(mix(producer.drawn, 1000 + producer.next));
    tries_.push_back(0);
    Version version;
    version.sink = sink_id;
    version.key_hash = key;
    if (scheduled)
      version.available_at = now().wall + random.below(2000000);
    table_.insert(position, version, xid);
    truth_.enqueued(position, xid, sink_id, key, scheduled);
    producer.positions.push_back(position);
    producer.next++;
    log(position, "position %lld is enqueued for sink %u, key %llx, transaction %llu%s",
        static_cast<long long>(position), sink_id, static_cast<unsigned long long>(key),
        static_cast<unsigned long long>(xid), scheduled ? ", scheduled" : "");
  }
  if (producer.next < producer.rows.size())
    schedule(random.below(random.percent(10) ? 20000 : 300), Step::INSERT, index, 0, 0, 0);
  else
    schedule(random.below(random.percent(10) ? 50000 : 500), Step::END, index, 0, 0, 0);
}

void World::end_producer(int64_t index) {
  Producer &producer = producers_[index];
  if (!table_.is_running(producer.xid))
    return;
  Random random(mix(producer.drawn, 99));
  if (producer.in_sub && random.percent(30))
    table_.abort(producer.sub);
  if (random.percent(5)) {
    table_.prepare(producer.xid);
    log(0, "transaction %llu is prepared", static_cast<unsigned long long>(producer.xid));
    rows_of_[producer.xid] = producer.positions;
    schedule(random.below(300000), Step::RESOLVE, static_cast<int64_t>(producer.xid), random.percent(80), 0, 0);
    return;
  }
  rows_of_[producer.xid] = producer.positions;
  resolve(producer.xid, random.percent(90));
}

void World::resolve(Xid xid, bool commit) {
  if (!table_.is_running(xid))
    return;
  if (!commit) {
    table_.abort(xid);
    rows_of_.erase(xid);
    log(0, "transaction %llu rolls back", static_cast<unsigned long long>(xid));
    return;
  }
  Random random(mix(script_.seed, xid));
  table_.commit(xid, random.percent(settings_.sync_percent));
  log(0, "transaction %llu commits", static_cast<unsigned long long>(xid));
  for (const Producer &producer : producers_)
    if (producer.xid == xid)
      for (int64_t position : producer.positions)
        truth_.committed(position, false);
  bool rescan = false;
  for (auto change = pending_.begin(); change != pending_.end();) {
    if (change->xid != xid) {
      ++change;
      continue;
    }
    rescan |= apply(*change);
    change = pending_.erase(change);
  }
  rows_of_.erase(xid);
  if (rescan || random.percent(settings_.wake_percent))
    wake(rescan);
}

/* ---- users ---------------------------------------------------------------------------------------------------- */

std::vector<int64_t> World::rows(bool failed) {
  std::vector<int64_t> found;
  const Snapshot snapshot = table_.snapshot(NO_XID);
  for (int64_t position = table_.first_alive(); position <= table_.last_position(); position++) {
    const Found row = table_.find(position, snapshot);
    if (row.version && row.version->failed == failed)
      found.push_back(position);
  }
  return found;
}

void World::lock_rows(uint64_t drawn) {
  Random random(drawn);
  const std::vector<int64_t> all = rows(random.percent(20));
  const Xid xid = table_.begin();
  const int n = static_cast<int>(random.between(1, 6));
  const auto n_rows = static_cast<int64_t>(all.size());
  const int64_t among = random.percent(50) ? std::min<int64_t>(n_rows, 10) : n_rows; /* as in change_row() */
  for (int i = 0; i < n && !all.empty(); i++) {
    const int64_t position = all[random.below(among)];
    if (table_.lock(position, xid)) {
      truth_.held(position);
      log(position, "a user locks %lld", static_cast<long long>(position));
    }
  }
  schedule(random.below(random.percent(30) ? 800000 : 20000), Step::UNLOCK, static_cast<int64_t>(xid),
           random.percent(50), 0, 0);
}

/* What the user did becomes true at the commit. */
bool World::apply(const Pending &change) {
  switch (change.kind) {
  case Pending::DELETED:
    truth_.deleted(change.position);
    break;
  case Pending::TIMED:
    truth_.changed(change.position);
    break;
  case Pending::MOVED:
    truth_.moved(change.position, change.sink, change.key_hash);
    truth_.committed(change.position, false);
    break;
  case Pending::REDRIVEN:
    truth_.redriven(change.position, change.force);
    break;
  }
  return true;
}

void World::change_row(uint64_t drawn) {
  Random random(drawn);
  const std::vector<int64_t> all = rows(random.percent(15));
  if (all.empty())
    return;
  const auto n = static_cast<int64_t>(all.size()); /* the oldest are in flight, or fail */
  const int64_t position = all[random.below(random.percent(50) ? std::min<int64_t>(n, 10) : n)];
  const Xid xid = table_.begin();
  const int64_t kind = random.below(4);
  truth_.held(position);
  if (kind == 0) {
    const Found row = table_.find(position, table_.snapshot(xid));
    const bool tells = row.version->failed || row.version->tried_at != dispatch::WALL_TIME_NEVER;
    if (table_.remove(position, xid)) {
      log(position, "a user deletes %lld", static_cast<long long>(position));
      pending_.push_back({Pending::DELETED, xid, position, 0, 0, false});
      if (tells)
        table_.queue_rescan(position, xid);
    }
  } else if (Version *version = table_.update(position, xid)) {
    Pending change = {Pending::TIMED, xid, position, version->sink, version->key_hash, false};
    if (kind == 1) {
      version->available_at = now().wall + random.between(-1000, 1000) * 1000;
    } else {
      change.kind = Pending::MOVED;
      if (kind == 2)
        version->sink = change.sink = static_cast<SinkId>(1 + random.below(n_sinks()));
      else
        version->key_hash = change.key_hash = hash_of_key(static_cast<uint64_t>(random.below(settings_.n_keys)));
      version->overtaken_by = 0;
    }
    log(position, "a user changes %lld: kind %lld, sink %u, key %llx", static_cast<long long>(position),
        static_cast<long long>(kind), version->sink, static_cast<unsigned long long>(version->key_hash));
    table_.queue_rescan(position, xid);
    pending_.push_back(change);
  }
  schedule(random.below(random.percent(30) ? 300000 : 2000), Step::UNLOCK, static_cast<int64_t>(xid),
           random.percent(80), 0, 0);
}

/* redrive() of 45_redrive.sql */
void World::redrive_row(int64_t position, Xid xid, bool force) {
  const Found row = table_.find(position, table_.snapshot(xid));
  if (row.version == nullptr || !row.version->failed)
    return;
  Version version = *row.version;
  const bool ordered = sink(version.sink).rule.ordered;
  if ((version.overtaken_by != 0 && ordered && !force) || !table_.remove(position, xid))
    return;
  version.failed = false;
  version.attempts = 0;
  version.tried_at = dispatch::WALL_TIME_NEVER;
  version.blocked_by = 0;
  version.available_at = dispatch::WALL_TIME_BEGIN;
  version.redrive = force ? Redrive::LATE : Redrive::IN_ORDER;
  if (!ordered)
    version.overtaken_by = 0;
  table_.insert(position, version, xid);
  table_.queue_rescan(position, xid);
  pending_.push_back({Pending::REDRIVEN, xid, position, version.sink, version.key_hash, force});
  log(position, "a user redrives %lld%s", static_cast<long long>(position), force ? " by force" : "");
}

void World::became_dead_letter(int64_t position) {
  if (settling_ || settings_.redrive_percent == 0)
    return;
  Random random(mix(nature(position), 500 + count_try(position)));
  if (random.percent(settings_.redrive_percent))
    schedule(random.below(20000), Step::REDRIVE, position, 0, 0, 0);
}

void World::redrive(uint64_t drawn, bool all) {
  Random random(drawn);
  const Xid xid = table_.begin();
  for (int64_t position : rows(true))
    if (all || random.percent(50))
      redrive_row(position, xid, all || random.percent(40));
  if (all)
    resolve(xid, true);
  else
    schedule(random.below(random.percent(30) ? 100000 : 1000), Step::UNLOCK, static_cast<int64_t>(xid),
             random.percent(85), 0, 0);
}

/* ---- actions -------------------------------------------------------------------------------------------------- */

void World::act(const ScriptAction &action) {
  Random random(action.drawn);
  const auto any_sink = [&]() { return static_cast<SinkId>(1 + random.below(n_sinks())); };
  const int any_slot = static_cast<int>(random.below(MAX_WORKERS));
  SinkId id;
  if (action.action != Action::ENQUEUE)
    log(0, "action: %s", name_of(action.action));
  switch (action.action) {
  case Action::ENQUEUE:
    begin_producer(action.drawn);
    break;
  case Action::LOCK:
    lock_rows(action.drawn);
    break;
  case Action::CHANGE:
    change_row(action.drawn);
    break;
  case Action::REDRIVE:
    redrive(action.drawn, false);
    break;
  case Action::OUTAGE:
    id = any_sink();
    sink(id).down = true;
    schedule(random.below(1500000), Step::UP, id, 0, 0, 0);
    break;
  case Action::LOSE:
    id = any_sink();
    if (slots_[any_slot].worker)
      slots_[any_slot].worker->library().lose_all(id);
    break;
  case Action::PAUSE:
    id = any_sink();
    sink(id).stopped = true;
    wake(true);
    schedule(random.below(1000000), Step::RESUME, id, 0, 0, 0);
    break;
  case Action::ALTER:
    sink(any_sink()).fingerprint++;
    wake(true);
    break;
  case Action::KILL_WORKER:
    slots_[any_slot].crash_in = static_cast<int>(random.between(1, 30));
    break;
  case Action::KILL_SERVER:
    kill_server();
    break;
  case Action::CLOCK:
    wall_offset_us_ += random.between(-2000, 2000) * 1000;
    break;
  case Action::WORKERS:
    workers_ = static_cast<int>(random.between(1, MAX_WORKERS));
    for (Slot &slot : slots_)
      slot.shards_changed = true;
    wake(true);
    break;
  case Action::FAIL_ROUND:
    slots_[any_slot].fail_in = static_cast<int>(random.between(1, 20));
    break;
  case Action::BAD_ROW:
    if (const std::vector<int64_t> all = rows(false); !all.empty()) {
      const int64_t position = all[random.below(static_cast<int64_t>(all.size()))];
      bad_rows_.insert(position);
      truth_.held(position);
      schedule(random.below(500000), Step::GOOD_ROW, position, 0, 0, 0);
    }
    break;
  case Action::BAD_SINK:
    id = any_sink();
    sink(id).unrecordable = true;
    if (random.percent(50))
      schedule(random.below(3000000), Step::GOOD_SINK, id, 0, 0, 0);
    break;
  case Action::LAST:
    break;
  }
}

}  // namespace simulate
