/*
 * careful.cpp: a slow event delays the others by a second at most; then it is at work beside them. A suspect is tried
 * alone, after a pause of random length in which nothing is at work: dispatch/crash_suspects.h says why. Reading an
 * event is over in an instant, so it is tried without a pause.
 *
 * Threads of a kind may crash after its sink was opened and before it has an event, so a sink that was opened is at
 * work for a while.
 */
#include "server/sinks/careful.h"

#include "server/catalog/kind_library.h"

extern "C" {
#include "common/pg_prng.h"
}

static const int ALONE_MS = 1000;       /* then others may be at work beside it, unless it is suspect */
static const int NEW_MS = 500;          /* a crash without a trace counts against what has begun within this time */
static const int FIRST_QUIET_MS = 1000; /* the pause before a trial … */
static const int LAST_QUIET_MS = 7000;  /* … is as long as this at most */
static const int OPEN_PAUSE_MS = 300;   /* longer than the pause between two tries in sink_open.cpp */

Careful &careful(void) {
  static Careful the_object;

  return the_object;
}

static uint64 build_of(const WorkerSink *sink) {
  return crash_build(kind_library_file(sink->kind));
}

static Work work_of(const WorkerSink *sink) {
  return {sink->id(), false, true, 0, 0, build_of(sink)};
}

static Work work_of(const WorkerSink *sink, int64 position, const dispatch::RowHandle &row) {
  return {sink->id(),    false, true, position, (uint64)row.page << 32 ^ (uint64)row.writer << 16 ^ row.line,
          build_of(sink)};
}

bool Careful::is_used(int i) const {
  return OidIsValid(works_[i].object);
}

void Careful::end(int i, bool survived) {
  if (survived && at_work_[i].suspect)
    crash_acquit(&works_[i]);
  n_used_--;
  works_[i] = {};
  crash_at_work(works_);
}

void Careful::begin(int i, const Work *work, uint64 ticket, bool suspect, Moment now) {
  n_used_++;
  quiet_until_ = MOMENT_NONE;
  works_[i] = *work;
  at_work_[i] = {now, ticket, suspect};
  beginning_ = i;
  crash_at_work(works_);
  crash_work_on(work);
}

void Careful::look_at_clock(Moment now) {
  bool aged = false;

  for (int i = 0; i < OUTBOX_MAX_AT_WORK; i++) {
    if (!is_used(i))
      continue;
    if (works_[i].position == 0 && moment_is_past(at_work_[i].since, now, crash_trial_ms())) {
      end(i, true);
      continue;
    }
    aged |= works_[i].is_new && moment_is_past(at_work_[i].since, now, NEW_MS);
    works_[i].is_new &= !moment_is_past(at_work_[i].since, now, NEW_MS);
  }
  if (aged)
    crash_at_work(works_);
}

void Careful::end_all() {
  for (int i = 0; i < OUTBOX_MAX_AT_WORK; i++)
    if (is_used(i))
      end(i, false);
}

static Moment random_quiet(Moment now) {
  return moment_after(now, (int64)pg_prng_uint64_range(&pg_global_prng_state, FIRST_QUIET_MS, LAST_QUIET_MS));
}

/* Returns the place for more work, or -1 if it must wait. A suspect begins right after the pause, or asks for one. */
int Careful::place_for(bool suspect, Moment now) {
  int place = -1;

  look_at_clock(now);
  if (suspect && (n_used_ > 0 || quiet_until_ == MOMENT_NONE))
    quiet_until_ = MOMENT_NEVER;
  if (quiet_until_ == MOMENT_NEVER && n_used_ == 0)
    quiet_until_ = random_quiet(now);
  if (quiet_until_ > now)
    return -1;
  for (int i = 0; i < OUTBOX_MAX_AT_WORK; i++) {
    if (!is_used(i)) {
      place = i;
      continue;
    }
    if (at_work_[i].suspect || !moment_is_past(at_work_[i].since, now, ALONE_MS))
      return -1;
  }
  return place;
}

/* ---- opening ------------------------------------------------------------------------------------------------ */

