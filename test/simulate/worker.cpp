/* worker.cpp: server/worker/worker.cpp, submit.cpp and completions.cpp: the loop, its transactions, and what is
 * submitted and collected between them. */
#include "test/simulate/worker.h"

#include <algorithm>
#include <cassert>
#include <new>

namespace simulate {

using namespace dispatch;

static constexpr int64_t IDLE_TIMEOUT_MS = 3000;
static constexpr int64_t ERROR_PAUSE_MS = 50;
/* Small, so that there are full rounds and pages, and keys that take turns. */
static constexpr int64_t ROUND_BYTES = 1 << 18;
static constexpr size_t DRAINING_KEYS = 8, QUEUE_ENTRIES = 20;

Worker::Worker(World &world, int index, Incarnation pid)
    : world_(world), table_(world.table()), index_(index), pid_(pid), library_(world, index, pid, world.n_sinks()),
      d_(dispatch::create()),
      claims_(*d_, *this, {ROUND_BYTES, world.settings().poll_ms, DRAINING_KEYS, QUEUE_ENTRIES}),
      records_(*d_, *this), sinks_(world.n_sinks()) {
  d_->shards.init(index);
  d_->dead_letters_stale = true;
  for (WorkerSink &sink : sinks_)
    need(d_->sinks.add(&sink));
  reload_sinks();
}

Worker::~Worker() = default;

void Worker::need(bool done) {
  if (!done)
    throw std::bad_alloc();
}

/* A step: others act, and the worker or its transaction may end here. */
void Worker::pass(bool in_transaction) {
  world_.pass(*this);
  Slot &slot = world_.slots()[index_];
  if (is_dead_ || (slot.crash_in > 0 && --slot.crash_in == 0))
    throw Crashed();
  if (in_transaction && slot.fail_in > 0 && --slot.fail_in == 0)
    throw Failed{false};
}

Xid Worker::xid() {
  if (xid_ == NO_XID)
    xid_ = table_.begin();
  return xid_;
}

Snapshot Worker::latest() {
  return table_.snapshot(xid_);
}

void Worker::commit_transaction() {
  if (xid_ != NO_XID)
    last_lsn_ = table_.commit(xid_, false);
  xid_ = NO_XID;
}

void Worker::die() {
  if (table_.is_running(xid_))
    table_.abort(xid_);
  library_.die();
}

/* ---- completions ---------------------------------------------------------------------------------------------- */

void Worker::take(const Answer &answer, Now now) {
  InFlightEvent *event = d_->in_flight.find_ticket(answer.ticket);
  if (event == nullptr)
    return;
  WorkerSink *sink = sink_of(event);
  if (d_->is_returned(event, answer.outcome, sink->rules.ordered)) {
    claims_.return_event(event);
    return;
  }
  need(answer.outcome == Outcome::SENT || d_->make_room_to_block());
  sink->event_ended(event->bytes);
  d_->event_ended(event,
                  {answer.outcome, answer.retry_after_ms, answer.outcome == Outcome::SENT ? nullptr : "refused", 0,
                   answer.suspect, false},
                  sink->rules, now);
  if (event->outcome == Outcome::REJECTED)
    world_.truth().rejected(event->position);
}

void Worker::collect(Now now) {
  for (const Answer &answer : library_.collect())
    take(answer, now);
}

void Worker::discard_suspected_failures() {
  for (WorkerSink &sink : sinks_) {
    if (!sink.status.circuit_open || d_->in_flight.ended() == 0)
      continue;
    for (InFlightEvent *event = d_->take_suspects(&sink.events), *next = nullptr; event; event = next) {
      next = event->next;
      if (!event->failed)
        d_->blocked_keys.release(sink.id(), event->key_hash, event->position);
      sink.event_not_ended(event->bytes);
      claims_.return_event(event);
    }
  }
}

int Worker::submit_claimed() {
  int claimed = 0;
  for (WorkerSink &sink : sinks_) {
    claimed += sink.n_batch;
    sink.n_batch = 0;
    for (InFlightEvent *event : std::exchange(sink.batch, {})) {
      if (sink.state != SinkState::OPEN) {
        claims_.return_event(event);
        continue;
      }
      world_.log(event->position, "worker %d submits it to sink %u", index_, sink.id());
      d_->in_flight.submitted(event, MOMENT_NONE);
      library_.submit(sink.id(), d_->in_flight.ticket(event), event->position, event->key_hash, event->attempts);
    }
  }
  return claimed;
}

/* ---- one round ------------------------------------------------------------------------------------------------ */

bool Worker::transact(Now now, bool record, bool claim) {
  bool more = false;
  xid_ = NO_XID;
  recording_ = record;
  reload_sinks();
  if (record) {
    records_.run(now);
    for (const InFlightEvent *event = d_->in_flight.first_ended(); event; event = event->next)
      if (event->outcome == Outcome::SENT && event->record_after > now.moment)
        world_.truth().held(event->position);
    pass(true);
  }
  recording_ = record && !claim;
  if (claim && !(polls_only_ && !claims_.has_news())) {
    refresh_sinks(now);
    rescan_wanted_ = rescan_wanted_ || polls_only_;
    empty_batches();
    snapshot_.reset();
    more = claims_.run(now, &rescan_wanted_);
    pass(true);
  }
  commit_transaction();
  if (record) {
    const int held = d_->in_flight.count();
    for (int64_t position : std::exchange(recorded_, {}))
      world_.truth().recorded(position);
    const bool room = records_.committed(last_lsn_);
    const bool full = d_->places_exhausted || (claim && (d_->round.free_events <= 0 || d_->round.free_bytes <= 0));
    more = more || room || (full && d_->in_flight.count() < held);
    record_pause_ = MOMENT_NONE;
    record_failed_ = false;
  }
  if (claim) {
    pass(false);
    table_.flush(std::exchange(needed_lsn_, 0));
    const int claimed = submit_claimed();
    d_->commit_round();
    d_->linger.claimed(now.moment, claimed, more || d_->sinks.any_starved());
    claim_pause_ = MOMENT_NONE;
    claim_failed_ = false;
    pass(false);
  }
  return more;
}

bool Worker::round_trip(Now now, bool record_wanted, bool claim) {
  const bool record = record_wanted && d_->in_flight.ended() > 0;
  try {
    return transact(now, record, claim);
  } catch (const Failed &failed) {
    world_.log(0, "worker %d: its transaction failed (%s)", index_, recording_ ? "recording" : "claiming");
    if (xid_ != NO_XID)
      table_.abort(std::exchange(xid_, NO_XID));
    recorded_.clear();
    (recording_ ? record_failed_ : claim_failed_) = true;
    (recording_ ? record_pause_ : claim_pause_) = moment_after(now.moment, ERROR_PAUSE_MS);
    if (record) {
      const Recording::Failure failure = records_.rolled_back(recording_, failed.of_rows);
      if (failure.culprit)
        world_.truth().held(failure.culprit->position);
      if (failure.try_others)
        record_pause_ = MOMENT_NONE;
    }
    if (claim) {
      claims_.give_back();
      empty_batches();
      rescan_wanted_ = true;
    }
    needed_lsn_ = 0;
  }
  return claim;
}

/* ---- the loop ------------------------------------------------------------------------------------------------- */

bool Worker::may_claim(Moment now) const {
  return now >= d_->linger.until() && now >= claim_pause_;
}

int64_t Worker::sleep_time(Now clock) {
  const Moment now = clock.moment;
  int64_t ms = claims_wanted_ ? 0 : milliseconds_until(now, moment_after(polled_at_, world_.settings().poll_ms));
  const bool full = d_->in_flight.free_events(world_.settings().max_in_flight, 1 << 20) == 0;
  WallTime due = WALL_TIME_NEVER;
  for (const WorkerSink &sink : sinks_) {
    const bool waits = sink.state == SinkState::OPEN && sink.status.credit == 0 && sink.status.retry_in_ms >= 0;
    if (sink.state == SinkState::OPEN && !waits && sink.cursor->free_slots() > 0)
      due = std::min(due, sink.cursor->due.next());
    if (sink.state == SinkState::CLOSED)
      ms = 0;
    if (waits)
      ms = std::min(ms, sink.status.retry_in_ms + 1);
  }
  if (due != WALL_TIME_NEVER && !full)
    ms = std::min<int64_t>(ms, std::min<int64_t>(milliseconds_until(now, moment_of_wall(clock, due)), 5000));
  if (full && d_->in_flight.unflushed.events() > 0 && claims_.can_go_on(clock.wall))
    ms = std::min<int64_t>(ms, 100);
  ms = std::min<int64_t>(ms, milliseconds_until(now, d_->locked_rows.next_moment()));
  if (world_.slots()[index_].shards_changed)
    ms = std::min<int64_t>(ms, milliseconds_until(now, d_->shards.exchange_at()));
  if (now < d_->linger.until())
    ms = milliseconds_until(now, d_->linger.until());
  ms = std::max<int64_t>(ms, milliseconds_until(now, claim_pause_));
  return std::min<int64_t>(ms, milliseconds_until(now, std::max(d_->recording.next_moment(), record_pause_)));
}

void Worker::one_loop() {
  Slot &slot = world_.slots()[index_];
  const Now clock = world_.now();
  const Moment now = clock.moment;
  const bool lingers = now < d_->linger.until();

  if (!lingers && !std::exchange(slot.needs_wakeup, true))
    claims_wanted_ = true;
  if (std::exchange(slot.recalled, false))
    rescan_wanted_ = claims_wanted_ = true;
  collect(clock);
  refresh_sinks(clock);
  discard_suspected_failures();
  const bool poll = !lingers && moment_is_past(polled_at_, now, world_.settings().poll_ms);
  if (poll)
    polled_at_ = now;
  const bool wanted = claims_wanted_ || claims_.can_go_on(clock.wall) || d_->locked_rows.next_moment() <= now;
  polls_only_ = poll && !wanted && !rescan_wanted_;
  rescan_wanted_ = rescan_wanted_ || (poll && !polls_only_);
  const bool claim = may_claim(now) && (wanted || poll);
  bool record = (claim || d_->recording.is_due(now)) && now >= record_pause_;
  bool room = false;
  if (record && (!claim || claim_failed_ || record_failed_ || d_->recording.in_trouble())) {
    room = round_trip(clock, true, false);
    record = false;
  }
  if (claim)
    claims_wanted_ = round_trip(clock, record, true);
  claims_wanted_ = claims_wanted_ || room;
  if (now < d_->linger.until())
    slot.needs_wakeup = false;
  if (follow_shards(now))
    claims_wanted_ = rescan_wanted_ = true;
}

/* The views do not look for rows below a sink's low watermark: of the rows that the last round could see, and that
 * are unchanged since, none may be there. With entries in the rescan queue the server says that the watermark is
 * unknown.
 */
void Worker::check_watermarks() {
  if (++watermark_checks_ % 8 != 0) /* it takes as long as the loop */
    return;
  if (watermark_checks_ % 16 == 0)
    d_->raise_watermarks();
  if (rescan_wanted_ || !snapshot_ || !table_.queue.empty())
    return;
  int64_t highest = 0;
  for (const WorkerSink &sink : sinks_)
    highest = std::max(highest, sink.cursor->low_watermark());
  for (int64_t at = table_.first_alive(); at < std::min(highest, table_.last_position() + 1); at++) {
    const Version *row = table_.find(at, *snapshot_).version;
    if (row == nullptr || row->failed || row->available_at != WALL_TIME_BEGIN || row->xmax != NO_XID)
      continue;
    const WorkerSink *sink = find_sink(row->sink);
    if (sink && sink->shards.may_claim(shard_of(row->key_hash, at)) && at < sink->cursor->low_watermark())
      throw Broken("hidden: the event is pending below the low watermark of its sink", {at});
  }
}

bool Worker::is_quiet() const {
  return !claims_wanted_ && !rescan_wanted_ && d_->in_flight.count() == 0 &&
         world_.slots()[index_].draining.empty() && !claim_failed_ && !record_failed_ && !d_->recording.in_trouble();
}

/* server/worker/exit_when_idle.cpp; only the first worker of one, since the launcher is not simulated, and not while
 * another is still there, as all workers of a database leave together. */
bool Worker::should_exit_idle() {
  const Now now = world_.now();
  const auto is_other = [this](const Slot &slot) { return slot.pid != 0 && slot.pid != pid_; };
  const auto &slots = world_.slots();
  bool quiet = is_quiet() && world_.workers() == 1 && std::none_of(slots.begin(), slots.end(), is_other);
  Moment next = d_->locked_rows.next_moment();
  WallTime due = WALL_TIME_NEVER;
  for (const WorkerSink &sink : sinks_) {
    if (sink.state == SinkState::OPEN)
      due = std::min(due, sink.cursor->due.next());
    if (sink.state != SinkState::STOPPED)
      quiet = quiet && sink.state == SinkState::OPEN && !sink.status.circuit_open && !sink.cursor->has_backlog() &&
              sink.cursor->late.empty() && !sink.cursor->early_retry.going() &&
              !d_->blocked_keys.any_draining(sink.id());
  }
  const Idleness idle = {quiet, IDLE_TIMEOUT_MS, false};
  if (!d_->idle_exit.idle_for_long(now.moment, idle) || !world_.slots()[index_].needs_wakeup ||
      world_.slots()[index_].recalled || !d_->idle_exit.worth_it(now, idle, next, due, &away_until_))
    return false;
  if (due != WALL_TIME_NEVER) /* the launcher looks at the clock, which may be set meanwhile */
    away_until_ = std::min({away_until_, moment_of_wall(now, due), moment_after(now.moment, 5000)});
  return true;
}

Moment Worker::loop() {
  one_loop();
  check_watermarks();
  const Now now = world_.now();
  if ((d_->shards.superfluous() && d_->in_flight.count() == 0) || should_exit_idle()) {
    if (d_->shards.superfluous())
      away_until_ = MOMENT_NEVER;
    wants_to_exit_ = true;
    return MOMENT_NEVER;
  }
  int64_t ms = sleep_time(now);
  if (d_->recording.is_gathering() && d_->sinks.any_starved())
    ms = std::min<int64_t>(ms, 3);
  ms = std::min<int64_t>(
      ms, milliseconds_until(now.moment, d_->idle_exit.next_moment(now.moment, {true, IDLE_TIMEOUT_MS, false})));
  return moment_after(now.moment, std::min<int64_t>(ms, 3600000));
}

const char *Worker::leftover() const {
  if (d_->in_flight.count() != 0)
    return "an event is in flight";
  if (d_->locked_rows.next_moment() != MOMENT_NEVER)
    return "a row is in the list of locked ones";
  if (!d_->marks.returned().empty())
    return "a returned event waits for its mark";
  for (const WorkerSink &sink : sinks_) {
    if (sink.in_flight != 0 || sink.unrecorded != 0)
      return "a sink counts events in flight";
    if (d_->blocked_keys.any_draining(sink.id()))
      return "a key drains";
  }
  return nullptr;
}

const char *Worker::over_bounds() const {
  return d_->in_flight.count() > world_.settings().max_in_flight ? "more events in flight than outbox.max_in_flight"
                                                                 : nullptr;
}

}  // namespace simulate
