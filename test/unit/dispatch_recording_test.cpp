/* Which ended events a transaction records, and what becomes of their rows. */
#include "dispatch/dispatch.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

using namespace dispatch;

class DispatchRecording : public testing::Test {
protected:
  static constexpr SinkId SINK = 5;
  static constexpr uint64_t KEY = 77;

  void SetUp() override { sink.id = SINK; }

  Dispatch &with_room() { return *decisions; }

  InFlightEvent *submit(int64_t position) { return submit(position, &sink); }

  InFlightEvent *submit(int64_t position, dispatch::SinkInFlight *to) {
    InFlight::Claimed claimed = {};
    claimed.position = position;
    claimed.key_hash = KEY;
    claimed.sink = to;
    claimed.bytes = 100;
    InFlightEvent *event = with_room().in_flight.claim(claimed);
    decisions->in_flight.submitted(event, MOMENT_NONE);
    return event;
  }

  InFlightEvent *end(int64_t position, Outcome outcome = Outcome::SENT) {
    InFlightEvent *event = submit(position);
    decisions->in_flight.end(event, outcome, -1, nullptr, {MOMENT_NONE, 1000});
    return event;
  }

  InFlightEvent *end_of(dispatch::SinkInFlight *to, int64_t position) {
    InFlightEvent *event = submit(position, to);
    decisions->event_ended(event, {Outcome::SENT, -1, nullptr, 0, false, false}, {3, true, false}, {now, 5000});
    return event;
  }

  /* A transaction begins: the events that it records. */
  std::vector<InFlightEvent *> choose() {
    std::vector<InFlightEvent *> batch(decisions->recording.begin(decisions->in_flight, now));
    batch.resize(decisions->recording.choose(decisions->in_flight, batch.data(), &n_failed));
    return batch;
  }

  static std::vector<int64_t> positions(const std::vector<InFlightEvent *> &events) {
    std::vector<int64_t> all;
    for (const InFlightEvent *event : events)
      all.push_back(event->position);
    std::sort(all.begin(), all.end());
    return all;
  }

  using Positions = std::vector<int64_t>;

  /* It fails while the row of the event at `bad` is in it. */
  bool record(int64_t bad) {
    return record_with([bad](const InFlightEvent *event) { return event->position == bad; });
  }

  template <typename IsBad> bool record_with(IsBad is_bad) {
    const std::vector<InFlightEvent *> batch = choose();
    n_recorded = static_cast<int>(batch.size());
    for (InFlightEvent *event : batch)
      with_room().settle(event, FoundRow::OURS, Retention::NONE);
    if (std::any_of(batch.begin(), batch.end(), is_bad)) {
      failure = decisions->recording.failed(decisions->in_flight);
      decisions->roll_back_recording();
      return false;
    }
    decisions->commit_recording(1);
    return true;
  }

  const BlockedKey *key() { return decisions->blocked_keys.find(SINK, KEY); }