CarefulOpen Careful::before_open(const WorkerSink *sink, Moment now) {
  const Work work = work_of(sink);
  const Guilt guilt = crash_guilt(&work);

  beginning_ = -1;
  if (guilt == Guilt::GUILTY)
    return OPEN_NEVER;
  if (likely(!crash_is_careful()))
    return OPEN_NOW;
  const bool suspect = guilt == Guilt::SUSPECT;
  const int place = place_for(suspect, now);
  if (suspect)
    no_event_before_ = place < 0 ? moment_after(now, OPEN_PAUSE_MS) : MOMENT_NONE;
  if (place < 0)
    return OPEN_LATER;
  begin(place, &work, 0, suspect, now);
  return OPEN_NOW;
}

void Careful::opened(bool is_open) {
  crash_work_done();
  if (beginning_ >= 0 && !is_open)
    end(beginning_, true);
  beginning_ = -1;
}

/* ---- events ------------------------------------------------------------------------------------------------- */

int Careful::credit(int credit, Moment now) {
  if (likely(!crash_is_careful())) {
    if (unlikely(n_used_ > 0))
      end_all();
    return credit;
  }
  return no_event_before_ <= now && place_for(false, now) >= 0 ? Min(credit, 1) : 0;
}

/* Has another sink, whose turn was longer ago, an event to hand over? */
static bool others_turn(const WorkerSink *sink) {
  for (const WorkerSink *other : worker_sinks_all())
    if (other->n_batch > 0 && other->state == SINK_OPEN && other->careful_turn < sink->careful_turn)
      return true;
  return false;
}

int Careful::may_hand_over(WorkerSink *sink, Moment now) {
  beginning_ = -1;
  if (likely(!crash_is_careful()))
    return sink->n_batch;
  if (others_turn(sink))
    return 0;
  const dispatch::InFlightEvent *event = sink->batch_events[0];
  const Work work = work_of(sink, event->position, event->row);
  const bool suspect = crash_guilt_of_event(&work) == Guilt::SUSPECT;
  const int place = place_for(suspect, now);
  if (place < 0) {
    if (suspect)
      sink->careful_turn = 0; /* its turn is the first one after the pause */
    return 0;
  }
  sink->careful_turn = ++turns_;
  begin(place, &work, sink->batch[0].ticket, suspect, now);
  return 1;
}

void Careful::handed_over(int taken) {
  if (likely(beginning_ < 0))
    return;
  crash_work_done();
  if (taken == 0)
    end(beginning_, false);
  beginning_ = -1;
}

void Careful::ended(uint64 ticket) {
  if (likely(n_used_ == 0))
    return;
  for (int i = 0; i < OUTBOX_MAX_AT_WORK; i++)
    if (is_used(i) && works_[i].position != 0 && at_work_[i].ticket == ticket)
      end(i, true);
}

Moment Careful::next_moment(Moment now) const {
  Moment next = MOMENT_NEVER;

  if (likely(!crash_is_careful()))
    return next;
  for (const Moment pause : {no_event_before_, quiet_until_})
    if (pause > now)
      next = Min(next, pause);
  for (int i = 0; i < OUTBOX_MAX_AT_WORK; i++)
    for (const int length : {NEW_MS, ALONE_MS, crash_trial_ms()}) {
      const Moment over = moment_after(at_work_[i].since, length + 1);
      if (is_used(i) && over > now)
        next = Min(next, over);
    }
  return next;
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

void Careful::reads(const WorkerSink *sink, int64 position, const dispatch::RowHandle &row) {
  if (likely(!crash_is_careful()))
    return;
  reading_ = work_of(sink, position, row);
  reading_.is_read = true;
  crash_work_on(&reading_);
}

void Careful::read() {
  crash_work_done();
  if (unlikely(reading_.position != 0) && crash_guilt_of_event(&reading_) == Guilt::SUSPECT)
    crash_acquit(&reading_);
  reading_ = {};
}

Guilt Careful::guilt(const WorkerSink *sink, int64 position, const dispatch::RowHandle &row) const {
  if (likely(!crash_knows_events()))
    return Guilt::NONE;
  Work work = work_of(sink, position, row);
  const Guilt of_sending = crash_guilt_of_event(&work);
  work.is_read = true;
  return Max(of_sending, crash_guilt_of_event(&work));
}
