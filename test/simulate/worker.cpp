/* worker.cpp: the world as the port of a worker's loop (dispatch/round/loop_port.h). */
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
static constexpr size_t DRAINING_KEYS = 8, QUEUE_ENTRIES = 20, CHECKED_KEYS = 3;
static constexpr int DEAD_LETTERS = 1, LOOKED_UP = 5, TROUBLED = 1;
static constexpr int64_t SKIPPED_MIN = 2;
static constexpr int READ_LEAST = 2, READ_MOST = 7;

Worker::Worker(World &world, int index, Incarnation pid)
    : world_(world), table_(world.table()), index_(index), pid_(pid), library_(world, index, pid, world.n_sinks()),
      d_(dispatch::create()), claims_(*d_, *this,
                                      {ROUND_BYTES, world.settings().poll_ms, DRAINING_KEYS, QUEUE_ENTRIES,
                                       DEAD_LETTERS, LOOKED_UP, TROUBLED, SKIPPED_MIN}),
      records_(*d_, *this), loop_(*d_, *this), sinks_(world.n_sinks()) {
  d_->shards.init(index);
  d_->dead_letter_read.restart();
  d_->blocked_keys.visit_at_most(CHECKED_KEYS);
  d_->main_scan.read_between(READ_LEAST, READ_MOST);
  for (WorkerSink &sink : sinks_)
    d_->sinks.add(&sink);
  reload_sinks();
}

Worker::~Worker() = default;

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

void Worker::die() {
  if (table_.is_running(xid_))
    table_.abort(xid_);
  library_.die();
}

/* ---- what wakes it -------------------------------------------------------------------------------------------- */

/* Outside a transaction. */
void Worker::between(const char *) {
  pass(false);
}

int64_t Worker::poll_ms() {
  return world_.settings().poll_ms;
}

bool Worker::ask_to_be_woken() {
  return !std::exchange(world_.slots()[index_].needs_wakeup, true);
}

void Worker::wakes_by_itself() {
  world_.slots()[index_].needs_wakeup = false;
}

bool Worker::rescan_requested() {
  return std::exchange(world_.slots()[index_].recalled, false);
}

/* ---- transactions --------------------------------------------------------------------------------------------- */

Fault Worker::run(Now now, bool, const Task &task, FunctionRef<void> transaction) {
  try {
    transaction();
    return Fault::NONE;
  } catch (const Failed &failed) {
    world_.log(0, "worker %d: its transaction failed (%s)", index_, task == Task::RECORD ? "recording" : "claiming");
    if (xid_ != NO_XID)
      table_.abort(std::exchange(xid_, NO_XID));
    recorded_.clear();
    needed_lsn_ = 0;
    has_failed_[static_cast<int>(task)] = true;
    pauses_[static_cast<int>(task)] = moment_after(now.moment, ERROR_PAUSE_MS);
    return failed.of_rows ? Fault::OF_ROWS : Fault::OF_SERVER;
  }
}

void Worker::begin(Task) {
  xid_ = NO_XID;
  reload_sinks();
}

void Worker::commit() {
  if (xid_ != NO_XID)
    last_lsn_ = table_.commit(xid_, false);
  xid_ = NO_XID;
  for (int64_t position : std::exchange(recorded_, {}))
    world_.truth().recorded(position);
}

void Worker::record(Now now) {
  records_.run(now);
  for (const InFlightEvent *event : d_->in_flight.ended())
    if (event->outcome == Outcome::SENT && event->record_after > now.moment)
      world_.truth().held(event->position);
}

bool Worker::recorded(Now) {
  return records_.committed(last_lsn_);
}

bool Worker::has_news() {
  return claims_.has_news();
}

bool Worker::claim(Now now, bool *rescan) {
  empty_batches();
  snapshot_.reset();
  return claims_.run(now, rescan);
}

void Worker::flush() {
  table_.flush(std::exchange(needed_lsn_, 0));
}