  std::unique_ptr<Dispatch> decisions{dispatch::create()};
  SinkInFlight sink = {};
  Moment now = {3'600'000'000};
  int n_failed = 0, n_recorded = 0;
  Recording::Failure failure = {};
};

/* An earlier event took its place as the blocker, and was sent, while another session had locked its row. */
TEST_F(DispatchRecording, AFailureThatIsRecordedBlocksItsKeyAgain) {
  const InFlightEvent *failed = end(20, Outcome::RETRY);
  with_room().block_key(SINK, KEY, 20);
  with_room().block_key(SINK, KEY, 10);
  decisions->blocked_keys.release(SINK, KEY, 10);
  ASSERT_EQ(decisions->blocked_keys.find(SINK, KEY)->state, KeyState::DRAINING);
  choose();
  EXPECT_EQ(with_room().settle(decisions->in_flight.find(20), FoundRow::OURS, Retention::NONE), Disposition::RETRY);
  EXPECT_EQ(decisions->group_behind_blocker(failed), 0);
  decisions->commit_recording(1);
  const BlockedKey *key = decisions->blocked_keys.find_before(SINK, KEY, 30);
  ASSERT_NE(key, nullptr) << "a later event would be sent before it";
  EXPECT_EQ(key->blocker, 20);
}

TEST_F(DispatchRecording, AnOutcomeAndTheRowsStateMakeTheDisposition) {
  const InFlightEvent *sent = end(1), *retry = end(2, Outcome::RETRY), *deferred = end(3, Outcome::DEFERRED),
                      *rejected = end(4, Outcome::REJECTED);
  EXPECT_EQ(disposition_of(sent, FoundRow::OURS, Retention::NONE), Disposition::DELETE);
  EXPECT_EQ(disposition_of(sent, FoundRow::OURS, Retention::KEPT), Disposition::KEEP);
  EXPECT_EQ(disposition_of(sent, FoundRow::OURS, Retention::UNDECIDED), Disposition::LATER);
  for (Retention retention : {Retention::NONE, Retention::KEPT, Retention::UNDECIDED}) {
    EXPECT_EQ(disposition_of(retry, FoundRow::OURS, retention), Disposition::RETRY);
    EXPECT_EQ(disposition_of(deferred, FoundRow::OURS, retention), Disposition::RETRY);
    EXPECT_EQ(disposition_of(rejected, FoundRow::OURS, retention), Disposition::DEAD_LETTER);
    for (const InFlightEvent *event : {sent, retry, deferred, rejected}) {
      EXPECT_EQ(disposition_of(event, FoundRow::LOCKED, retention), Disposition::LATER);
      EXPECT_EQ(disposition_of(event, FoundRow::GONE, retention), Disposition::FORGET);
    }
  }
}

TEST_F(DispatchRecording, TheDestinationsDelayGoesBeforeThatOfTheSchedule) {
  InFlightEvent *event = end(1, Outcome::RETRY); /* at 1,000 µs */
  EXPECT_EQ(next_attempt(event, 500, 2000), 1000 + 500'000);
  event->retry_after_ms = 0;
  EXPECT_EQ(next_attempt(event, 500, 2000), 2000 + 1000) << "not in this very round";
  event->retry_after_ms = 70;
  EXPECT_EQ(next_attempt(event, 500, 2000), 1000 + 70'000);
}

TEST_F(DispatchRecording, FailedEventsComeFirst) {
  end(1), end(2, Outcome::RETRY), end(3), end(4, Outcome::REJECTED), end(5, Outcome::DEFERRED), end(6);
  const std::vector<InFlightEvent *> batch = choose();
  EXPECT_EQ(positions(batch), (Positions{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(n_failed, 3);
  EXPECT_EQ(positions({batch.begin(), batch.begin() + 3}), (Positions{2, 4, 5}));
}

TEST_F(DispatchRecording, AnEventIsChosenFromItsMomentOn) {
  end(1)->record_after = moment_after(now, 100);
  end(2);
  EXPECT_EQ(positions(choose()), Positions{2});
  now = moment_after(now, 100);
  EXPECT_EQ(positions(choose()), (Positions{1, 2}));
}

TEST_F(DispatchRecording, ALockedRowIsRecordedAfter200MillisecondsAndLaterTheMoreThereAre) {
  for (int64_t position = 1; position <= 25; position++)
    end(position);
  for (InFlightEvent *event : choose())
    EXPECT_EQ(with_room().settle(event, FoundRow::LOCKED, Retention::NONE), Disposition::LATER);
  EXPECT_EQ(decisions->in_flight.find(1)->record_after, moment_after(now, 200));
  EXPECT_EQ(decisions->in_flight.find(10)->record_after, moment_after(now, 200));
  EXPECT_EQ(decisions->in_flight.find(11)->record_after, moment_after(now, 201));
  EXPECT_EQ(decisions->in_flight.find(25)->record_after, moment_after(now, 202));
  decisions->commit_recording(1);
  EXPECT_EQ(decisions->in_flight.n_ended(), 25);
  EXPECT_TRUE(choose().empty());
  now = moment_after(now, 300);
  ASSERT_EQ(choose().size(), 25U);
  EXPECT_EQ(with_room().settle(decisions->in_flight.find(25), FoundRow::LOCKED, Retention::NONE), Disposition::LATER);
  EXPECT_EQ(decisions->in_flight.find(25)->record_after, moment_after(now, 200)) << "each transaction counts anew";
}

TEST_F(DispatchRecording, AnEventThatWasPutOffIsNotRecordedAlthoughItsRowIsOurs) {
  InFlightEvent *event = end(1);
  choose();
  event->record_after = moment_after(now, 50);
  EXPECT_FALSE(decisions->recording.is_ready(event, FoundRow::OURS, Retention::NONE));
  EXPECT_EQ(with_room().settle(event, FoundRow::OURS, Retention::NONE), Disposition::LATER);
  EXPECT_EQ(event->state, EventState::ENDED);
  EXPECT_EQ(event->record_after, moment_after(now, 50));
}

TEST_F(DispatchRecording, WhatIsSettledIsOverAfterTheCommitAndEndedAfterARollback) {
  InFlightEvent *sent = end(1), *gone = end(2), *locked = end(3);
  with_room().block_key(SINK, KEY, 2);
  choose();
  EXPECT_EQ(with_room().settle(sent, FoundRow::OURS, Retention::KEPT), Disposition::KEEP);
  EXPECT_EQ(sent->state, EventState::RECORDED);
  EXPECT_EQ(with_room().settle(gone, FoundRow::GONE, Retention::NONE), Disposition::FORGET);
  EXPECT_EQ(gone->state, EventState::GONE);
  EXPECT_EQ(key()->state, KeyState::DRAINING) << "its key waits for it no more";
  EXPECT_EQ(with_room().settle(locked, FoundRow::LOCKED, Retention::NONE), Disposition::LATER);
  decisions->roll_back_recording();
  for (const InFlightEvent *event : {sent, gone, locked})
    EXPECT_EQ(event->state, EventState::ENDED);
  choose();
  with_room().settle(sent, FoundRow::OURS, Retention::NONE);
  with_room().settle(gone, FoundRow::GONE, Retention::NONE);
  decisions->commit_recording(77);
  EXPECT_EQ(decisions->in_flight.count(), 1);
  EXPECT_EQ(decisions->in_flight.unflushed.events(), 2);
}

TEST_F(DispatchRecording, ADeadLetterBlocksItsKeyOrLetsItGoOn) {
  with_room().block_key(SINK, KEY, 3);
  EXPECT_FALSE(decisions->dead_letter_keys.possible(KEY));
  with_room().dead_letter(SINK, KEY, 3, true);
  EXPECT_EQ(key()->state, KeyState::BLOCKED);
  EXPECT_TRUE(decisions->dead_letter_keys.possible(KEY));
  with_room().dead_letter(SINK, KEY, 3, false);
  EXPECT_EQ(key()->state, KeyState::DRAINING);
  with_room().dead_letter(SINK, KEY, 5, true);
  EXPECT_EQ(key()->blocker, 5);
  with_room().dead_letter(SINK, KEY, 7, false);
  EXPECT_EQ(key()->blocker, 5) << "another one blocks it";
}

TEST_F(DispatchRecording, AFailureOfAnEventWhoseKeyHasChangedIsNotRecorded) {
  EXPECT_FALSE(dispatch::has_other_key(end(1, Outcome::RETRY), KEY, true));
  EXPECT_TRUE(dispatch::has_other_key(end(2, Outcome::RETRY), KEY + 1, true));
  EXPECT_TRUE(dispatch::has_other_key(end(3, Outcome::REJECTED), 0, true));
  EXPECT_FALSE(dispatch::has_other_key(end(4, Outcome::RETRY), KEY + 1, false)) << "the sink has no order";
  EXPECT_FALSE(dispatch::has_other_key(end(5, Outcome::SENT), KEY + 1, true)) << "it is delivered";
}

TEST_F(DispatchRecording, ARedrivenRowBlocksItsKeyUnlessItIsInFlight) {
  submit(4);
  with_room().redriven_row(SINK, KEY, 4);
  EXPECT_EQ(key(), nullptr);
  with_room().redriven_row(SINK, KEY, 5);
  ASSERT_NE(key(), nullptr);
  EXPECT_EQ(key()->state, KeyState::BLOCKED);
  EXPECT_EQ(key()->blocker, 5);
}

TEST_F(DispatchRecording, ADrainingKeyDrainsUpToItsRedrivenRow) {
  with_room().blocked_keys.drain(SINK, KEY, 2);
  for (int i = 0; i < 2; i++) /* until all such rows are known, a row is found more than once */
    with_room().redriven_row(SINK, KEY, 5);
  EXPECT_EQ(key()->state, KeyState::DRAINING) << "marked rows before it are still to be claimed";
  EXPECT_EQ(decisions->locked_rows.first_of_key(SINK, KEY), 5);
  with_room().locked_rows.begin_round(MOMENT_NEVER);
  decisions->locked_rows.take_due();
  EXPECT_EQ(decisions->locked_rows.look_count(), 1);
}

TEST_F(DispatchRecording, AFailedEventIsMarkedBehindAnEarlierBlocker) {
  with_room().block_key(SINK, KEY, 3);
  EXPECT_EQ(decisions->group_behind_blocker(end(4, Outcome::RETRY)), key()->group);
  EXPECT_EQ(decisions->group_behind_blocker(end(3, Outcome::RETRY)), 0) << "it is the blocker";
  decisions->blocked_keys.release(SINK, KEY, 3);
  EXPECT_EQ(decisions->group_behind_blocker(end(5, Outcome::RETRY)), 0) << "the key drains";
}

TEST_F(DispatchRecording, ABatchIsBoundedAndABadRowIsFoundByHalving) {
  for (int64_t position = 1; position <= Recording::BATCH_MAX + 500; position++)
    end(position);
  ASSERT_EQ(decisions->recording.begin(decisions->in_flight, now), Recording::BATCH_MAX);
  ASSERT_EQ(choose().size(), static_cast<size_t>(Recording::BATCH_MAX));
  const int64_t bad = 12'345;
  int tries = 0, failures = 0;
  while (decisions->in_flight.n_ended() > 1 && tries < 100) {
    const bool done = record(bad);
    tries++;
    if (done)
      continue;
    failures++;
    EXPECT_TRUE(failure.try_others);
    EXPECT_TRUE(decisions->recording.in_trouble());
    if (failure.culprit) {
      EXPECT_EQ(failure.culprit->position, bad);
    }
  }
  EXPECT_EQ(decisions->in_flight.n_ended(), 1) << "all but the bad one are recorded";
  EXPECT_LE(failures, 30);
  EXPECT_LE(tries, 50);
  EXPECT_EQ(decisions->in_flight.find(bad)->record_failures, 1);
}

TEST_F(DispatchRecording, ABadRowIsTriedAloneAfterPausesThatDoubleToAMinute) {
  end(1);
  EXPECT_FALSE(record(1));
  EXPECT_TRUE(failure.try_others) << "the others may do";
  for (int64_t pause_ms : {1000, 2000, 4000, 8000, 16'000, 32'000, 64'000, 64'000}) {
    EXPECT_EQ(decisions->in_flight.find(1)->record_after, moment_after(now, pause_ms));
    now = moment_after(now, pause_ms);
    EXPECT_FALSE(record(1));
    EXPECT_EQ(failure.culprit->position, 1);
  }
  EXPECT_TRUE(decisions->recording.in_trouble());
}

TEST_F(DispatchRecording, BadRowsAndTheOthersTakeTurns) {
  end(1);
  EXPECT_FALSE(record(1));
  now = moment_after(now, 1000);
  end(2), end(3);
  EXPECT_EQ(positions(choose()), Positions{1});
  EXPECT_EQ(positions(choose()), Positions{2}) << "few at first, after a failure";
  EXPECT_EQ(positions(choose()), Positions{1});
  EXPECT_EQ(positions(choose()), Positions{2}) << "few at first, after a failure";
  decisions->in_flight.find(2)->record_after = decisions->in_flight.find(3)->record_after = moment_after(now, 1);
  EXPECT_EQ(positions(choose()), Positions{1});
  EXPECT_EQ(positions(choose()), Positions{1}) << "no other is due";
}

class DispatchRecordingOfSinks : public DispatchRecording {
protected:
  void SetUp() override {
    DispatchRecording::SetUp();
    other.id = SINK + 1;
  }

  bool is_of_sink(const InFlightEvent *event) const { return event->sink == &sink; }
  bool record_without_sink() {
    return record_with([this](const InFlightEvent *event) { return is_of_sink(event); });
  }

  dispatch::SinkInFlight other = {};
};

TEST_F(DispatchRecordingOfSinks, ASinkOfWhichNothingCanBeRecordedKeepsNoOtherWaiting) {
  for (int64_t position = 1; position <= 2000; position++)
    end_of(position % 2 == 0 ? &sink : &other, position);
  int tries = 0;
  while (decisions->in_flight.n_ended() > 1000 && tries++ < 10)
    record_without_sink();
  EXPECT_EQ(decisions->in_flight.n_ended(), 1000) << "the other sink's are recorded in its first turn";
  EXPECT_LE(tries, 3);
  while (!Recording::is_stuck(&sink) && tries++ < 100)
    record_without_sink();
  EXPECT_TRUE(Recording::is_stuck(&sink));
  EXPECT_LE(tries, 30) << "eight rows were tried, not all";
  EXPECT_EQ(decisions->recording.next_moment(), moment_after(now, 1000)) << "nothing is due before";
  end_of(&other, 3001);
  EXPECT_TRUE(record_without_sink());
  EXPECT_EQ(decisions->in_flight.n_ended(), 1000);
}

TEST_F(DispatchRecordingOfSinks, AStuckSinkIsTriedWithOneRowAfterPausesThatDoubleToAMinute) {
  for (int64_t position = 1; position <= 100; position++)
    end_of(&sink, position);
  while (!Recording::is_stuck(&sink))
    EXPECT_FALSE(record_without_sink());
  for (int64_t pause_ms : {1000, 2000, 4000, 8000, 16'000, 32'000, 64'000, 64'000}) {
    EXPECT_EQ(decisions->recording.next_moment(), moment_after(now, pause_ms));
    EXPECT_TRUE(record_without_sink()) << "nothing is chosen before";
    EXPECT_EQ(n_recorded, 0);
    now = moment_after(now, pause_ms);
    EXPECT_FALSE(record_without_sink());
    EXPECT_EQ(n_recorded, 1);
  }
  now = moment_after(now, 64'000);
  int tries = 0;
  for (; decisions->in_flight.n_ended() > 0 && tries < 100; tries++)
    EXPECT_TRUE(record(-1)) << "the cause is gone";
  EXPECT_EQ(decisions->in_flight.n_ended(), 0) << "without further pauses";
  EXPECT_LE(tries, 40);
  EXPECT_FALSE(Recording::is_stuck(&sink));
  EXPECT_FALSE(decisions->recording.in_trouble());
}

TEST_F(DispatchRecordingOfSinks, BadRowsAmongGoodOnesMakeNoSinkStuck) {
  for (int64_t position = 1; position <= 1000; position++)
    end_of(&sink, position);
  int tries = 0;
  while (decisions->in_flight.n_ended() > 50 && tries++ < 2000)
    record_with([](const InFlightEvent *event) { return event->position % 20 == 0; });
  EXPECT_EQ(decisions->in_flight.n_ended(), 50);
  EXPECT_FALSE(Recording::is_stuck(&sink));
}

TEST_F(DispatchRecordingOfSinks, ASinkThatAnEarlierWorkerFoundStuckIsTriedAndRecovers) {
  Recording::begin_stuck(&sink);
  end_of(&sink, 1);
  end_of(&other, 2);
  EXPECT_TRUE(record(-1));
  EXPECT_TRUE(record(-1));
  EXPECT_EQ(decisions->in_flight.n_ended(), 0) << "each sink in a transaction of its own";
  EXPECT_FALSE(Recording::is_stuck(&sink));
  EXPECT_FALSE(decisions->recording.in_trouble());
}

TEST_F(DispatchRecordingOfSinks, LockedRowsAreNoSuccessOfAStuckSink) {
  Recording::begin_stuck(&sink);
  end_of(&sink, 1);
  for (InFlightEvent *event : choose())
    with_room().settle(event, FoundRow::LOCKED, Retention::NONE);
  decisions->commit_recording(1);
  EXPECT_TRUE(Recording::is_stuck(&sink));
}

TEST_F(DispatchRecordingOfSinks, WhatHasEndedHoldsNoMemory) {
  submit(1);
  EXPECT_EQ(decisions->in_flight.free_bytes(1000), 900);
  end_of(&sink, 2);
  EXPECT_EQ(decisions->in_flight.free_bytes(1000), 900);
  decisions->in_flight.give_back(decisions->in_flight.find(1));
  record(-1);
  EXPECT_EQ(decisions->in_flight.free_bytes(1000), 1000);
}

TEST_F(DispatchRecording, ARecoveredRowIsTroubleNoMore) {
  end(1);
  EXPECT_FALSE(record(1));
  end(2);
  EXPECT_TRUE(record(1));
  EXPECT_EQ(decisions->in_flight.n_ended(), 1);
  EXPECT_TRUE(decisions->recording.in_trouble()) << "another one was recorded";
  now = moment_after(now, 1000);
  EXPECT_TRUE(record(0));
  EXPECT_EQ(decisions->in_flight.n_ended(), 0);
  EXPECT_FALSE(decisions->recording.in_trouble());
}

TEST_F(DispatchRecording, ATransactionThatFailedBeforeAnythingWasChosenBlamesNoRow) {
  end(1);
  EXPECT_FALSE(record(1));
  now = moment_after(now, 1000);
  decisions->recording.begin(decisions->in_flight, now);
  failure = decisions->recording.failed(decisions->in_flight);
  EXPECT_EQ(failure.culprit, nullptr);
  EXPECT_FALSE(failure.try_others);
  EXPECT_EQ(decisions->in_flight.find(1)->record_failures, 1);
}

/* How an event ends, and what that means for its key. */
class DispatchEventEnded : public DispatchRecording {
protected:
  static constexpr SinkRules ORDERED = {.max_attempts = 3, .ordered = true, .dead_letters_block = false};
  static constexpr SinkRules BLOCKING = {.max_attempts = 3, .ordered = true, .dead_letters_block = true};
  static constexpr SinkRules UNORDERED = {.max_attempts = 3, .ordered = false, .dead_letters_block = true};

  static Completion completion(Outcome outcome) {
    Completion one = {};
    one.outcome = outcome;
    one.retry_after_ms = -1;
    return one;
  }

  InFlightEvent *ended(int64_t position, const Completion &how, const SinkRules &rules, int32_t attempts = 0) {
    InFlightEvent *event = submit(position);
    event->attempts = attempts;
    with_room().event_ended(event, how, rules, {now, 5000});
    return event;
  }

  bool is_blocked() { return key() && key()->state == KeyState::BLOCKED; }
};

TEST_F(DispatchEventEnded, TheLastAttemptThatFailsMakesADeadLetter) {
  Completion failed = completion(Outcome::RETRY);
  EXPECT_EQ(ended(1, failed, ORDERED, 1)->outcome, Outcome::RETRY);
  EXPECT_EQ(ended(2, failed, ORDERED, 2)->outcome, Outcome::REJECTED);
  failed.max_refusals = 9;
  EXPECT_EQ(ended(5, failed, ORDERED, 2)->outcome, Outcome::REJECTED) << "the sink allows fewer";
  EXPECT_EQ(ended(6, completion(Outcome::DEFERRED), ORDERED, 50)->outcome, Outcome::DEFERRED) << "it spends none";
  EXPECT_EQ(ended(7, completion(Outcome::SENT), ORDERED, 2)->outcome, Outcome::SENT);
}

TEST_F(DispatchEventEnded, OnlyAnswersThatRefuseTheEventCountAsRefusals) {
  static constexpr SinkRules MANY = {.max_attempts = 9, .ordered = true, .dead_letters_block = false};
  Completion refused = completion(Outcome::RETRY);
  refused.max_refusals = 2;
  EXPECT_EQ(ended(1, refused, MANY, 2)->outcome, Outcome::RETRY) << "two attempts failed for another reason";
  refused.max_refusals = 1;
  EXPECT_EQ(ended(2, refused, MANY, 0)->outcome, Outcome::REJECTED);
}

TEST(Refusals, CountWhatTheEventHasSpentAttemptsFor) {
  dispatch::Refusals refusals;
  EXPECT_EQ(refusals.add(7, 2), 1);
  EXPECT_EQ(refusals.add(8, 0), 1);
  EXPECT_EQ(refusals.add(7, 3), 2);
  EXPECT_EQ(refusals.add(7, 5), 3) << "the failure in between was of another kind";
  EXPECT_EQ(refusals.add(7, 0), 1) << "a redrive begins anew";
  EXPECT_EQ(refusals.add(7, 0), 1) << "the first one spent no attempt: the sink was at fault";
  refusals.forget(7);
  EXPECT_EQ(refusals.add(7, 5), 1);
}

TEST(Refusals, AreBounded) {
  dispatch::Refusals refusals;
  for (int64_t position = 1; position <= 20'000; position++)
    refusals.add(position, 1);
  int remembered = 0;
  for (int64_t position = 1; position <= 20'000; position++)
    remembered += refusals.add(position, 1) == 2;
  EXPECT_LE(remembered, 10'000);
}

TEST_F(DispatchEventEnded, WhatTheDestinationSaidIsKept) {
  Completion failed = completion(Outcome::RETRY);
  failed.retry_after_ms = 700;
  failed.error = "no answer";
  failed.slow_retry = true;
  const InFlightEvent *event = ended(1, failed, ORDERED);
  EXPECT_EQ(event->retry_after_ms, 700);
  EXPECT_STREQ(event->error, "no answer");
  EXPECT_TRUE(event->slow_retry);
  EXPECT_EQ(event->ended_at, 5000);
  failed.outcome = Outcome::DEFERRED;
  EXPECT_FALSE(ended(2, failed, ORDERED)->slow_retry);
}

TEST_F(DispatchEventEnded, AFailureBlocksItsKeyAndASuccessReleasesIt) {
  ended(1, completion(Outcome::RETRY), UNORDERED);
  EXPECT_EQ(key(), nullptr) << "its sink keeps no order";
  ended(2, completion(Outcome::RETRY), ORDERED);
  EXPECT_TRUE(is_blocked());
  ended(3, completion(Outcome::SENT), ORDERED);
  EXPECT_TRUE(is_blocked()) << "it is not the blocker";
  decisions->blocked_keys.forget(SINK, KEY);
  ended(4, completion(Outcome::DEFERRED), ORDERED);
  EXPECT_TRUE(is_blocked());
  decisions->blocked_keys.forget(SINK, KEY);
  with_room().block_key(SINK, KEY, 7);
  ended(7, completion(Outcome::SENT), ORDERED);
  EXPECT_FALSE(is_blocked());
}

TEST_F(DispatchEventEnded, ADeadLetterBlocksWhereItsSinkSaysSo) {
  with_room().block_key(SINK, KEY, 1);
  ended(1, completion(Outcome::REJECTED), ORDERED);
  EXPECT_FALSE(is_blocked());
  ended(2, completion(Outcome::REJECTED), BLOCKING);
  EXPECT_TRUE(is_blocked());
}

TEST_F(DispatchEventEnded, ASuspectBlocksAndIsRecordedAfter250Milliseconds) {
  Completion failed = completion(Outcome::RETRY);
  failed.suspect = true;
  const InFlightEvent *event = ended(1, failed, ORDERED, 2);
  EXPECT_EQ(event->outcome, Outcome::REJECTED);
  EXPECT_TRUE(event->suspect);
  EXPECT_TRUE(is_blocked()) << "until it is known whether it is a dead letter";
  EXPECT_FALSE(decisions->recording.is_gathering());
  EXPECT_EQ(decisions->recording.next_moment(), moment_after(now, 250));
  EXPECT_TRUE(choose().empty());
  now = moment_after(now, 250);
  EXPECT_EQ(positions(choose()), Positions{1});
}

TEST_F(DispatchEventEnded, ARejectedEventIsNotPassedUnseenBeforeItIsADeadLetter) {
  ended(1, completion(Outcome::REJECTED), ORDERED);
  EXPECT_TRUE(decisions->may_be_out_of_order(submit(2)));
}

TEST_F(DispatchEventEnded, WithoutItsSuspectsNothingIsDue) {
  Completion failed = completion(Outcome::RETRY);
  failed.suspect = true;
  ended(1, failed, ORDERED);
  EXPECT_EQ(decisions->take_suspects(&sink)->position, 1);
  EXPECT_EQ(decisions->recording.next_moment(), MOMENT_NEVER) << "else the loop never sleeps";
  EXPECT_FALSE(decisions->recording.is_due(moment_after(now, 1000)));
  ended(2, completion(Outcome::SENT), ORDERED);
  ended(3, failed, ORDERED);
  EXPECT_EQ(decisions->take_suspects(&sink)->position, 3);
  EXPECT_TRUE(decisions->recording.is_due(moment_after(now, 20))) << "the others are recorded";
  EXPECT_EQ(decisions->take_suspects(&sink), nullptr);
}

TEST_F(DispatchEventEnded, WhatWasNotTriedComesBackAndWhatIsDeferredBehindItsBlocker) {
  const InFlightEvent *event = submit(5);
  EXPECT_TRUE(decisions->is_returned(event, Outcome::RETURNED, true));
  EXPECT_TRUE(decisions->is_returned(event, Outcome::RETURNED, false));
  EXPECT_FALSE(decisions->is_returned(event, Outcome::DEFERRED, true));
  with_room().block_key(SINK, KEY, 5);
  EXPECT_FALSE(decisions->is_returned(event, Outcome::DEFERRED, true)) << "it is the blocker";
  with_room().block_key(SINK, KEY, 4);
  EXPECT_TRUE(decisions->is_returned(event, Outcome::DEFERRED, true));
  EXPECT_FALSE(decisions->is_returned(event, Outcome::DEFERRED, false));
  for (Outcome outcome : {Outcome::SENT, Outcome::RETRY, Outcome::REJECTED})
    EXPECT_FALSE(decisions->is_returned(event, outcome, true));
}

TEST_F(DispatchEventEnded, TheyAreGatheredFor20MillisecondsOrUpTo2000) {
  Recording &recording = decisions->recording;
  EXPECT_EQ(recording.next_moment(), MOMENT_NEVER);
  EXPECT_FALSE(recording.is_gathering());
  const Moment first = now;
  ended(1, completion(Outcome::SENT), ORDERED);
  now = moment_after(first, 10);
  ended(2, completion(Outcome::SENT), ORDERED);
  EXPECT_TRUE(recording.is_gathering());
  EXPECT_EQ(recording.next_moment(), moment_after(first, 20));
  EXPECT_FALSE(recording.is_due(moment_after(first, 19)));
  EXPECT_TRUE(recording.is_due(moment_after(first, 20)));
  for (int64_t position = 3; position < 2000; position++)
    ended(position, completion(Outcome::SENT), ORDERED);
  EXPECT_FALSE(recording.is_due(now));
  ended(2000, completion(Outcome::SENT), ORDERED);
  EXPECT_TRUE(recording.is_due(now));
}

TEST_F(DispatchEventEnded, AfterACommitOnlyWhatWasPutOffIsDueAndAfterARollbackAll) {
  Recording &recording = decisions->recording;
  ended(1, completion(Outcome::SENT), ORDERED), ended(2, completion(Outcome::SENT), ORDERED);
  for (InFlightEvent *event : choose())
    with_room().settle(event, event->position == 1 ? FoundRow::LOCKED : FoundRow::OURS, Retention::NONE);
  decisions->roll_back_recording();
  EXPECT_EQ(recording.next_moment(), MOMENT_NONE);
  EXPECT_TRUE(recording.is_gathering());
  now = moment_after(now, 1);
  decisions->in_flight.find(1)->record_after = MOMENT_NONE;
  for (InFlightEvent *event : choose())
    with_room().settle(event, event->position == 1 ? FoundRow::LOCKED : FoundRow::OURS, Retention::NONE);
  decisions->commit_recording(1);
  EXPECT_EQ(recording.next_moment(), moment_after(now, 200));
  EXPECT_FALSE(recording.is_gathering());
}

TEST(DispatchSentDay, AMissingPartitionIsWaitedForAndThenDoneWithout) {
  SentDay days;
  const Moment now = {3'600'000'000};
  EXPECT_FALSE(days.was_looked_for(9000));
  EXPECT_EQ(days.look(9000, false, now), Retention::UNDECIDED);
  EXPECT_TRUE(days.was_looked_for(9000));
  EXPECT_EQ(days.answer(), Retention::UNDECIDED);
  EXPECT_TRUE(days.take_missing());
  EXPECT_FALSE(days.take_missing()) << "it was told";
  EXPECT_EQ(days.look(9000, false, moment_after(now, 9999)), Retention::UNDECIDED);
  EXPECT_EQ(days.look(9000, false, moment_after(now, 10'000)), Retention::NONE);
  EXPECT_FALSE(days.take_missing());
  EXPECT_EQ(days.look(9000, true, moment_after(now, 10'001)), Retention::KEPT);
  EXPECT_FALSE(days.was_looked_for(9001));
  days.begin();
  EXPECT_FALSE(days.was_looked_for(9000)) << "a user may have dropped it since";
  EXPECT_EQ(days.look(9000, false, moment_after(now, 15'000)), Retention::UNDECIDED) << "it is missed anew";
  EXPECT_TRUE(days.take_missing());
  EXPECT_EQ(days.look(9001, false, moment_after(now, 20'000)), Retention::UNDECIDED) << "another day";
  EXPECT_TRUE(days.take_missing());
}

TEST(DispatchSentDay, TheWarningComesOnceAnHour) {
  SentDay days;
  const Moment now = {7'200'000'000};
  EXPECT_TRUE(days.warn(now));
  EXPECT_FALSE(days.warn(now));
  EXPECT_FALSE(days.warn(moment_after(now, 3'599'999)));
  EXPECT_TRUE(days.warn(moment_after(now, 3'600'000)));
  EXPECT_FALSE(days.warn(moment_after(now, 3'600'001)));
  EXPECT_TRUE(SentDay().warn({1'000'000})) << "soon after the clock began";
}
