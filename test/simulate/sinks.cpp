/* sinks.cpp: server/sinks/worker_sinks.cpp (what each sink may claim, and how it is closed and opened anew) and
 * shard_handoff.cpp. */
#include <algorithm>

#include "test/simulate/worker.h"

namespace simulate {

using namespace dispatch;

void Worker::close_sink(WorkerSink &sink, SinkState closed) {
  if (sink.state == SinkState::OPEN) {
    library_.close(sink.id());
    sink.change_state(closed == SinkState::STOPPED ? SinkState::STOPPING : SinkState::CLOSING);
  } else if (closed == SinkState::STOPPED) {
    sink.change_state(sink.state == SinkState::CLOSING ? SinkState::STOPPING : SinkState::STOPPED);
  }
}

/* reload_one(), worker_stops_reload() */
void Worker::reload_sinks() {
  for (SinkId id = 1; id <= sinks_.size(); id++) {
    WorkerSink &sink = sinks_[id - 1];
    const SinkWorld &its = world_.sink(id);
    if (sink.id() == 0) {
      sink.events.id = id;
      sink.shards.begin(d_->shards.mine(), draining_anywhere(id));
    }
    sink.rules = {its.rule.max_attempts, its.rule.ordered, its.rule.hold};
    if (sink.fingerprint != its.fingerprint) {
      sink.cursor->restart(world_.now().wall);
      if (!sink.rules.ordered)
        d_->blocked_keys.forget_sink(id);
      if (sink.rules.dead_letters_block)
        d_->dead_letter_read.restart();
      sink.fingerprint = its.fingerprint;
      close_sink(sink, SinkState::CLOSED);
      loop_.want_rescan();
    }
    if (its.stopped && !sink.stopped) {
      sink.cursor->set_has_backlog(false);
      close_sink(sink, SinkState::STOPPED);
    } else if (!its.stopped && sink.stopped) {
      sink.change_state(sink.state == SinkState::STOPPING ? SinkState::CLOSING : SinkState::CLOSED);
      sink.cursor->restart(world_.now().wall);
      loop_.want_rescan();
    }
  }
}

void Worker::refresh_sinks(Now now) {
  for (WorkerSink &sink : sinks_) {
    if ((sink.state == SinkState::CLOSING || sink.state == SinkState::STOPPING) && library_.is_closed(sink.id()))
      sink.change_state(sink.state == SinkState::CLOSING ? SinkState::CLOSED : SinkState::STOPPED);
    if (sink.state == SinkState::CLOSED && sink.in_flight == 0) {
      library_.open(sink.id());
      sink.change_state(SinkState::OPEN);
    }
    sink.credit = 0;
    if (sink.state == SinkState::OPEN) {
      sink.status = library_.status(sink.id());
      sink.credit = sink.status.credit;
      sink.cursor->early_retry.outage(sink.status.outage_ms, now.wall);
    }
  }
  d_->give_places(world_.settings().max_in_flight, BYTES_MAX);
}

/* ---- shards --------------------------------------------------------------------------------------------------- */

ShardSet Worker::draining_anywhere(SinkId sink) const {
  ShardSet shards = {};
  for (const Slot &slot : world_.slots())
    if (slot.pid != 0)
      for (const DrainingShards &draining : slot.draining)
        if (draining.sink == sink)
          shards = shards | draining.shards;
  return shards;
}

void Worker::publish_shards() {
  Slot &slot = world_.slots()[index_];
  slot.shards = d_->shards.mine();
  slot.draining.clear();
  for (const WorkerSink &sink : sinks_)
    if (sink.shards.any_draining())
      slot.draining.push_back({sink.id(), sink.shards.draining()});
}

/* shards_follow() */
bool Worker::follow_shards(Moment now) {
  Slot &mine = world_.slots()[index_];
  bool drained = false, given = false, gained = false;
  if (d_->blocked_keys.is_forgetting())
    d_->blocked_keys.forget_some();
  for (WorkerSink &sink : sinks_)
    drained |= sink.shards.note_drained(sink.events.of_shard);
  const bool look = now >= d_->shards.exchange_at() && std::exchange(mine.shards_changed, false);
  if (!drained && !look)
    return false;
  if (look) {
    PresentWorker present[MAX_WORKERS];
    int n = 0;
    for (int i = 0; i < MAX_WORKERS; i++)
      if (world_.slots()[i].pid != 0)
        present[n++] = {i, world_.slots()[i].shards};
    const ShardSet handed = d_->shards.exchange(world_.workers(), present, n, now);
    for (WorkerSink &sink : sinks_)
      sink.shards.give_away(handed, sink.events.of_shard);
    given = !handed.empty();
  }
  publish_shards();
  if (look)
    for (WorkerSink &sink : sinks_)
      if (sink.shards.update(d_->shards.mine(), draining_anywhere(sink.id()))) {
        sink.cursor->restart(world_.now().wall);
        gained = true;
      }
  if (drained || given) {
    for (Slot &slot : world_.slots())
      if (slot.pid != 0) {
        slot.shards_changed = true;
        slot.wake_at = std::min(slot.wake_at, world_.now().moment);
      }
    for (WorkerSink &sink : sinks_)
      d_->blocked_keys.forget_unknown(sink.id(), sink.shards.known());
  }
  if (gained)
    d_->shards.gained(now);
  return gained;
}

}  // namespace simulate
