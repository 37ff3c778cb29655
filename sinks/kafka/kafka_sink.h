/* kafka_sink.h: the Kafka sink: its lanes, how many there are, and what is told of the sink as a whole. */
#pragma once

#include "delivery/engine/sink.h"
#include "delivery/engine/stall_detector.h"
#include "kafka_growth.h"
#include "kafka_lane.h"
#include "kafka_order.h"

namespace outbox {

/*
 * All events of a key go through one lane, so that their order is that of one producer. A lane that sends nothing for
 * a time delays its own keys only: their events wait in it, up to its share of what the sink may hold, and in the
 * table beyond that.
 *
 * States of the number of lanes:
 *   steady --(events wait for requests: KafkaGrowth)--> opening: more lanes connect, and the sink goes on without
 * them opening --(all are connected)--> changing;  opening --(one fails, or `longest_opening` is over)--> steady
 *   steady --(a lane has not worked for `longest_outage`, while another has)--> changing, to one lane
 *   changing: the sink accepts nothing, because keys move to other lanes when nothing is in flight any more
 *   changing --(nothing is in flight)--> steady, with the new lanes;  changing --(that takes too long)--> steady
 *   steady --(no event for `longest_idle`)--> steady, with one lane
 */
class KafkaSink final : public Sink, private KafkaShared {
public:
  using Time = Sink::Time;

  /* Throws BadInput if librdkafka refuses the properties as a whole. */
  KafkaSink(std::shared_ptr<const KafkaConfig> config, std::shared_ptr<Reporter> reporter,
            std::shared_ptr<KafkaExtraProducers> extra_producers);
  ~KafkaSink() override;

  uint32_t credit() const override;
  void keep_acknowledgements(bool keep) override;
  std::span<const uint32_t> order(const ob_event *events, size_t n) override;
  Submitted submit(const ob_event &event) override;
  bool checks_events() const override { return true; }
  void flush() override;
  void poll() override;
  Time check_at() const override;
  void release_queued() override;
  void abandon() override;

private:
  using Lanes = std::vector<std::unique_ptr<KafkaLane>>;
  enum class State {
    Steady,  /* next: Opening, Changing */
    Opening, /* next: Changing, Steady */
    Changing /* next: Steady */
  };

  void on_first(Time now) override { stall_detector_.on_submit(in_flight(), now); }
  void on_acknowledged(size_t events, size_t bytes, std::chrono::nanoseconds in_flight, Time now) override;
  bool on_down(const KafkaLane &lane) override;
  void on_up(Time now) override;
  void on_topic_paused(const KafkaLane &lane, const std::string &topic, const std::string &reason) override;
  void on_topic_resumed(const std::string &topic) override;

  KafkaLane &lane_of(const ob_event &event);
  size_t partitions_seen() const;
  size_t held() const;
  size_t in_flight() const;
  bool any_works() const;
  const KafkaLane *lane_with_outage() const;
  void report_down(const KafkaOutage &outage);
  std::string slow_part() const;
  void check_stall(Time now);
  void report_degraded();

  /* kafka_lane_number.cpp */
  void change_state(State next);
  void look_at_number(Time now);
  void look_for_growth(Time now);
  void open_more(Time now);
  void give_up_growing(Time now, const char *why);
  void look_for_idleness(Time now);
  void look_for_outage(Time now);
  void keep_one(Time now);
  void begin_change(Time now);
  void go_on_changing(Time now);
  void destroy(Lanes lanes);

  const std::shared_ptr<KafkaExtraProducers> extra_producers_;
  Lanes lanes_;
  Lanes opening_; /* connect, or wait for the change, and have no event */
  State state_ = State::Steady;
  bool is_shrinking_ = false;      /* Changing to one lane */
  bool lanes_closed_ = false;      /* since report_degraded(), with the topics that they had paused */
  Time state_until_ = Time::max(); /* Opening, Changing */
  Time progress_at_{};             /* Changing: when an event was acknowledged last */
  KafkaGrowth growth_;
  KafkaOrder order_;
  Time no_growth_before_{};
  Time used_at_{}; /* when events were submitted last */
  Time idle_check_at_ = Time::max(), number_check_at_ = Time::max();
  size_t next_ = 0; /* the lane of the next event without a key */
  StallDetector stall_detector_;
  Time stall_check_at_ = Time::max();
  std::string paused_, degraded_; /* status texts: of topics, and the one that was reported last */
};

}  // namespace outbox
