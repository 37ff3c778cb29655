/* Delivered events that have overtaken an earlier row of their key. */
#include "dispatch/out_of_order.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "dispatch/dispatch.h"

using namespace dispatch;

class DispatchOutOfOrder : public testing::Test {
protected:
  static constexpr uint64_t KEY = 77, OTHER_KEY = 78;

  void SetUp() override { rules.begin(now); }

  InFlightEvent *claim(int64_t position, uint64_t key_hash = KEY, SinkInFlight *of = nullptr) {
    InFlight::Claimed claimed = {};
    claimed.position = position;
    claimed.key_hash = key_hash;
    claimed.sink = of ? of : &sinks[0];
    return in_flight.claim(claimed);
  }

  InFlightEvent *end(int64_t position, Outcome outcome, uint64_t key_hash = KEY, SinkInFlight *of = nullptr) {
    InFlightEvent *event = claim(position, key_hash, of);
    in_flight.end(event, outcome, -1, nullptr, {MOMENT_NONE, 0});
    return event;
  }

  InFlightEvent *send(int64_t position, uint64_t key_hash = KEY, SinkInFlight *of = nullptr) {
    InFlightEvent *event = end(position, Outcome::SENT, key_hash, of);
    rules.add(event);
    return event;
  }

  static EarlierRow dead_letter(int64_t position) { return {position, {1, 2, 0, 0}, true, false}; }
  static EarlierRow failing(int64_t position) { return {position, {3, 4, 0, 0}, false, false}; }
  static EarlierRow redriven(int64_t position) { return {position, {5, 6, 0, 0}, false, true}; }

  void find(std::initializer_list<EarlierRow> rows, uint32_t key = 0) {
    for (const EarlierRow &row : rows)
      rules.found(in_flight, key, row);
  }
  bool is_put_off(const InFlightEvent *event) { return event->record_after == moment_after(now, 200); }

  std::vector<int64_t> positions(EarlierRowAction action) {
    std::vector<int64_t> all;
    for (const OvertakenRow &row : rules.rows(action))
      all.push_back(row.position);
    return all;
  }

  using Positions = std::vector<int64_t>;

