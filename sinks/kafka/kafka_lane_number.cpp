/*
 * kafka_lane_number.cpp: how many lanes a sink has. Another number gives keys to other lanes, and two producers know
 * nothing of each other's order. So while the number changes nothing is in flight: that costs a round trip or two,
 * and no table of the keys in flight. The new lanes connect before, because that takes many round trips.
 */
#include <cassert>

#include "kafka_sink.h"

namespace outbox {

using std::chrono::milliseconds;
using std::chrono::seconds;

static constexpr seconds longest_opening{10}; /* a cluster may take connections slowly */
static constexpr seconds longest_change{10};  /* 50,000 events over a slow network */
static constexpr seconds longest_silence{1};  /* while the number changes: nothing is acknowledged */
static constexpr seconds longest_outage{30};  /* of one lane while others work */
static constexpr std::chrono::minutes pause_after_failure{5};
static constexpr std::chrono::minutes longest_idle{10};

void KafkaSink::change_state(State next) {
  [[maybe_unused]] const auto may_follow = [](State state, State after) {
    switch (state) {
    case State::Steady:
      return after == State::Opening || after == State::Changing;
    case State::Opening:
      return after == State::Changing || after == State::Steady;
    case State::Changing:
      return after == State::Steady;
    }
    return false;
  };
  assert(may_follow(state_, next));
  state_ = next;
}

void KafkaSink::look_at_number(Time now) {
  constexpr milliseconds often{100};
  switch (state_) {
  case State::Steady:
    look_for_idleness(now);
    look_for_outage(now);
    look_for_growth(now);
    break;
  case State::Opening:
    if (std::any_of(opening_.begin(), opening_.end(), [](const auto &lane) { return lane->outage().has_value(); }) ||
        now >= state_until_)
      give_up_growing(now, "they could not connect");
    else if (std::all_of(opening_.begin(), opening_.end(), [](const auto &lane) { return lane->is_connected(); }))
      begin_change(now);
    break;
  case State::Changing:
    go_on_changing(now);
    break;
  }
  number_check_at_ = state_ != State::Steady ? now + often : lanes_.size() > 1 ? idle_check_at_ : Time::max();
}

/* ---- more ---- */

void KafkaSink::look_for_growth(Time now) {
  if (state_ != State::Steady || lanes_.size() >= KafkaGrowth::many_producers || now < no_growth_before_)
    return;
  KafkaRoundTrips fast;
  for (const auto &lane : lanes_) {
    const KafkaRoundTrips its = lane->round_trips();
    const uint64_t n_produce = fast.n_produce + its.n_produce;
    if (its.network.count() > 0 && (fast.network.count() == 0 || its.network < fast.network))
      fast = its;
    fast.n_produce = n_produce;
  }
  if (!growth_.is_wanted(fast, now))
    return;
  growth_.restart(now);
  if (std::none_of(lanes_.begin(), lanes_.end(), [](const auto &lane) { return lane->is_delayed(); }))
    open_more(now);
}

void KafkaSink::open_more(Time now) {
  const size_t n = KafkaGrowth::next(lanes_.size(), partitions_seen()) - lanes_.size();
  no_growth_before_ = now + pause_after_failure;
  if (!extra_producers_->take(n))
    return;
  try {
    for (size_t i = 0; i < n; i++)
      opening_.push_back(std::make_unique<KafkaLane>(static_cast<KafkaShared &>(*this)));
  } catch (const BadInput &bad) { /* no thread could be started, for example */
    extra_producers_->give_back(n - opening_.size());
    destroy(std::exchange(opening_, {}));
    reporter->log(OB_LOG_INFO, "more Kafka producers could not be opened: " + bad.detail);
    return;
  }
  change_state(State::Opening);
  state_until_ = now + longest_opening;
}

void KafkaSink::give_up_growing(Time now, const char *why) {
  change_state(State::Steady);
  destroy(std::exchange(opening_, {}));
  growth_.restart(now);
  no_growth_before_ = now + pause_after_failure;
  reporter->log(OB_LOG_INFO, std::string("more Kafka producers were opened and closed again: ") + why);
}

/* ---- fewer ---- */

void KafkaSink::look_for_idleness(Time now) {
  if (lanes_.size() == 1 || now < idle_check_at_)
    return;
  idle_check_at_ = used_at_ + longest_idle;
  if (now < idle_check_at_)
    return;
  if (held() > 0) {
    idle_check_at_ = now + longest_idle;
    return;
  }
  keep_one(now);
  reporter->log(OB_LOG_INFO, "no event came for " + std::to_string(longest_idle.count()) +
                                 " minutes: the sink has one Kafka producer again");
}

/* Brokers may limit the connections of a client, for example. Its keys go to a lane that works. */
void KafkaSink::look_for_outage(Time now) {
  if (lanes_.size() == 1 || !any_works())
    return;
  for (const auto &lane : lanes_)
    if (lane->outage() && lane->held() > 0 && now - lane->outage()->since >= longest_outage) {
      reporter->log(OB_LOG_WARNING, "one of " + std::to_string(lanes_.size()) +
                                        " Kafka producers sends nothing, and is given up with the others but one: " +
                                        lane->outage()->text);
      is_shrinking_ = true;
      begin_change(now);
      return;
    }
}

/* Nothing is in flight, so it can be any. */
void KafkaSink::keep_one(Time now) {
  assert(held() == 0);
  auto working = std::find_if(lanes_.begin(), lanes_.end(), [](const auto &lane) { return lane->works(); });
  if (working != lanes_.end())
    std::swap(*working, lanes_.front());
  Lanes others(std::make_move_iterator(lanes_.begin() + 1), std::make_move_iterator(lanes_.end()));
  lanes_.resize(1);
  destroy(std::move(others));
  lanes_closed_ = true;
  growth_.restart(now);
}

/* ---- the change ---- */

void KafkaSink::begin_change(Time now) {
  change_state(State::Changing);
  state_until_ = now + longest_change;
  progress_at_ = now;
}

void KafkaSink::go_on_changing(Time now) {
  if (is_shrinking_)
    for (const auto &lane : lanes_)
      if (lane->held() > 0 && (lane->outage() || now >= state_until_))
        lane->replace_producer("the number of producers changes");
  if (held() > 0) {
    if (!is_shrinking_ && (now >= state_until_ || now >= progress_at_ + longest_silence))
      give_up_growing(now, "a broker does not answer");
    return;
  }
  change_state(State::Steady);
  if (std::exchange(is_shrinking_, false)) {
    keep_one(now);
    no_growth_before_ = now + pause_after_failure;
    return;
  }
  std::move(opening_.begin(), opening_.end(), std::back_inserter(lanes_));
  opening_.clear();
  growth_.restart(now);
  no_growth_before_ = now;
  idle_check_at_ = now + longest_idle;
  reporter->log(OB_LOG_INFO, "events waited for answers of brokers that are far away: the sink has " +
                                 std::to_string(lanes_.size()) + " Kafka producers now");
}

/* Their destruction may wait for brokers. */
void KafkaSink::destroy(Lanes lanes) {
  extra_producers_->give_back(lanes.size());
  for (auto &lane : lanes)
    old_producers.destroy(std::shared_ptr<KafkaLane>(std::move(lane)));
}

}  // namespace outbox