bool Worker::recording_rolled_back(Now, bool of_recording, bool of_rows) {
  const Recording::Failure failure = records_.rolled_back(of_recording, of_rows);
  if (failure.culprit)
    world_.truth().held(failure.culprit->position);
  return failure.try_others;
}

void Worker::rolled_back(Fault, Task failed) {
  if (failed == Task::CLAIM)
    empty_batches();
}

void Worker::succeeded(Task task) {
  pauses_[static_cast<int>(task)] = MOMENT_NONE;
  has_failed_[static_cast<int>(task)] = false;
}

bool Worker::has_errors() {
  return has_failed_[0] || has_failed_[1];
}

/* ---- sinks ---------------------------------------------------------------------------------------------------- */

static const WorkerSink &simulated(const RoundSink &sink) {
  return static_cast<const WorkerSink &>(sink);
}

void Worker::collect(Now now) {
  for (const Answer &answer : library_.collect()) {
    const InFlightEvent *event = d_->in_flight.find_ticket(answer.ticket);
    const int64_t position = event ? event->position : 0;
    loop_.take(answer.ticket,
               {answer.outcome, answer.retry_after_ms, answer.outcome == Outcome::SENT ? nullptr : "refused", 0,
                answer.suspect, false},
               now);
    event = d_->in_flight.find(position);
    if (event && event->state == EventState::ENDED && event->outcome == Outcome::REJECTED)
      world_.truth().rejected(position);
  }
}

bool Worker::is_circuit_open(const RoundSink &sink) {
  return simulated(sink).status.circuit_open;
}

static bool waits_for_credit(const WorkerSink &sink) {
  return sink.state == SinkState::OPEN && sink.status.credit == 0 && sink.status.retry_in_ms >= 0;
}

bool Worker::is_ready(const RoundSink &sink) {
  return simulated(sink).state == SinkState::OPEN && !waits_for_credit(simulated(sink));
}

SinkCondition Worker::condition_of(const RoundSink &of) {
  const WorkerSink &sink = simulated(of);
  if (sink.state == SinkState::STOPPED)
    return SinkCondition::STOPPED;
  return sink.state == SinkState::OPEN && !sink.status.circuit_open ? SinkCondition::HEALTHY
                                                                    : SinkCondition::TROUBLED;
}

int Worker::submit(RoundSink &of, bool with_gaps) {
  WorkerSink &sink = static_cast<WorkerSink &>(of);
  if (with_gaps)
    close_ranks(sink);
  if (sink.state != SinkState::OPEN)
    return 0;
  for (const InFlightEvent *event : std::span(sink.batch_events, sink.n_batch)) {
    world_.log(event->position, "worker %d submits it to sink %u", index_, sink.id());
    library_.submit(sink.id(), d_->in_flight.ticket(event), event->position, event->key_hash, event->attempts);
  }
  return sink.n_batch;
}

bool Worker::is_full() {
  return d_->in_flight.free_events(world_.settings().max_in_flight, BYTES_MAX) == 0;
}

/* ---- synchronous standbys ------------------------------------------------------------------------------------- */

/* Mostly a standby confirms at once; at times it is slow, or away for some seconds. */
uint64_t Worker::lsn_to_confirm() {
  if (world_.settings().has_standby) {
    Random &random = world_.random();
    const auto delay_ms = random.percent(60)   ? 0
                          : random.percent(80) ? random.between(1, 200)
                                               : random.between(200, 5000);
    confirmed_at_ = moment_after(world_.now().moment, delay_ms);
  }
  return table_.flushed() + 1;
}

bool Worker::is_confirmed(uint64_t) {
  return world_.settling() || world_.now().moment >= confirmed_at_;
}

/* ---- sleep and exit ------------------------------------------------------------------------------------------- */