  Moment now = {3'600'000'000};
  SinkInFlight sinks[2] = {};
  InFlight in_flight;
  OutOfOrder rules;
};

TEST_F(DispatchOutOfOrder, DeliveredEventsAreGroupedBySinkAndKey) {
  const InFlightEvent *last = send(30), *other_sink = send(15, KEY, &sinks[1]), *other_key = send(40, KEY - 1);
  send(10), send(20);
  rules.group(in_flight);
  ASSERT_EQ(rules.keys().size(), 3U);
  EXPECT_EQ(rules.keys()[0].last, other_key);
  EXPECT_EQ(rules.keys()[0].n, 1U);
  EXPECT_EQ(rules.keys()[1].last, last);
  EXPECT_EQ(rules.keys()[1].n, 3U);
  EXPECT_EQ(rules.keys()[2].last, other_sink);
}

TEST_F(DispatchOutOfOrder, AnEarlierRowIsOvertakenByTheFirstDeliveredEventAfterIt) {
  send(10), send(20);
  const InFlightEvent *last = send(30);
  rules.group(in_flight);
  EXPECT_FALSE(is_put_off(last)) << "those before it were delivered as well";
  find({dead_letter(5), dead_letter(10), dead_letter(19), dead_letter(25)});
  rules.all_found();
  ASSERT_EQ(rules.rows().size(), 4U);
  EXPECT_EQ(rules.rows()[0].overtaken_by, 10);
  EXPECT_EQ(rules.rows()[1].overtaken_by, 20);
  EXPECT_EQ(rules.rows()[2].overtaken_by, 20);
  EXPECT_EQ(rules.rows()[3].overtaken_by, 30);
  EXPECT_EQ(rules.rows()[0].handle.page, 1U);
  EXPECT_EQ(rules.rows()[0].handle.line, 2);
}

TEST_F(DispatchOutOfOrder, TheFateOfAnEarlierRow) {
  send(100);
  rules.group(in_flight);
  for (int64_t position : {7, 1, 4})
    find({redriven(position), failing(position + 1), dead_letter(position + 2)});
  rules.all_found();
  EXPECT_EQ(positions(EarlierRowAction::MARK_DEAD_LETTER), (Positions{3, 6, 9}));
  EXPECT_EQ(positions(EarlierRowAction::MARK_PENDING), (Positions{2, 5, 8}));
  EXPECT_EQ(positions(EarlierRowAction::DEAD_LETTER_AGAIN), (Positions{1, 4, 7}));
  ASSERT_NE(rules.find_dead_letter(6), nullptr);
  EXPECT_EQ(rules.find_dead_letter(6)->position, 6);
  EXPECT_EQ(rules.find_dead_letter(5), nullptr) << "it is pending";
  EXPECT_EQ(rules.find_dead_letter(10), nullptr);
}

TEST_F(DispatchOutOfOrder, ARowThatWasDeliveredItselfIsNotOvertaken) {
  send(10);
  end(5, Outcome::SENT), end(6, Outcome::RETRY);
  rules.group(in_flight);
  find({failing(5), redriven(5)});
  EXPECT_TRUE(rules.rows().empty());
  find({failing(6)});
  EXPECT_EQ(rules.rows().size(), 1U) << "it failed again";
  find({failing(11)});
  EXPECT_EQ(rules.rows().size(), 1U) << "nothing after it was delivered";
}

TEST_F(DispatchOutOfOrder, ARedrivenEventInFlightIsWaitedFor) {
  const InFlightEvent *before = send(3), *after = send(10);
  claim(5), claim(6);
  rules.group(in_flight);
  find({redriven(5)});
  EXPECT_TRUE(rules.rows().empty());
  EXPECT_FALSE(is_put_off(before));
  EXPECT_TRUE(is_put_off(after));
  find({failing(6)});
  EXPECT_EQ(rules.rows().size(), 1U) << "one that fails is marked at once";
}

TEST_F(DispatchOutOfOrder, EventsAfterAnUnrecordedFailureOfTheirKeyWait) {
  const InFlightEvent *before = send(3), *after = send(10), *last = send(11), *other_key = send(12, OTHER_KEY),
                      *other_sink = send(13, KEY, &sinks[1]);
  end(5, Outcome::RETRY);
  end(1, Outcome::RETRY, KEY - 1); /* nothing of its key was delivered */
  InFlightEvent *recorded = end(2, Outcome::REJECTED);
  in_flight.recorded(recorded);
  rules.group(in_flight);
  EXPECT_TRUE(is_put_off(after));
  EXPECT_TRUE(is_put_off(last));
  EXPECT_FALSE(is_put_off(before)) << "the failure before it is recorded";
  EXPECT_FALSE(is_put_off(other_key));
  EXPECT_FALSE(is_put_off(other_sink));
}

TEST_F(DispatchOutOfOrder, EventsAfterARowThatCannotBeLockedWait) {
  const InFlightEvent *before = send(3), *after = send(10), *other = send(10'000, OTHER_KEY);
  rules.group(in_flight);
  find({dead_letter(1), failing(5)});
  find({failing(9'000)}, 1);
  rules.all_found();
  for (OvertakenRow &row : rules.rows())
    row.locked = row.position != 5;
  rules.put_off_after_unlocked();
  EXPECT_FALSE(is_put_off(before));
  EXPECT_TRUE(is_put_off(after));
  EXPECT_FALSE(is_put_off(other));
}

TEST_F(DispatchOutOfOrder, NothingIsLeftOfAFormerTransaction) {
  send(10);
  rules.group(in_flight);
  find({dead_letter(5)});
  rules.begin(now);
  EXPECT_TRUE(rules.keys().empty());
  EXPECT_TRUE(rules.rows().empty());
  send(20);
  rules.group(in_flight);
  ASSERT_EQ(rules.keys().size(), 1U);
  EXPECT_EQ(rules.keys()[0].n, 1U);
}

TEST(DispatchMayBeOutOfOrder, OnlyKeysWithDeadLettersOrABlocker) {
  const std::unique_ptr<Dispatch> decisions{dispatch::create()};
  const auto block = [&](SinkId of, uint64_t key_hash) { decisions->block_key(of, key_hash, 1); };
  SinkInFlight sink = {};
  sink.id = 5;
  InFlightEvent event = {};
  event.sink = &sink;
  event.key_hash = 77;
  EXPECT_FALSE(decisions->may_be_out_of_order(&event));
  block(5, 78);
  block(6, 77);
  EXPECT_FALSE(decisions->may_be_out_of_order(&event)) << "another key, and that of another sink";
  block(5, 77);
  EXPECT_TRUE(decisions->may_be_out_of_order(&event));
  decisions->blocked_keys.forget(5, 77);
  EXPECT_FALSE(decisions->may_be_out_of_order(&event));
  decisions->dead_letter_keys.note(77);
  EXPECT_TRUE(decisions->may_be_out_of_order(&event));
  event.key_hash = 0;
  decisions->dead_letter_keys.note(1 << 20);
  EXPECT_FALSE(decisions->may_be_out_of_order(&event)) << "it has no key";
}