Moment Worker::next_of_sinks(Now now) {
  Moment next = MOMENT_NEVER;
  for (const WorkerSink &sink : sinks_) {
    if (sink.state == SinkState::CLOSED)
      next = MOMENT_NONE;
    if (waits_for_credit(sink))
      next = std::min(next, moment_after(now.moment, sink.status.retry_in_ms + 1));
  }
  return next;
}

Moment Worker::next_of_shards() {
  if (d_->blocked_keys.is_forgetting())
    return MOMENT_NONE;
  return world_.slots()[index_].shards_changed ? d_->shards.exchange_at() : MOMENT_NEVER;
}

int64_t Worker::idle_timeout_ms() {
  return IDLE_TIMEOUT_MS;
}

/* Only the first worker of one exits, since the launcher is not simulated, and not while another is still there, as
 * all workers of a database leave together. */
bool Worker::is_busy() {
  const auto &slots = world_.slots();
  const auto is_other = [this](const Slot &slot) { return slot.pid != 0 && slot.pid != pid_; };
  return !slots[index_].draining.empty() || world_.workers() != 1 ||
         std::any_of(slots.begin(), slots.end(), is_other);
}

bool Worker::exits(Moment until, WallTime due) {
  const Now now = world_.now();
  const Slot &slot = world_.slots()[index_];
  if (!slot.needs_wakeup || slot.recalled)
    return false;
  away_until_ = until;
  if (due != WALL_TIME_NEVER) /* the launcher looks at the clock, which may be set meanwhile */
    away_until_ = std::min({away_until_, moment_of_wall(now, due), moment_after(now.moment, 5000)});
  return true;
}

Moment Worker::loop() {
  const Now now = world_.now();
  loop_.turn(now);
  if (follow_shards(now.moment)) {
    loop_.want_claims();
    loop_.want_rescan();
  }
  check_watermarks();
  const bool superfluous = d_->shards.superfluous() && d_->in_flight.count() == 0;
  if (superfluous || loop_.exits_idle(world_.now())) {
    if (superfluous)
      away_until_ = MOMENT_NEVER;
    wants_to_exit_ = true;
    return MOMENT_NEVER;
  }
  const Now later = world_.now();
  return moment_after(later.moment, std::min<int64_t>(loop_.sleep_ms(later), 3600000));
}

/* ---- checks of the world -------------------------------------------------------------------------------------- */

/* The views do not look for rows below a sink's low watermark: of the rows that the last round could see, and that
 * are unchanged since, none may be there. With entries in the rescan queue the server says that the watermark is
 * unknown.
 */
void Worker::check_watermarks() {
  if (++watermark_checks_ % 8 != 0) /* it takes as long as the loop */
    return;
  if (watermark_checks_ % 16 == 0)
    d_->raise_watermarks();
  if (loop_.rescan_wanted() || !snapshot_ || !table_.queue.empty())
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
  for (int64_t at : table_.special())
    check_mark(at);
}

/* A marked row that the main scan has passed is found by its key alone: with the group of the key's entry. */
void Worker::check_mark(int64_t at) {
  const Version *row = table_.find(at, *snapshot_).version;
  if (row == nullptr || row->failed || row->blocked_by == 0 || row->xmax != NO_XID)
    return;
  const WorkerSink *sink = find_sink(row->sink);
  const int shard = shard_of(row->key_hash, at);
  if (sink == nullptr || !sink->rules.ordered || !sink->shards.may_claim(shard) || sink->shards.is_fresh(shard) ||
      at > sink->cursor->position() || d_->in_flight.find(at) != nullptr ||
      d_->locked_rows.first_of_key(row->sink, row->key_hash) <= at)
    return;
  if (std::ranges::find(d_->marks.returned(), at, &Mark::position) != d_->marks.returned().end())
    return;
  const BlockedKey *key = d_->blocked_keys.find(row->sink, row->key_hash);
  if (key == nullptr || key->group != row->blocked_by)
    throw Broken("stuck: the event is marked, and its key does not come back to it", {at});
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
